// Package fleet launches, finds and stops machines.
//
// What a launch asks for is worked out by pure functions. Choose picks types and offerings for a claim (choose.go). An
// Order holds everything about a launch that does not depend on subnets, and Request makes the CreateFleet call of it
// (order.go). Equal orders that arrive together share one call (fleet.go). even.go divides machines among zones of equal
// price; failure.go reads EC2's reasons for machines that were not launched.
package fleet

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/core/need"
	"karpenter.sh/karpenter/internal/core/shape"
)

// A Choice is what a launch may buy: one capacity type, and for each instance type the offerings that will do.
type Choice struct {
	CapacityType string
	Candidates   []Candidate // cheapest first
}

// Offerings returns how many offerings the launch names.
func (c Choice) Offerings() (n int) {
	for _, one := range c.Candidates {
		n += len(one.Offerings)
	}
	return n
}

// A Candidate is one type with the offerings of it that will do, cheapest first.
type Candidate struct {
	Type      *cloud.InstanceType
	Offerings []*cloud.Offering
}

// ErrNothingFits says that no available offering of any type satisfies the claim.
var ErrNothingFits = errors.New("no instance type with an available offering satisfies the claim")

// Choose picks what to launch for a claim. The filters run in a fixed order, each on what the one before left. What it sends of spot is
// what the engine priced: both ask the band.
func Choose(types []*cloud.InstanceType, claim *v1.NodeClaim, band shape.Band) (Choice, error) {
	return choose(types, claim, band, false)
}

// ChooseWidely is Choose for a claim whose first choice was out of stock: as many types as a launch may name, whatever
// they cost. The claim's own list still says what is worth having.
func ChooseWidely(types []*cloud.InstanceType, claim *v1.NodeClaim, band shape.Band) (Choice, error) {
	return choose(types, claim, band, true)
}

// choose applies the filters of Choose in a fixed order, each to what the one before left. wide leaves out the band
// of spot prices.
func choose(types []*cloud.InstanceType, claim *v1.NodeClaim, band shape.Band, wide bool) (Choice, error) {
	needs := need.Of(claim.Spec.Requirements)
	list := compatible(types, needs, claim.Spec.Resources.Requests)
	if needs.HasMinValues() {
		return diverse(list, needs, claim.Annotations[v1.NodeClaimMinValuesRelaxedAnnotationKey] == "true", band.Types)
	}
	if needs.AllowValue(v1.CapacityTypeLabelKey, v1.CapacityTypeReserved) {
		list = ofOneBlock(reservedFirst(ofOneKind(list)))
	}
	list = worthwhileSpot(ordinary(list))
	choices := pins(list)
	if len(choices) == 0 {
		return Choice{}, ErrNothingFits
	}
	choice := choices[0]
	if choice.CapacityType == v1.CapacityTypeSpot && !wide {
		choice.Candidates = inBand(choice.Candidates, list, band)
	} else {
		choice.Candidates = truncate(choice.Candidates, band.Types, shape.Any)
	}
	return choice, nil
}

// diverse picks what to launch for a claim with minValues, as the engine does: the first capacity type that meets
// them alone, or the cheaper of spot and on-demand if these meet them only together. With lowered minValues the first
// capacity type is taken in any case.
func diverse(list []Candidate, needs need.Needs, lowered bool, types int) (Choice, error) {
	choices := pins(list)
	if len(choices) == 0 {
		return Choice{}, ErrNothingFits
	}
	missing := ""
	for _, choice := range choices {
		if choice.CapacityType == v1.CapacityTypeReserved {
			choice.Candidates = reservedFirst(choice.Candidates)
		}
		key, lacks := lacksMinValues(choice.Candidates, list, needs)
		if !lacks {
			choice.Candidates = typesSent(choice.Candidates, list, needs, types)
			return choice, nil
		}
		missing = cmp.Or(missing, key)
	}
	if choice, meets := together(choices, list, needs); meets {
		choice.Candidates = typesSent(choice.Candidates, list, needs, types)
		return choice, nil
	}
	if !lowered {
		return choices[0], fmt.Errorf("no capacity type has as many values of %s as minValues asks for", missing)
	}
	choices[0].Candidates = typesSent(choices[0].Candidates, list, needs, types)
	return choices[0], nil
}

// together returns the cheaper of spot and on-demand, and whether types of both together have as many values as
// minValues demand.
func together(choices []Choice, list []Candidate, needs need.Needs) (cheaper Choice, meets bool) {
	var both []Candidate
	for _, c := range choices {
		if c.CapacityType == v1.CapacityTypeReserved {
			continue
		}
		if both == nil || byFloor(c.Candidates)[0].Offerings[0].Price < byFloor(cheaper.Candidates)[0].Offerings[0].Price {
			cheaper = c
		}
		both = append(both, c.Candidates...)
	}
	_, lacks := lacksMinValues(both, list, needs)
	return cheaper, len(both) > 0 && !lacks
}

