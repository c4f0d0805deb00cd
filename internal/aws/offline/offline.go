// Package offline is EC2's catalogue without an account: every instance type with labels, capacity, offerings and prices,
// from the data that ships with Karpenter.
//
// It is what the CLI plans with, what benches measure and what the in-memory cloud of tests sells. It is exactly the
// catalogue that the AWS provider would make of the same facts. Catalogues are cached; they must not be changed.
package offline

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/aws/awsdata"
	"karpenter.sh/karpenter/internal/aws/hardware"
	"karpenter.sh/karpenter/internal/aws/offer"
	"karpenter.sh/karpenter/internal/aws/price"
	"karpenter.sh/karpenter/internal/aws/spotrisk"
)

// A Spot says where spot prices come from.
type Spot int

const (
	// SpotModel computes them with price.ModelSpot.
	SpotModel Spot = iota
	// SpotNone offers no spot machines.
	SpotNone
	// SpotTable takes them from Options.SpotPrices; pools without a price are not offered.
	SpotTable
)

// Options choose a catalogue. The zero value is us-east-1 with all zones, modelled spot prices and AL2023 nodes.
type Options struct {
	Region string
	// Zones are the zones with a subnet; nil for all of the region.
	Zones      []string
	Spot       Spot
	SpotPrices map[price.Pool]float64
	// Prices are the prices and zones of the region in place of those that ship with Karpenter; nil for those.
	Prices *price.Table
	// Class decides about kubelet, disks and image family; nil for AL2023 with defaults.
	Class *awsv1.EC2NodeClass
	// Settings of the controller that show in capacity. A zero VMMemoryOverheadPercent means the default.
	hardware.Settings
}

var cache struct {
	sync.Mutex
	catalogs map[string]*cloud.Catalog
}

// Catalog returns what can be bought. It fails for a region or zone that is not in the data, and for a node class
// whose kubelet configuration cannot be read.
func Catalog(o Options) (*cloud.Catalog, error) {
	o = o.withDefaults()
	if err := o.check(); err != nil {
		return nil, err
	}
	if o.Spot == SpotTable || o.Prices != nil {
		return build(o)
	}
	key, err := o.key()
	if err != nil {
		return nil, err
	}
	cache.Lock()
	defer cache.Unlock()
	if c, ok := cache.catalogs[key]; ok {
		return c, nil
	}
	c, err := build(o)
	if err != nil {
		return nil, err
	}
	if cache.catalogs == nil {
		cache.catalogs = map[string]*cloud.Catalog{}
	}
	cache.catalogs[key] = c
	return c, nil
}

// withDefaults returns the options with defaults filled in.
func (o Options) withDefaults() Options {
	if o.Region == "" {
		o.Region = "us-east-1"
	}
	if o.Prices != nil {
		o.Region = o.Prices.Region
	}
	if o.Zones == nil {
		o.Zones = o.allZones()
	}
	if o.VMMemoryOverheadPercent == 0 {
		o.VMMemoryOverheadPercent = hardware.DefaultVMMemoryOverheadPercent
	}
	return o
}

// allZones returns the zones of the region, sorted; nil for a region that is not in the data.
func (o Options) allZones() []string {
	if o.Prices != nil {
		return slices.Sorted(maps.Keys(o.Prices.Zones))
	}
	return awsdata.Zones(o.Region)
}

// offered returns the types that a zone offers, and the zone's id.
func (o Options) offered(zone string) (types []string, id string) {
	if o.Prices != nil {
		return o.Prices.Zones[zone].Types, o.Prices.Zones[zone].ID
	}
	return awsdata.Offered(o.Region, zone), awsdata.ZoneID(o.Region, zone)
}

// check returns an error for a region or zone that is not in the data.
func (o Options) check() error {
	known := o.allZones()
	if known == nil {
		return fmt.Errorf("no EC2 data for region %q; there is some for %s. karpenter prices fetch --region %[1]s -o FILE reads "+
			"it with your credentials; give it with --prices FILE", o.Region, strings.Join(awsdata.Regions(), ", "))
	}
	for _, z := range o.Zones {
		if !slices.Contains(known, z) {
			return fmt.Errorf("region %s has no zone %q; it has %s", o.Region, z, strings.Join(known, ", "))
		}
	}
	return nil
}

