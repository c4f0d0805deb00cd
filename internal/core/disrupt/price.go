package disrupt

import (
	"cmp"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/need"
	shapes "karpenter.sh/karpenter/internal/core/shape"
	"karpenter.sh/karpenter/internal/kit/identity"
)

// capacityTypes lists the capacity types in the order in which a launch prefers them.
var capacityTypes = []string{v1.CapacityTypeReserved, v1.CapacityTypeSpot, v1.CapacityTypeOnDemand}

// minSpotTypes is how many cheaper types a single spot node must have to choose from before it is replaced by another spot
// node. Without the choice, chains of moves would end on the scarcest type.
const minSpotTypes = 15

// An option is one instance type that an opening may become, bought in one way.
type option struct {
	it     *cloud.InstanceType
	prices []cloud.NanoUSD // of the offerings that launch may pick, with their risks
	risks  []cloud.NanoUSD // of the same offerings: the part of the price that is on no bill, for interruptions
	worst  cloud.NanoUSD   // the highest of prices
}

func (o option) floor() cloud.NanoUSD { return slices.Min(o.prices) }

// paid returns the price on the bill of the dearest offering, without risk.
func (o option) paid() (most cloud.NanoUSD) {
	for i, p := range o.prices {
		most = max(most, p-o.risks[i])
	}
	return most
}

// A priceIndex is a catalogue in a form in which prices are found fast. A pass prices some hundred steps, with thousands of offerings for
// each. Offerings have few distinct sets of labels (kinds), so the requirements of a claim are compared with each kind and not with each
// offering.
type priceIndex struct {
	types map[string]*typeOffers
	kinds []kind
}

// A kind is a set of labels that many offerings have.
type kind struct {
	capacityType, zone string
	labels             map[string]string
}

// typeOffers are the available offerings of one instance type.
type typeOffers struct {
	it     *cloud.InstanceType
	offers []offer
}

type offer struct {
	kind  int           // index in priceIndex.kinds
	price cloud.NanoUSD // with the risk
	risk  cloud.NanoUSD // the part of the price that is on no bill, for interruptions
	rests bool          // cloud.Offering.Rests: nothing is moved to it
}

// newPriceIndex indexes the available offerings of a catalogue. interruption is what an interruption costs; at 0 there is no risk.
func newPriceIndex(catalog *cloud.Catalog, interruption cloud.NanoUSD) *priceIndex {
	s := &priceIndex{types: make(map[string]*typeOffers, len(catalog.Types))}
	known := map[string]int{}
	for _, it := range catalog.Types {
		g := &typeOffers{it: it}
		for i := range it.Offerings {
			if o := &it.Offerings[i]; o.Available {
				risk := o.Risk(interruption)
				g.offers = append(g.offers, offer{s.kindOf(known, o), o.Price + risk, risk, interruption > 0 && o.Rests})
			}
		}
		s.types[it.Name] = g
	}
	return s
}

// kindOf returns the index of an offering's kind, and adds the kind if it is new. known maps labels to indexes.
func (s *priceIndex) kindOf(known map[string]int, o *cloud.Offering) int {
	key := identity.Map(nil, o.Labels)
	i, ok := known[string(key)]
	if !ok {
		i = len(s.kinds)
		known[string(key)] = i
		s.kinds = append(s.kinds, kind{o.CapacityType(), o.Zone(), o.Labels})
	}
	return i
}

// accepted returns, for each kind, whether the claim of an opening may become it.
func (s *priceIndex) accepted(o *engine.Opening) []bool {
	out := make([]bool, len(s.kinds))
	needs := need.Of(o.Claim.Spec.Requirements)
	for i, k := range s.kinds {
		out[i] = needs.AllowLabels(k.labels)
	}
	return out
}