// compatible returns the types that satisfy the requirements and hold the requests, each with its available offerings
// that do, cheapest first.
func compatible(types []*cloud.InstanceType, needs need.Needs, requests corev1.ResourceList) []Candidate {
	var out []Candidate
	reservedOnly := asksForReservation(needs)
	for _, it := range types {
		// Most claims list the types: that spares the rest of the check for all others.
		if !needs.AllowValue(corev1.LabelInstanceTypeStable, it.Name) || !needs.Allow(it.Labels) || !holds(it, requests) {
			continue
		}
		var offerings []*cloud.Offering
		for i := range it.Offerings {
			o := &it.Offerings[i]
			if o.Available && (!reservedOnly || o.CapacityType() == v1.CapacityTypeReserved) && needs.AllowLabels(o.Labels) {
				offerings = append(offerings, o)
			}
		}
		if len(offerings) == 0 {
			continue
		}
		slices.SortStableFunc(offerings, func(a, b *cloud.Offering) int {
			return cmp.Or(cmp.Compare(a.Price, b.Price), strings.Compare(a.Zone(), b.Zone()),
				strings.Compare(a.CapacityType(), b.CapacityType()))
		})
		out = append(out, Candidate{it, offerings})
	}
	return out
}

// Offered yields what is available for a claim.
func Offered(types []*cloud.InstanceType, claim *v1.NodeClaim) iter.Seq2[*cloud.InstanceType, *cloud.Offering] {
	return func(yield func(*cloud.InstanceType, *cloud.Offering) bool) {
		for _, c := range compatible(types, need.Of(claim.Spec.Requirements), claim.Spec.Resources.Requests) {
			for _, o := range c.Offerings {
				if !yield(c.Type, o) {
					return
				}
			}
		}
	}
}

// Values returns the values of a label that the available offerings for a claim have, the value of the cheapest
// offering first.
func Values(types []*cloud.InstanceType, claim *v1.NodeClaim, key string) []string {
	list := compatible(types, need.Of(claim.Spec.Requirements), claim.Spec.Resources.Requests)
	lowest := map[string]cloud.NanoUSD{}
	for _, c := range list {
		for _, o := range c.Offerings {
			value := o.Labels[key]
			if price, ok := lowest[value]; value != "" && (!ok || o.Price < price) {
				lowest[value] = o.Price
			}
		}
	}
	return slices.SortedFunc(maps.Keys(lowest), func(a, b string) int {
		return cmp.Or(cmp.Compare(lowest[a], lowest[b]), strings.Compare(a, b))
	})
}

// asksForReservation reports whether a claim allows offerings of reservations only.
func asksForReservation(needs need.Needs) bool {
	for _, key := range []string{awsv1.LabelCapacityReservationID, awsv1.LabelCapacityReservationType,
		awsv1.LabelCapacityReservationInterruptible} {
		if !needs.Allow(map[string][]string{key: nil}) {
			return true
		}
	}
	return false
}

// holds reports whether a type has room for the requests.
func holds(it *cloud.InstanceType, requests corev1.ResourceList) bool {
	for name, want := range requests {
		if name == awsv1.ResourceNitroSandbox {
			continue // the machine's launch decides it, not its size
		}
		if room := it.Room(name); room.Cmp(want) < 0 {
			return false
		}
	}
	return true
}

// A Kind is a kind of capacity reservation. Each kind needs a call of its own. "" is the ordinary kind.
type Kind string

// The kinds of reservations beside the ordinary one.
const (
	Block         Kind = "capacity-block"
	Interruptible Kind = "interruptible"
)

// kindOf returns the kind of the reservation that an offering is from.
func kindOf(o *cloud.Offering) Kind {
	switch {
	case o.Labels[awsv1.LabelCapacityReservationType] == string(awsv1.CapacityReservationTypeCapacityBlock):
		return Block
	case o.Labels[awsv1.LabelCapacityReservationInterruptible] == "true":
		return Interruptible
	}
	return ""
}

// Kind returns the kind of the reservations that a choice is from; all are of one kind.
func (c *Choice) Kind() Kind {
	if c.CapacityType != v1.CapacityTypeReserved {
		return ""
	}
	return kindOf(c.Candidates[0].Offerings[0])
}

