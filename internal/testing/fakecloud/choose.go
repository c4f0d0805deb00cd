package fakecloud

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/core/need"
)

// maxSent is how many instance types one launch sends to the cloud.
const maxSent = 60

// An offeringKey is one pool of stock.
type offeringKey struct{ Type, Zone, CapacityType string }

func keyOf(t *cloud.InstanceType, o *cloud.Offering) offeringKey {
	return offeringKey{t.Name, o.Zone(), o.CapacityType()}
}

// A choice is one way to serve a claim.
type choice struct {
	kind  *cloud.InstanceType
	offer *cloud.Offering
}

// A view is a catalogue as it looks while some offerings are known to be dry.
type view struct {
	dry     map[offeringKey]bool
	catalog *cloud.Catalog
}

// visible returns the catalogue without what is known to be dry, and the same pointer while nothing changed.
func (c *Cloud) visible(base *cloud.Catalog, now time.Time) *cloud.Catalog {
	dry := map[offeringKey]bool{}
	for k, until := range c.seenDry {
		if now.Before(until) {
			dry[k] = true
		}
	}
	if len(dry) == 0 {
		clear(c.catalogs)
		return base
	}
	if v := c.catalogs[base]; v != nil && maps.Equal(v.dry, dry) {
		return v.catalog
	}
	v := &view{dry: dry, catalog: without(base, dry)}
	c.catalogs[base] = v
	return v.catalog
}

func without(base *cloud.Catalog, dry map[offeringKey]bool) *cloud.Catalog {
	out := &cloud.Catalog{Types: slices.Clone(base.Types)}
	for i, t := range out.Types {
		hit := func(o cloud.Offering) bool { return dry[keyOf(t, &o)] }
		if !slices.ContainsFunc(t.Offerings, hit) {
			continue
		}
		kind := *t
		kind.Offerings = slices.Clone(t.Offerings)
		for j := range kind.Offerings {
			if hit(kind.Offerings[j]) {
				kind.Offerings[j].Available = false
			}
		}
		out.Types[i] = &kind
	}
	return out
}

// buy takes the cheapest machine that serves the claim and is in stock. What it finds dry on the way it remembers.
func (c *Cloud) buy(claim *v1.NodeClaim, catalog *cloud.Catalog, now time.Time) (choice, error) {
	sent := send(claim, catalog)
	for _, choice := range sent {
		key := keyOf(choice.kind, choice.offer)
		if c.reservationLeft(choice) && c.take(key) {
			return choice, nil
		}
		c.seenDry[key] = now.Add(dryFor)
	}
	return choice{}, &cloud.NoCapacityError{Err: fmt.Errorf("none of %d offerings for claim %s is in stock", len(sent), claim.Name)}
}

// take removes one machine from every stock that covers the offering, if all of them have one.
func (c *Cloud) take(k offeringKey) bool {
	var from []Where
	for w, n := range c.stock {
		if w.covers(k) {
			if n == 0 {
				return false
			}
			from = append(from, w)
		}
	}
	for _, w := range from {
		c.stock[w]--
	}
	return true
}

// reservationLeft counts the machines that already use the reservation of an offering.
func (c *Cloud) reservationLeft(choice choice) bool {
	if choice.offer.CapacityType() != v1.CapacityTypeReserved {
		return true
	}
	used := 0
	for _, m := range c.machines {
		if !m.Gone && m.InstanceType == choice.kind.Name && has(m.Labels, choice.offer.Labels) {
			used++
		}
	}
	return used < choice.offer.Reserved
}

func has(labels, want map[string]string) bool {
	for k, v := range want {
		if labels[k] != v {
			return false
		}
	}
	return true
}

// send returns what a launch would send to the cloud for a claim, in the order in which it would be served.
func send(claim *v1.NodeClaim, catalog *cloud.Catalog) []choice {
	needs := need.Of(claim.Spec.Requirements)
	var all []choice
	for _, t := range catalog.Types {
		for i := range t.Offerings {
			if o := &t.Offerings[i]; o.Available && serves(needs, claim.Spec.Resources.Requests, t, o) {
				all = append(all, choice{t, o})
			}
		}
	}
	slices.SortStableFunc(all, cheaper)
	return limitTypes(oneCapacityType(ordinary(all)))
}

