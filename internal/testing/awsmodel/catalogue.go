package awsmodel

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"karpenter.sh/karpenter/internal/aws/awsdata"
	"karpenter.sh/karpenter/internal/testing/awsmodel/wire"
)

// A catalogue is what EC2 offers in one region. It never changes.
type catalogue struct {
	region   string
	types    []ec2types.InstanceTypeInfo // what the region offers, by name
	spelled  map[string][]byte           // the same as XML: DescribeInstanceTypes is large and asked for by every test
	facts    map[string]*awsdata.InstanceType
	zones    []string
	local    []string                   // those of the zones that are local ones
	offered  map[string]map[string]bool // zone, type
	prices   map[string]float64         // on demand, dollars per hour
	products func() []product           // the price list
}

var catalogues sync.Map // region and patterns to *catalogue; loading takes a moment and tests make many worlds

func loadCatalogue(region string, only, local []string) *catalogue {
	key := region + " " + strings.Join(only, " ") + " " + strings.Join(local, " ")
	if c, ok := catalogues.Load(key); ok {
		return c.(*catalogue)
	}
	c, _ := catalogues.LoadOrStore(key, newCatalogue(region, only, local))
	return c.(*catalogue)
}

func newCatalogue(region string, only, local []string) *catalogue {
	c := &catalogue{
		region: region, zones: awsdata.Zones(region), prices: map[string]float64{},
		facts: map[string]*awsdata.InstanceType{}, offered: map[string]map[string]bool{}, spelled: map[string][]byte{},
	}
	anywhere := map[string]bool{}
	for _, z := range c.zones {
		c.offered[z] = map[string]bool{}
		for _, t := range awsdata.Offered(region, z) {
			if len(only) > 0 && !slices.ContainsFunc(only, func(p string) bool { ok, _ := path.Match(p, t); return ok }) {
				continue
			}
			c.offered[z][t] = true
			anywhere[t] = true
		}
	}
	for _, t := range awsdata.Types() {
		c.facts[t.Name] = t
	}
	for _, z := range local {
		c.addLocal(z)
	}
	for t, price := range awsdata.Prices(region) {
		if len(only) == 0 || anywhere[t] {
			c.prices[t] = price
		}
	}
	c.products = sync.OnceValue(c.priceList)
	var all []ec2types.InstanceTypeInfo
	if err := json.Unmarshal(awsdata.TypesJSON(), &all); err != nil {
		panic(fmt.Sprintf("awsmodel: embedded instance types: %v", err)) // the build is broken, not the caller
	}
	for _, t := range all {
		if name := string(t.InstanceType); anywhere[name] {
			c.types = append(c.types, t)
			c.spelled[name] = wire.EC2.XML(t)
		}
	}
	return c
}

func (c *catalogue) arm(instanceType string) bool {
	f, ok := c.facts[instanceType]
	return ok && slices.Contains(f.Processor.Architectures, "arm64")
}

// SpotPrice returns the price of a spot pool at this moment, in dollars per hour, and false where there is none.
func (c *Cloud) SpotPrice(instanceType, zone string) (float64, bool) {
	return c.world.spotPriceAt(instanceType, zone, time.Now())
}

func (w *world) spotPriceAt(instanceType, zone string, at time.Time) (float64, bool) {
	price, ok := w.data.prices[instanceType]
	f := w.data.facts[instanceType]
	if !ok || f == nil || !w.data.offered[zone][instanceType] || slices.Contains(w.data.local, zone) ||
		!slices.Contains(f.UsageClasses, "spot") {
		return 0, false
	}
	return spotPrice(price, instanceType, zone, w.data.arm(instanceType), at.Sub(w.started)), true
}

// typesPage is a page of DescribeInstanceTypes whose items are spelled already.
type typesPage struct {
	data  *catalogue
	names []string
	next  *string
}

func (p typesPage) xml() []byte {
	var b strings.Builder
	b.WriteString("<instanceTypeSet>")
	for _, n := range p.names {
		b.WriteString("<item>")
		b.Write(p.data.spelled[n])
		b.WriteString("</item>")
	}
	b.WriteString("</instanceTypeSet>")
	if p.next != nil {
		b.WriteString("<nextToken>" + *p.next + "</nextToken>")
	}
	return []byte(b.String())
}