// options lists the types of an opening that can be bought as capacityType, sorted by their worst price. accepted is from the method of
// that name. zone narrows them to one zone; "" does not.
func (s *priceIndex) options(o *engine.Opening, accepted []bool, capacityType, zone string) []option {
	wanted := make([]bool, len(s.kinds))
	for i, k := range s.kinds {
		wanted[i] = accepted[i] && k.capacityType == capacityType && (zone == "" || k.zone == zone)
	}
	if !slices.Contains(wanted, true) {
		return nil
	}
	out := make([]option, 0, len(o.Types))
	for _, name := range o.Types {
		g := s.types[name]
		if g == nil {
			continue
		}
		opt, rests := option{it: g.it}, false
		for _, offer := range g.offers {
			if wanted[offer.kind] {
				opt.prices, opt.risks = append(opt.prices, offer.price), append(opt.risks, offer.risk)
				opt.worst, rests = max(opt.worst, offer.price), rests || offer.rests
			}
		}
		if len(opt.prices) > 0 && !rests { // one offering that rests excludes the type: a claim cannot leave out one zone of a type
			out = append(out, opt)
		}
	}
	slices.SortFunc(out, func(a, b option) int {
		return cmp.Or(cmp.Compare(a.worst, b.worst), cmp.Compare(a.it.Name, b.it.Name))
	})
	return out
}

// A way is how one opening of a step is bought: as which capacity type, perhaps in one zone, and which types that leaves.
type way struct {
	capacityType, zone string
	options            []option
}

// base returns the lowest worst price of the options, the most there is if there are none.
func (w way) base() cloud.NanoUSD {
	if len(w.options) == 0 {
		return math.MaxInt64
	}
	return w.options[0].worst
}

// cheapestWay chooses how to buy an opening, without the capacity type skip. It takes the cheapest capacity type with all zones if that
// costs less than limit. Otherwise it also tries each zone by itself. A launch that is bound to one zone fails if that zone is out of
// stock, so this is done only if needed.
func (s *priceIndex) cheapestWay(o *engine.Opening, skip string, limit cloud.NanoUSD) way {
	best, accepted := way{}, s.accepted(o)
	for _, ct := range capacityTypes {
		if ct == skip {
			continue
		}
		if w := (way{capacityType: ct, options: s.options(o, accepted, ct, "")}); w.base() < best.base() {
			best = w
		}
	}
	if best.base() < limit {
		return best
	}
	for _, ct := range capacityTypes {
		if ct == skip {
			continue
		}
		for _, zone := range o.Zones {
			if w := (way{capacityType: ct, zone: zone, options: s.options(o, accepted, ct, zone)}); w.base() < best.base() {
				best = w
			}
		}
	}
	return best
}

// within keeps the options whose worst price is at most limit.
func (w way) within(limit cloud.NanoUSD) way {
	n, _ := slices.BinarySearchFunc(w.options, limit+1, func(o option, p cloud.NanoUSD) int { return cmp.Compare(o.worst, p) })
	w.options = w.options[:n]
	return w
}

// without drops the options that are refused.
func (w way) without(refuse func(option) bool) way {
	w.options = slices.DeleteFunc(slices.Clone(w.options), refuse)
	return w
}

// sent returns the price that launch is expected to pay for a claim bought in this way, the risk of it, and the highest price that launch
// may pay. It repeats how a launch chooses the types that it sends: the cheapest band.Types of them, and of spot only those in the band.
//
// For spot the expected price is the mean of all offerings that are sent, because EC2 picks from the list by depth as much as by price.
// Otherwise it is the cheapest.
func (s *priceIndex) sent(w way, claim *v1.NodeClaim, band shapes.Band) (price, risk, worst cloud.NanoUSD) {
	byFloor := slices.Clone(w.options)
	slices.SortStableFunc(byFloor, func(a, b option) int {
		return cmp.Or(cmp.Compare(a.floor(), b.floor()), cmp.Compare(a.it.Name, b.it.Name))
	})
	// For claims with minValues the band does not leave out dearer types, because too few values could be left.
	types, edge := band.Types, shapes.Any
	switch {
	case w.capacityType != v1.CapacityTypeSpot:
		for _, o := range byFloor[:min(types, len(byFloor))] {
			worst = max(worst, o.paid())
		}
		at := slices.Index(byFloor[0].prices, byFloor[0].floor())
		return byFloor[0].floor() - byFloor[0].risks[at], byFloor[0].risks[at], worst
	case !slices.ContainsFunc(claim.Spec.Requirements, func(r v1.NodeSelectorRequirementWithMinValues) bool { return r.MinValues != nil }):
		next := 0
		types, edge = band.Cut(func() (int64, bool) {
			if next++; next > len(byFloor) {
				return 0, false
			}
			return int64(byFloor[next-1].floor()), true
		}, shapes.Any, s.reach(byFloor))
	}
	sum, risks, n := cloud.NanoUSD(0), cloud.NanoUSD(0), cloud.NanoUSD(0)
	for _, o := range byFloor[:min(types, len(byFloor))] {
		for i, p := range o.prices {
			if int64(p) <= edge {
				sum, risks, n, worst = sum+p-o.risks[i], risks+o.risks[i], n+1, max(worst, p-o.risks[i])
			}
		}
	}
	return (sum + n/2) / n, (risks + n/2) / n, worst // rounded to the nearest nano-dollar
}