func cheaper(a, b choice) int {
	return cmp.Or(cmp.Compare(a.offer.Price, b.offer.Price), cmp.Compare(a.kind.Name, b.kind.Name),
		cmp.Compare(a.offer.Zone(), b.offer.Zone()))
}

// ordinary drops exotic types if something ordinary would do.
func ordinary(all []choice) []choice {
	plain := slices.DeleteFunc(slices.Clone(all), func(c choice) bool { return c.kind.Exotic })
	if len(plain) > 0 {
		return plain
	}
	return all
}

// oneCapacityType keeps reserved, else spot that is no dearer than the cheapest on-demand, else on-demand.
func oneCapacityType(all []choice) []choice {
	of := func(capacityType string) []choice {
		return slices.DeleteFunc(slices.Clone(all), func(c choice) bool { return c.offer.CapacityType() != capacityType })
	}
	if reserved := of(v1.CapacityTypeReserved); len(reserved) > 0 {
		return reserved
	}
	spot, onDemand := of(v1.CapacityTypeSpot), of(v1.CapacityTypeOnDemand)
	if len(onDemand) == 0 {
		return spot
	}
	spot = slices.DeleteFunc(spot, func(c choice) bool { return c.offer.Price > onDemand[0].offer.Price })
	if len(spot) > 0 {
		return spot
	}
	return onDemand
}

func limitTypes(all []choice) []choice {
	types := map[string]bool{}
	return slices.DeleteFunc(all, func(c choice) bool {
		if !types[c.kind.Name] && len(types) == maxSent {
			return true
		}
		types[c.kind.Name] = true
		return false
	})
}

// serves reports whether a machine bought this way is what a claim asks for.
func serves(needs need.Needs, requests corev1.ResourceList, t *cloud.InstanceType, o *cloud.Offering) bool {
	for key, set := range needs {
		// what the cloud does not decide is no business of it
		if values, decided := valuesOf(t, o, key); decided && !set.Takes(values...) {
			return false
		}
	}
	have := t.Allocatable(o)
	for name, want := range requests {
		if got := have[name]; got.Cmp(want) < 0 {
			return false
		}
	}
	return true
}

// valuesOf returns the values that a label of such a machine may have, and nil, false if the cloud does not decide it.
func valuesOf(t *cloud.InstanceType, o *cloud.Offering, key string) (values []string, decided bool) {
	if key == corev1.LabelInstanceTypeStable {
		return []string{t.Name}, true
	}
	if v, ok := o.Labels[key]; ok {
		return []string{v}, true
	}
	values, decided = t.Labels[key]
	return values, decided
}

// machine is what is started for a claim.
func (c choice) machine(claim *v1.NodeClaim, token string, now time.Time) *machine {
	m := &machine{UID: claim.UID, Token: token}
	m.ProviderID = providerID(c.offer.Zone(), token)
	m.ClaimName, m.PoolName = claim.Name, claim.Labels[v1.NodePoolLabelKey]
	m.InstanceType, m.Zone, m.CapacityType = c.kind.Name, c.offer.Zone(), c.offer.CapacityType()
	m.Labels = c.labels(claim)
	m.Capacity, m.Allocatable = c.kind.CapacityAs(c.offer), c.kind.Allocatable(c.offer)
	m.Created = now
	return m
}

// labels are all that type and offering decide; of several possible values the first that the claim admits.
func (c choice) labels(claim *v1.NodeClaim) map[string]string {
	out, asked := map[string]string{corev1.LabelInstanceTypeStable: c.kind.Name}, need.Of(claim.Spec.Requirements)
	for key, values := range c.kind.Labels {
		sorted := slices.Sorted(slices.Values(values))
		if _, offered := c.offer.Labels[key]; offered || c.onlyByOffering(key) {
			continue
		}
		if i := slices.IndexFunc(sorted, func(v string) bool { return asked.AllowValue(key, v) }); i >= 0 {
			out[key] = sorted[i]
		}
	}
	maps.Copy(out, c.offer.Labels)
	return out
}

// onlyByOffering reports whether a label is decided by other offerings of the type decide: this one then lacks it.
func (c choice) onlyByOffering(key string) bool {
	return slices.ContainsFunc(c.kind.Offerings, func(o cloud.Offering) bool {
		_, ok := o.Labels[key]
		return ok
	})
}