func describeInstanceTypes(c *call, in *ec2.DescribeInstanceTypesInput) (*typesPage, error) {
	if len(in.InstanceTypes) > 0 && in.MaxResults != nil {
		return nil, refuse("InvalidParameterCombination", "The parameter InstanceTypes cannot be used with the parameter MaxResults")
	}
	var found []string
	for _, want := range in.InstanceTypes {
		if _, ok := c.world.data.spelled[string(want)]; !ok {
			return nil, refuse("InvalidInstanceType", "The following supplied instance types do not exist: [%s]", want)
		}
	}
	for _, t := range c.world.data.types {
		if len(in.InstanceTypes) > 0 && !slices.Contains(in.InstanceTypes, t.InstanceType) {
			continue
		}
		ok, err := matches(in.Filters, t, typeFilters, nil)
		if err != nil {
			return nil, err
		}
		if ok {
			found = append(found, string(t.InstanceType))
		}
	}
	names, next, err := page(found, in.MaxResults, in.NextToken, 5, 100, func(s string) string { return s })
	return &typesPage{c.world.data, names, next}, err
}

func boolValue(b *bool) []string { return []string{strconv.FormatBool(aws.ToBool(b))} }

func values[S ~string](list []S) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = string(s)
	}
	return out
}

var typeFilters = filters[ec2types.InstanceTypeInfo]{
	"instance-type": func(t ec2types.InstanceTypeInfo) []string { return []string{string(t.InstanceType)} },
	"bare-metal":    func(t ec2types.InstanceTypeInfo) []string { return boolValue(t.BareMetal) },
	"burstable-performance-supported": func(t ec2types.InstanceTypeInfo) []string {
		return boolValue(
			t.BurstablePerformanceSupported)
	},
	"current-generation":            func(t ec2types.InstanceTypeInfo) []string { return boolValue(t.CurrentGeneration) },
	"free-tier-eligible":            func(t ec2types.InstanceTypeInfo) []string { return boolValue(t.FreeTierEligible) },
	"hypervisor":                    func(t ec2types.InstanceTypeInfo) []string { return []string{string(t.Hypervisor)} },
	"instance-storage-supported":    func(t ec2types.InstanceTypeInfo) []string { return boolValue(t.InstanceStorageSupported) },
	"supported-virtualization-type": func(t ec2types.InstanceTypeInfo) []string { return values(t.SupportedVirtualizationTypes) },
	"supported-usage-class":         func(t ec2types.InstanceTypeInfo) []string { return values(t.SupportedUsageClasses) },
	"supported-root-device-type":    func(t ec2types.InstanceTypeInfo) []string { return values(t.SupportedRootDeviceTypes) },
	"processor-info.supported-architecture": func(t ec2types.InstanceTypeInfo) []string {
		return values(
			t.ProcessorInfo.SupportedArchitectures)
	},
	"memory-info.size-in-mib": func(t ec2types.InstanceTypeInfo) []string {
		return []string{strconv.FormatInt(aws.ToInt64(t.MemoryInfo.SizeInMiB), 10)}
	},
	"vcpu-info.default-vcpus": func(t ec2types.InstanceTypeInfo) []string {
		return []string{strconv.Itoa(int(aws.ToInt32(t.VCpuInfo.DefaultVCpus)))}
	},
}

func describeInstanceTypeOfferings(c *call, in *ec2.DescribeInstanceTypeOfferingsInput) (
	*ec2.DescribeInstanceTypeOfferingsOutput, error) {
	var out []ec2types.InstanceTypeOffering
	kind := in.LocationType
	if kind == "" {
		kind = ec2types.LocationTypeRegion
	}
	for _, zone := range c.world.data.zones {
		for _, t := range slices.Sorted(maps.Keys(c.world.data.offered[zone])) {
			location := zone
			switch kind {
			case ec2types.LocationTypeAvailabilityZone:
			case ec2types.LocationTypeAvailabilityZoneId:
				location = c.world.data.zoneID(zone)
			case ec2types.LocationTypeRegion:
				location = c.world.cfg.Region
			default:
				return nil, refuse("InvalidParameterValue", "The model has no location type %s", kind)
			}
			o := ec2types.InstanceTypeOffering{InstanceType: ec2types.InstanceType(t), Location: &location, LocationType: kind}
			ok, err := matches(in.Filters, o, offeringFilters, nil)
			if err != nil {
				return nil, err
			}
			if ok {
				out = append(out, o)
			}
		}
	}
	key := func(o ec2types.InstanceTypeOffering) string { return string(o.InstanceType) + " " + *o.Location }
	slices.SortFunc(out, func(a, b ec2types.InstanceTypeOffering) int { return compare(key(a), key(b)) })
	out = slices.CompactFunc(out, func(a, b ec2types.InstanceTypeOffering) bool { return key(a) == key(b) })
	out, next, err := page(out, in.MaxResults, in.NextToken, 5, 1000, key)
	return &ec2.DescribeInstanceTypeOfferingsOutput{InstanceTypeOfferings: out, NextToken: next}, err
}