// reach returns the lowest on-demand price of some types, shapes.Any if none has one. A spot band does not move beyond it.
func (s *priceIndex) reach(of []option) int64 {
	least := shapes.Any
	for _, o := range of {
		for _, offer := range s.types[o.it.Name].offers {
			if s.kinds[offer.kind].capacityType == v1.CapacityTypeOnDemand {
				least = min(least, int64(offer.price))
			}
		}
	}
	return least
}

// minValues returns how many of the options, from the cheapest on, are needed to meet every minValues of the claim: the options may be
// cut to as many. ok is false if all of them together do not meet it.
func minValues(claim *v1.NodeClaim, options []option) (need int, ok bool) {
	for i := range claim.Spec.Requirements {
		r := &claim.Spec.Requirements[i]
		if r.MinValues == nil {
			continue
		}
		seen := map[string]bool{}
		met := false
		for j, o := range options {
			for _, value := range valuesOf(o.it, r.Key) {
				seen[value] = true
			}
			if len(seen) >= *r.MinValues {
				need, met = max(need, j+1), true
				break
			}
		}
		if !met {
			return len(options), false
		}
	}
	return need, true
}

// valuesOf returns the values that nodes of a type may have for a label.
func valuesOf(it *cloud.InstanceType, key string) []string {
	if key == corev1.LabelInstanceTypeStable {
		return []string{it.Name}
	}
	return it.Labels[key]
}

// narrow returns a copy of the opening whose claim allows only what the way w buys, at the expected price. A launch may pick everything
// that the claim allows, so only requirements can keep it from buying something dearer.
func narrow(o engine.Opening, w way, price cloud.NanoUSD) engine.Opening {
	claim := o.Claim.DeepCopy()
	names := make([]string, len(w.options))
	for i, opt := range w.options {
		names[i] = opt.it.Name
	}
	require(claim, corev1.LabelInstanceTypeStable, names)
	require(claim, v1.CapacityTypeLabelKey, []string{w.capacityType})
	if w.zone != "" {
		require(claim, corev1.LabelTopologyZone, []string{w.zone})
		o.Zones = []string{w.zone}
	}
	o.Claim, o.Types, o.CapacityTypes = claim, names, []string{w.capacityType}
	o.Type, o.Price = names[0], price
	return o
}

// require replaces the claim's requirements on a key by In(values), and keeps minValues. values are sorted in a copy.
func require(claim *v1.NodeClaim, key string, values []string) {
	in := v1.NodeSelectorRequirementWithMinValues{Key: key, Operator: corev1.NodeSelectorOpIn,
		Values: slices.Sorted(slices.Values(values))}
	kept := claim.Spec.Requirements[:0]
	for _, r := range claim.Spec.Requirements {
		if r.Key != key {
			kept = append(kept, r)
		} else if r.MinValues != nil {
			in.MinValues = r.MinValues
		}
	}
	claim.Spec.Requirements = append(kept, in)
}