// ofOneKind keeps of the reserved offerings only those of the cheapest one's kind; at equal prices ordinary ones go
// before blocks, and these before interruptible ones.
func ofOneKind(list []Candidate) []Candidate {
	var cheapest *cloud.Offering
	order := []Kind{"", Block, Interruptible}
	for _, c := range list {
		for _, o := range c.Offerings {
			if o.CapacityType() == v1.CapacityTypeReserved && (cheapest == nil || cmp.Or(cmp.Compare(o.Price, cheapest.Price),
				cmp.Compare(slices.Index(order, kindOf(o)), slices.Index(order, kindOf(cheapest)))) < 0) {
				cheapest = o
			}
		}
	}
	if cheapest == nil {
		return list
	}
	return keepOfferings(list, func(o *cloud.Offering) bool {
		return o.CapacityType() != v1.CapacityTypeReserved || kindOf(o) == kindOf(cheapest)
	})
}

// ofOneBlock keeps the cheapest offering only, if capacity blocks are what is left: EC2 takes one block in a call.
func ofOneBlock(list []Candidate) []Candidate {
	var best Candidate
	for _, c := range list {
		for _, o := range c.Offerings {
			if kindOf(o) == Block && (best.Type == nil || o.Price < best.Offerings[0].Price) {
				best = Candidate{c.Type, []*cloud.Offering{o}}
			}
		}
	}
	if best.Type == nil {
		return list
	}
	return []Candidate{best}
}

// reservedFirst keeps only reservations, if any has room: for each type and zone the one with the most left.
func reservedFirst(list []Candidate) []Candidate {
	var out []Candidate
	for _, c := range list {
		best := map[string]*cloud.Offering{}
		for _, o := range c.Offerings {
			if o.CapacityType() != v1.CapacityTypeReserved {
				continue
			}
			if old, ok := best[o.Zone()]; !ok || o.Reserved > old.Reserved {
				best[o.Zone()] = o
			}
		}
		offerings := slices.DeleteFunc(slices.Clone(c.Offerings), func(o *cloud.Offering) bool { return best[o.Zone()] != o })
		if len(offerings) > 0 {
			out = append(out, Candidate{c.Type, offerings})
		}
	}
	if len(out) == 0 {
		return list
	}
	return out
}

// ordinary drops bare metal and types with accelerators, unless there are no others.
func ordinary(list []Candidate) []Candidate {
	plain := slices.DeleteFunc(slices.Clone(list), func(c Candidate) bool { return c.Type.Exotic })
	if len(plain) == 0 {
		return list
	}
	return plain
}

// worthwhileSpot drops spot offerings that are dearer than the cheapest on-demand one, where both may be bought.
func worthwhileSpot(list []Candidate) []Candidate {
	cheapest := cheapestOnDemand(list, allowed)
	return keepOfferings(list, func(o *cloud.Offering) bool {
		return o.CapacityType() != v1.CapacityTypeSpot || int64(o.Price) <= cheapest
	})
}

// pins returns what a list can be bought as, in order of preference: reserved, spot, on-demand.
func pins(list []Candidate) []Choice {
	var out []Choice
	for _, ct := range []string{v1.CapacityTypeReserved, v1.CapacityTypeSpot, v1.CapacityTypeOnDemand} {
		if left := keepOfferings(list, func(o *cloud.Offering) bool { return o.CapacityType() == ct }); len(left) > 0 {
			out = append(out, Choice{CapacityType: ct, Candidates: left})
		}
	}
	return out
}

// keepOfferings returns the candidates with those offerings for which keep is true, without candidates that have none
// left.
func keepOfferings(list []Candidate, keep func(*cloud.Offering) bool) []Candidate {
	var out []Candidate
	for _, c := range list {
		var offerings []*cloud.Offering
		for _, o := range c.Offerings {
			if keep(o) {
				offerings = append(offerings, o)
			}
		}
		if len(offerings) > 0 {
			out = append(out, Candidate{c.Type, offerings})
		}
	}
	return out
}

// byFloor returns a list sorted by the price of each candidate's cheapest offering.
func byFloor(list []Candidate) []Candidate {
	return slices.SortedStableFunc(slices.Values(list), func(a, b Candidate) int {
		return cmp.Or(cmp.Compare(a.Offerings[0].Price, b.Offerings[0].Price), strings.Compare(a.Type.Name, b.Type.Name))
	})
}

// inBand returns the part of the spot candidates that the launch names: package shape cuts them by price. list are
// all candidates of the claim.
func inBand(spot, list []Candidate, band shape.Band) []Candidate {
	sorted := byFloor(spot)
	next := 0
	types, edge := band.Cut(func() (int64, bool) {
		if next == len(sorted) {
			return 0, false
		}
		next++
		return int64(sorted[next-1].Offerings[0].Price), true
	}, cheapestOnDemand(list, allowed), cheapestOnDemand(list, everywhere))
	return truncate(spot, types, edge)
}

// allowed returns the offerings of a candidate that its claim allows.
func allowed(c Candidate) []*cloud.Offering { return c.Offerings }

