package awsdata

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
)

//go:embed instance-types.json.gz
var typesGz []byte

//go:embed offerings-by-zone.json.gz
var offeringsGz []byte

//go:embed on-demand-prices.json.gz
var pricesGz []byte

//go:embed branch-interfaces.json.gz
var branchesGz []byte

//go:embed made.txt
var made string

// Made returns the day of the data, such as 2026-07-20.
func Made() string { return strings.TrimSpace(made) }

// Each file is read once, on first use.
var (
	types     = sync.OnceValue(loadTypes)
	offerings = sync.OnceValue(func() map[string]map[string][]string {
		return decode[map[string]map[string][]string](offeringsGz)
	})
	prices   = sync.OnceValue(func() map[string]map[string]float64 { return decode[map[string]map[string]float64](pricesGz) })
	branches = sync.OnceValue(func() map[string]int { return decode[map[string]int](branchesGz) })
)

// Types returns every known instance type, sorted by name.
func Types() []*InstanceType { return types() }

// TypesJSON returns the instance types in full, as EC2's DescribeInstanceTypes returns them: a JSON array sorted by
// name.
func TypesJSON() []byte { return inflate(typesGz) }

// Regions returns the regions whose offerings by zone are known, sorted.
func Regions() []string { return slices.Sorted(maps.Keys(offerings())) }

// Zones returns the zones of a region, sorted; nil for a region that is not in the data.
func Zones(region string) []string { return slices.Sorted(maps.Keys(offerings()[region])) }

// Offered returns the types that a zone offers, sorted.
func Offered(region, zone string) []string { return offerings()[region][zone] }

// PriceRegion returns the region whose on-demand prices are used for region: itself where known, else us-east-1. The
// second result is false when the prices are another region's, and therefore an estimate.
func PriceRegion(region string) (string, bool) {
	if _, ok := prices()[region]; ok {
		return region, true
	}
	return fallbackRegion, false
}

// Prices returns the on-demand prices in dollars per hour by type, for Linux and shared tenancy, of PriceRegion(region).
func Prices(region string) map[string]float64 {
	from, _ := PriceRegion(region)
	return prices()[from]
}

// Unlisted returns the types, sorted, that have a price in a region but that EC2 lists no more, so that nothing can launch them.
func Unlisted() []string {
	listed := map[string]bool{}
	for _, t := range Types() {
		listed[t.Name] = true
	}
	out := map[string]bool{}
	for _, table := range prices() {
		for name := range table {
			if !listed[name] {
				out[name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(out))
}

// Branches returns how many branch interfaces (pod ENIs) a type carries; 0 for types that cannot trunk.
func Branches(instanceType string) int { return branches()[instanceType] }

const fallbackRegion = "us-east-1"

// zoneIDs lists the zone ids of the known regions in the order of their zones. On AWS the mapping differs by account.
var zoneIDs = map[string][]string{
	"us-east-1":      {"use1-az1", "use1-az2", "use1-az3", "use1-az4", "use1-az5", "use1-az6"},
	"us-west-2":      {"usw2-az1", "usw2-az2", "usw2-az3", "usw2-az4"},
	"eu-west-2":      {"euw2-az1", "euw2-az2", "euw2-az3"},
	"eu-central-1":   {"euc1-az1", "euc1-az2", "euc1-az3"},
	"ap-northeast-1": {"apne1-az1", "apne1-az2", "apne1-az4"},
}

// ZoneID returns the id of a zone in this data, "" if the zone is unknown.
func ZoneID(region, zone string) string {
	i := slices.Index(Zones(region), zone)
	if ids := zoneIDs[region]; i >= 0 && i < len(ids) {
		return ids[i]
	}
	return ""
}

// inflate decompresses an embedded file.
func inflate(gz []byte) []byte {
	r, err := gzip.NewReader(bytes.NewReader(gz))
	if err != nil {
		panic(fmt.Sprintf("awsdata: embedded file: %v", err)) // the build is broken, not the caller
	}
	out, err := io.ReadAll(r)
	if err != nil {
		panic(fmt.Sprintf("awsdata: embedded file: %v", err))
	}
	return out
}

func decode[T any](gz []byte) T {
	var out T
	if err := json.Unmarshal(inflate(gz), &out); err != nil {
		panic(fmt.Sprintf("awsdata: embedded file: %v", err))
	}
	return out
}

// loadTypes decodes the array in slices of equal size, one per worker: the file is the bulk of a cold start.
func loadTypes() []*InstanceType {
	parts := split(inflate(typesGz), 4)
	lists := make([][]*InstanceType, len(parts))
	var wg sync.WaitGroup
	for i, part := range parts {
		wg.Go(func() {
			if err := json.Unmarshal(part, &lists[i]); err != nil {
				panic(fmt.Sprintf("awsdata: instance types: %v", err))
			}
		})
	}
	wg.Wait()
	out := slices.Concat(lists...)
	slices.SortFunc(out, func(a, b *InstanceType) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// split cuts a JSON array of objects into up to n arrays, at the boundaries that the generator writes between objects.
func split(array []byte, n int) [][]byte {
	boundary := []byte(`},{"AutoRecoverySupported"`)
	inner := bytes.TrimSuffix(bytes.TrimPrefix(bytes.TrimSpace(array), []byte("[")), []byte("]"))
	size := len(inner)/n + 1
	var out [][]byte
	for len(inner) > 0 {
		end := len(inner)
		if size < len(inner) {
			if at := bytes.Index(inner[size:], boundary); at >= 0 {
				end = size + at + 1
			}
		}
		part := make([]byte, 0, end+2)
		part = append(append(append(part, '['), inner[:end]...), ']')
		out = append(out, part)
		inner = bytes.TrimPrefix(inner[end:], []byte(","))
	}
	return out
}
