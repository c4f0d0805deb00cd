package awsmodel

import (
	"maps"
	"slices"
	"strings"

	"karpenter.sh/karpenter/internal/aws/awsdata"
)

// localFamilies are what local zones have: few families, none of them of Graviton.
var localFamilies = []string{"c5", "c5d", "g4dn", "m5", "m5d", "r5", "r5d", "t3"}

// localSurcharge is what machines cost more there.
const localSurcharge = 1.2

// addLocal adds a local zone.
func (c *catalogue) addLocal(zone string) {
	c.offered[zone] = map[string]bool{}
	for _, z := range c.zones {
		for t := range c.offered[z] {
			if family, _, _ := strings.Cut(t, "."); slices.Contains(localFamilies, family) {
				c.offered[zone][t] = true
			}
		}
	}
	c.zones, c.local = append(c.zones, zone), append(c.local, zone)
}

// zoneID returns the id of a zone.
func (c *catalogue) zoneID(zone string) string {
	if !slices.Contains(c.local, zone) {
		return awsdata.ZoneID(c.region, zone)
	}
	first, _, _ := strings.Cut(awsdata.ZoneID(c.region, c.zones[0]), "-")
	place := strings.ReplaceAll(strings.TrimPrefix(zone, c.region+"-"), "-", "") // bos1a
	return first + "-" + place[:len(place)-1] + "-az" + string('1'+place[len(place)-1]-'a')
}

// groupOf returns the group that a zone belongs to: the region, but for local zones.
func (c *catalogue) groupOf(zone string) string {
	if slices.Contains(c.local, zone) {
		return zone[:len(zone)-1]
	}
	return c.region
}

// onDemand is what a type costs in a zone.
func (c *catalogue) onDemand(p pool) float64 {
	if slices.Contains(c.local, p.zone) {
		return c.prices[p.instanceType] * localSurcharge
	}
	return c.prices[p.instanceType]
}

// localPrices are the lines of the price list about local zones.
func (c *catalogue) localPrices() []product {
	var out []product
	for _, zone := range c.local {
		for _, t := range slices.Sorted(maps.Keys(c.offered[zone])) {
			p := c.product(t, "Shared", "Compute Instance", c.onDemand(pool{instanceType: t, zone: zone}))
			p.Attributes["regionCode"], p.fields["regioncode"] = c.groupOf(zone), c.groupOf(zone)
			p.Attributes["locationType"], p.fields["locationtype"] = "AWS Local Zone", "AWS Local Zone"
			p.SKU = strings.ToUpper(strings.ReplaceAll(zone, "-", "")) + p.SKU
			out = append(out, p)
		}
	}
	return out
}