var offeringFilters = filters[ec2types.InstanceTypeOffering]{
	"instance-type": func(o ec2types.InstanceTypeOffering) []string { return []string{string(o.InstanceType)} },
	"location":      func(o ec2types.InstanceTypeOffering) []string { return []string{*o.Location} },
}

// spotPage is the most that DescribeSpotPriceHistory returns at once.
const spotPage = 1000

var spotProducts = []string{"Linux/UNIX", "Linux/UNIX (Amazon VPC)"}

// describeSpotPriceHistory tells the price that holds at each hour of the asked span, the newest first; without a span,
// the price of now.
func describeSpotPriceHistory(c *call, in *ec2.DescribeSpotPriceHistoryInput) (*ec2.DescribeSpotPriceHistoryOutput, error) {
	var out []ec2types.SpotPrice
	from, to := c.now, c.now
	if in.StartTime != nil && in.StartTime.Before(from) {
		from = *in.StartTime
	}
	if in.EndTime != nil && in.EndTime.Before(to) {
		to = *in.EndTime
	}
	if in.StartTime == nil {
		from = to
	}
	const longest = 90 * 24 * time.Hour
	if to.Sub(from) > longest {
		from = to.Add(-longest)
	}
	for _, t := range c.world.data.types {
		name := string(t.InstanceType)
		if len(in.InstanceTypes) > 0 && !slices.Contains(in.InstanceTypes, t.InstanceType) {
			continue
		}
		for _, zone := range c.world.data.zones {
			if in.AvailabilityZone != nil && *in.AvailabilityZone != zone {
				continue
			}
			prices, err := spotHistory(c, in, name, zone, from, to)
			if err != nil {
				return nil, err
			}
			out = append(out, prices...)
		}
	}
	return pageOfPrices(out, in)
}

func spotHistory(c *call, in *ec2.DescribeSpotPriceHistoryInput, name, zone string, from, to time.Time) ([]ec2types.SpotPrice, error) {
	var out []ec2types.SpotPrice
	for at := to; ; at = at.Add(-driftStep) {
		price, ok := c.world.spotPriceAt(name, zone, at)
		if !ok {
			return nil, nil
		}
		for _, product := range spotProducts {
			p := ec2types.SpotPrice{
				AvailabilityZone: &zone, AvailabilityZoneId: aws.String(c.world.data.zoneID(zone)),
				InstanceType: ec2types.InstanceType(name), ProductDescription: ec2types.RIProductDescription(product),
				SpotPrice: aws.String(strconv.FormatFloat(price, 'f', 6, 64)), Timestamp: aws.Time(at.Truncate(driftStep)),
			}
			if len(in.ProductDescriptions) > 0 && !slices.Contains(in.ProductDescriptions, product) {
				continue
			}
			ok, err := matches(in.Filters, p, spotFilters, nil)
			if err != nil {
				return nil, err
			}
			if ok {
				out = append(out, p)
			}
		}
		if !at.Truncate(driftStep).After(from) {
			return out, nil
		}
	}
}

// pageOfPrices pages by position: the list is the same for as long as a caller pages through it.
func pageOfPrices(all []ec2types.SpotPrice, in *ec2.DescribeSpotPriceHistoryInput) (*ec2.DescribeSpotPriceHistoryOutput, error) {
	start := 0
	if t := aws.ToString(in.NextToken); t != "" {
		raw, err := base64.RawURLEncoding.DecodeString(t)
		n, bad := strconv.Atoi(string(raw))
		if err != nil || bad != nil || n < 0 || n > len(all) {
			return nil, refuse("InvalidNextToken", "The token '%s' is invalid", t)
		}
		start = n
	}
	size := spotPage
	if n := int(aws.ToInt32(in.MaxResults)); n > 0 {
		size = min(n, spotPage)
	}
	end := min(start+size, len(all))
	out := &ec2.DescribeSpotPriceHistoryOutput{SpotPriceHistory: append([]ec2types.SpotPrice{}, all[start:end]...),
		NextToken: aws.String("")}
	if end < len(all) {
		out.NextToken = aws.String(base64.RawURLEncoding.EncodeToString([]byte(strconv.Itoa(end))))
	}
	return out, nil
}

var spotFilters = filters[ec2types.SpotPrice]{
	"instance-type":       func(p ec2types.SpotPrice) []string { return []string{string(p.InstanceType)} },
	"availability-zone":   func(p ec2types.SpotPrice) []string { return []string{*p.AvailabilityZone} },
	"product-description": func(p ec2types.SpotPrice) []string { return []string{string(p.ProductDescription)} },
	"spot-price":          func(p ec2types.SpotPrice) []string { return []string{*p.SpotPrice} },
}