// key returns the key of a catalogue in the cache. Of a class it has only what changes the catalogue, so that classes that differ in tags
// or roles share one.
func (o Options) key() (string, error) {
	class, err := hardware.ClassOf(o.Class, o.Settings)
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(struct {
		Region string
		Zones  []string
		Spot   Spot
		Class  hardware.Class
		Wishes hardware.Wishes
	}{o.Region, o.Zones, o.Spot, *class, hardware.WishesOf(o.Class)})
	return string(text), err
}

// build makes a catalogue.
func build(o Options) (*cloud.Catalog, error) {
	class, err := hardware.ClassOf(o.Class, o.Settings)
	if err != nil {
		return nil, err
	}
	wishes := hardware.WishesOf(o.Class)
	m := market(o)
	out := &cloud.Catalog{}
	for _, t := range awsdata.Types() {
		if !hardware.Usable(t) || len(m.Offered[t.Name]) == 0 {
			continue
		}
		it := hardware.Describe(t, o.Region, class)
		m.Add(it, t, hardware.Compatible(t, class, wishes) == "")
		it.Offerings = slices.DeleteFunc(it.Offerings, func(of cloud.Offering) bool { return !of.Available })
		if len(it.Offerings) > 0 {
			out.Types = append(out.Types, it)
		}
	}
	return out, nil
}

// market returns the zones, prices and offered types of the options.
func market(o Options) *offer.Market {
	m := &offer.Market{Prices: o.prices(), Offered: map[string]map[string]bool{}, Risks: spotrisk.New(o.Region)}
	for _, z := range o.allZones() {
		if !slices.Contains(o.Zones, z) {
			continue
		}
		types, id := o.offered(z)
		m.Zones = append(m.Zones, offer.Zone{Name: z, ID: id, Subnet: true})
		for _, name := range types {
			if m.Offered[name] == nil {
				m.Offered[name] = map[string]bool{}
			}
			m.Offered[name][z] = true
		}
	}
	return m
}

// prices returns the price list of the options. A table of prices (Options.Prices) brings its own spot prices:
// nothing is modelled then, and a table without spot prices sells no spot machines.
func (o Options) prices() *price.List {
	switch {
	case o.Prices == nil:
		return Prices(o.Region, o.Spot, o.SpotPrices)
	case o.Spot == SpotModel && len(o.Prices.Spot) > 0:
		return o.Prices.List()
	}
	onDemand := *o.Prices
	onDemand.Spot = nil
	return onDemand.List().WithSpot(quotes(o.SpotPrices))
}

// quotes converts prices in dollars.
func quotes(dollars map[price.Pool]float64) map[price.Pool]cloud.NanoUSD {
	out := make(map[price.Pool]cloud.NanoUSD, len(dollars))
	for pool, d := range dollars {
		out[pool] = cloud.FromDollars(d)
	}
	return out
}

// Prices returns the price list of a region: on-demand prices that ship with Karpenter, and spot prices as chosen.
// table holds them for SpotTable.
func Prices(region string, spot Spot, table map[price.Pool]float64) *price.List {
	if spot == SpotModel {
		table = map[price.Pool]float64{}
		dollars := awsdata.Prices(region)
		arm64 := map[string]bool{}
		for _, t := range awsdata.Types() {
			arm64[t.Name] = hardware.Arch(t) == "arm64"
		}
		for _, zone := range awsdata.Zones(region) {
			for _, name := range awsdata.Offered(region, zone) {
				if d, ok := dollars[name]; ok {
					pool := price.Pool{Type: name, Zone: zone}
					table[pool] = price.ModelSpot(pool, d, arm64[name])
				}
			}
		}
	}
	return price.Static(region).WithSpot(quotes(table))
}