// everywhere returns all offerings of a candidate that are in stock, whatever its claim allows.
func everywhere(c Candidate) []*cloud.Offering {
	var out []*cloud.Offering
	for i := range c.Type.Offerings {
		if o := &c.Type.Offerings[i]; o.Available {
			out = append(out, o)
		}
	}
	return out
}

// cheapestOnDemand returns the lowest on-demand price among some offerings of the candidates.
func cheapestOnDemand(list []Candidate, of func(Candidate) []*cloud.Offering) int64 {
	lowest := shape.Any
	for _, c := range list {
		for _, o := range of(c) {
			if o.CapacityType() == v1.CapacityTypeOnDemand {
				lowest = min(lowest, int64(o.Price))
			}
		}
	}
	return lowest
}

// A sent is one offering that a launch sends of a candidate.
type sent struct {
	candidate int
	offering  *cloud.Offering
}

// byPrice returns all offerings of a list, cheapest first.
func byPrice(list []Candidate) []sent {
	var all []sent
	for i := range list {
		for _, o := range list[i].Offerings {
			all = append(all, sent{i, o})
		}
	}
	slices.SortStableFunc(all, func(a, b sent) int {
		return cmp.Or(cmp.Compare(a.offering.Price, b.offering.Price),
			strings.Compare(list[a.candidate].Type.Name, list[b.candidate].Type.Name),
			strings.Compare(a.offering.Zone(), b.offering.Zone()))
	})
	return all
}

// truncate returns what a launch names: offerings in the order of their prices, up to the price edge, of the cheapest
// types.
func truncate(list []Candidate, types int, edge int64) []Candidate {
	at := map[int]int{} // candidate → its place in out
	var out []Candidate
	n := 0
	for _, s := range byPrice(list) {
		if n == shape.MostOverrides || int64(s.offering.Price) > edge {
			break
		}
		place, known := at[s.candidate]
		if !known {
			if len(out) >= types {
				continue
			}
			place = len(out)
			at[s.candidate] = place
			out = append(out, Candidate{Type: list[s.candidate].Type})
		}
		out[place].Offerings = append(out[place].Offerings, s.offering)
		n++
	}
	return out
}

// eachSent cuts offerings down to as many as one launch can name, the cheapest, but leaves each type at least one:
// values of types that are not named would be missing.
func eachSent(list []Candidate) []Candidate {
	out := make([]Candidate, len(list))
	n, left := 0, len(list)
	for _, s := range byPrice(list) {
		c := &out[s.candidate]
		switch {
		case c.Type == nil:
			c.Type = list[s.candidate].Type
			left--
		case n+left >= shape.MostOverrides:
			continue
		}
		c.Offerings = append(c.Offerings, s.offering)
		n++
	}
	return out
}

// typesSent returns the types that a launch as one capacity type names: for each of minValues the cheapest types that
// bring its values, then the cheapest others up to limit. The cheapest types alone may all be of one size; such a
// claim would be planned and refused for ever.
func typesSent(list, listed []Candidate, needs need.Needs, limit int) []Candidate {
	list = byFloor(list)
	must := map[*cloud.InstanceType]bool{}
	for key := range needs {
		if decided(listed, key) {
			continue
		}
		values := map[string]bool{}
		for _, c := range list {
			if len(values) >= needs.MinValues(key) {
				break
			}
			before := len(values)
			for _, value := range c.Type.Labels[key] {
				values[value] = true
			}
			if len(values) > before {
				must[c.Type] = true
			}
		}
	}
	others := limit - len(must)
	return eachSent(slices.DeleteFunc(list, func(c Candidate) bool {
		if must[c.Type] {
			return false
		}
		others--
		return others < 0
	}))
}

// decided reports whether offerings decide a label. A claim lists all values of such a label, however it is bought.
func decided(list []Candidate, key string) bool {
	return slices.ContainsFunc(list, func(c Candidate) bool {
		return slices.ContainsFunc(c.Offerings, func(o *cloud.Offering) bool { _, ok := o.Labels[key]; return ok })
	})
}

// lacksMinValues returns a key of which the types of list have fewer values than the claim demands. For a label that
// offerings decide, all of listed counts.
func lacksMinValues(list, listed []Candidate, needs need.Needs) (string, bool) {
	for _, key := range slices.Sorted(maps.Keys(needs)) {
		least := needs.MinValues(key)
		if least == 0 {
			continue
		}
		among := list
		if decided(listed, key) {
			among = listed
		}
		values := map[string]bool{}
		for _, c := range among {
			for _, value := range c.Type.Labels[key] {
				values[value] = true
			}
		}
		if len(values) < least {
			return key, true
		}
	}
	return "", false
}
