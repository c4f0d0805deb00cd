// Package price holds what machines cost: on demand by type, spot by type and zone.
//
// A List never changes; a refresh makes a new one. Prices that a refresh did not bring keep their old value.
package price

import (
	"hash/fnv"
	"maps"
	"math"
	"strings"

	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/aws/awsdata"
)

// A Pool is a type in a zone: what spot prices are quoted for.
type Pool struct{ Type, Zone string }

// A List is one state of the prices.
type List struct {
	region   string
	onDemand map[string]cloud.NanoUSD
	local    map[Pool]cloud.NanoUSD // on demand in local zones, by the group that a zone belongs to
	spot     map[Pool]cloud.NanoUSD
	// quoted is false until spot prices are known; before that a spot machine is taken to cost what it costs on demand.
	quoted bool
}

// Static returns the on-demand prices that ship with Karpenter for a region, and no spot prices.
func Static(region string) *List {
	table := awsdata.Prices(region)
	rate := 1.0
	if _, exact := awsdata.PriceRegion(region); !exact && Currency(region) == yuan {
		rate = yuanPerDollar
	}
	l := &List{region: region, onDemand: make(map[string]cloud.NanoUSD, len(table))}
	for name, dollars := range table {
		l.onDemand[name] = cloud.FromDollars(dollars * rate)
	}
	return l
}

// yuanPerDollar estimates on-demand prices of regions in China from those of other regions. Spot prices there are quoted in yuan; next to
// on-demand prices in dollars each would look too expensive.
const yuanPerDollar = 7

// OnDemand returns the price of a type in the zones of the region, false if it is not known.
func (l *List) OnDemand(instanceType string) (cloud.NanoUSD, bool) {
	p, ok := l.onDemand[instanceType]
	return p, ok
}

// OnDemandIn returns the on-demand price of a type in a zone. Where the price of a local zone is not known, it is that of the region.
func (l *List) OnDemandIn(p Pool) (cloud.NanoUSD, bool) {
	if group, local := localGroup(l.region, p.Zone); local {
		if price, ok := l.local[Pool{p.Type, group}]; ok {
			return price, true
		}
	}
	return l.OnDemand(p.Type)
}

// localGroup returns the group of a local zone, under which the price list has it: us-west-2-lax-1 for
// us-west-2-lax-1a. It is false for the zones of the region itself, such as us-west-2a.
func localGroup(region, zone string) (string, bool) {
	if !strings.HasPrefix(zone, region+"-") {
		return "", false
	}
	return strings.TrimRight(zone, "abcdefghijklmnopqrstuvwxyz"), true
}

// Spot returns the price of a type in a zone, false if it is not known.
func (l *List) Spot(p Pool) (cloud.NanoUSD, bool) {
	if !l.quoted {
		if _, local := localGroup(l.region, p.Zone); local {
			return 0, false // most have no spot machines
		}
		return l.OnDemand(p.Type)
	}
	price, ok := l.spot[p]
	return price, ok
}

// WithOnDemand returns l with the given on-demand prices added or replaced.
func (l *List) WithOnDemand(prices map[string]cloud.NanoUSD) *List {
	next := *l
	next.onDemand = merged(l.onDemand, prices)
	return &next
}

// withLocal returns l with the given on-demand prices of local zones, by group, added or replaced.
func (l *List) withLocal(prices map[Pool]cloud.NanoUSD) *List {
	next := *l
	next.local = merged(l.local, prices)
	return &next
}

// WithSpot returns l with the given spot prices added or replaced. From now on a pool without a quote has no price.
func (l *List) WithSpot(prices map[Pool]cloud.NanoUSD) *List {
	next := *l
	next.spot, next.quoted = merged(l.spot, prices), true
	return &next
}

// Equal reports whether two lists quote the same prices.
func (l *List) Equal(other *List) bool {
	return l.quoted == other.quoted && maps.Equal(l.onDemand, other.onDemand) && maps.Equal(l.local, other.local) &&
		maps.Equal(l.spot, other.spot)
}

// merged returns a map with the entries of both; those of add win.
func merged[K comparable](old, add map[K]cloud.NanoUSD) map[K]cloud.NanoUSD {
	out := make(map[K]cloud.NanoUSD, max(len(old), len(add)))
	maps.Copy(out, old)
	maps.Copy(out, add)
	return out
}

// ModelSpot returns an invented spot price, in dollars, for catalogues without an account and for tests: a share of the on-demand price
// between 25 % and 75 %, derived from the names of family and pool so that it is always the same. arm64 costs 5 points less.
func ModelSpot(p Pool, onDemand float64, arm64 bool) float64 {
	family, _, _ := strings.Cut(p.Type, ".")
	ratio := 0.25 + 0.30*unit(family) + 0.15*unit(p.Type+"/"+p.Zone)
	if !arm64 {
		ratio += 0.05
	}
	return math.Round(onDemand*ratio*1e6) / 1e6
}

// unit maps a text to a number in [0, 1), evenly.
func unit(s string) float64 {
	h := fnv.New64a()
	h.Write([]byte(s))
	x := h.Sum64()
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	x ^= x >> 31
	return float64(x>>11) / (1 << 53)
}
