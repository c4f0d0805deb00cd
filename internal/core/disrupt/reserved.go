package disrupt

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/core/engine"
)

// A node of a capacity reservation of which all machines are in use may have no replacement beside it: what its pods or its pool ask
// for is in the reservation only. Where the feature gate for the reason is on, such a node goes first, and its pods get the place that
// it leaves.

// reservationOf returns the capacity reservation of a claim's machine. It is "" if the machine is in none, or if the catalogue does not
// have the reservation as available or full, so that nothing could be launched into the machine's place.
func (s *survey) reservationOf(claim *v1.NodeClaim) string {
	if claim.Labels[v1.CapacityTypeLabelKey] != v1.CapacityTypeReserved {
		return ""
	}
	it := s.w.Pools[claim.Labels[v1.NodePoolLabelKey]].Catalog.Type(claim.Labels[corev1.LabelInstanceTypeStable])
	if it == nil {
		return ""
	}
	for i := range it.Offerings {
		if o := &it.Offerings[i]; o.Reservation != "" && (o.Available || o.Full) && gives(o, claim) {
			return o.Reservation
		}
	}
	return ""
}

// gives reports whether the claim has all labels of an offering, so that its machine may be of this offering.
func gives(o *cloud.Offering, claim *v1.NodeClaim) bool {
	for key, value := range o.Labels {
		if claim.Labels[key] != value {
			return false
		}
	}
	return true
}

// leaves reports whether a machine of a reservation is on its way out already. Only one at a time goes, because its pods need the place
// that it leaves.
func (s *survey) leaves(reservation string) bool {
	for n := range s.w.Snap.Nodes() {
		if n.Claim != nil && (n.Deleting() || n.MarkedForRemoval) && s.reservationOf(n.Claim) == reservation {
			return true
		}
	}
	return false
}

// withPlace returns copies of pools whose catalogues have room for one more machine in a reservation. The originals are not changed.
func withPlace(pools []engine.Pool, reservation string) []engine.Pool {
	of := func(o cloud.Offering) bool { return o.Reservation == reservation && (o.Available || o.Full) }
	out := slices.Clone(pools)
	for i := range out {
		types := slices.Clone(out[i].Catalog.Types)
		for j, it := range types {
			if !slices.ContainsFunc(it.Offerings, of) {
				continue
			}
			more := *it
			more.Offerings = slices.Clone(it.Offerings)
			for k := range more.Offerings {
				if o := &more.Offerings[k]; of(*o) {
					o.Reserved, o.Available, o.Full = o.Reserved+1, true, false
				}
			}
			types[j] = &more
		}
		out[i].Catalog = &cloud.Catalog{Types: types}
	}
	return out
}

// goesFirst returns the step that removes a node of a full reservation before its replacement is launched, nil if the gate for the
// reason is off, another machine of the reservation goes already, or the place that becomes free does not take the node's pods. q is
// the question as it stands after the steps that are taken.
func (s *search) goesFirst(of replacing, c *Candidate, taken []*Step, q engine.Question) *Step {
	if !s.survey.settings.terminatesFirst(of.reason) {
		return nil
	}
	id := s.survey.reservationOf(c.Node.Claim)
	if id == "" || s.survey.leaves(id) {
		return nil
	}
	sameReservation := func(r *Candidate) bool { return s.survey.reservationOf(r.Node.Claim) == id }
	if slices.ContainsFunc(taken, func(step *Step) bool { return slices.ContainsFunc(step.Remove, sameReservation) }) {
		return nil
	}
	q.Pools = withPlace(s.whatIf.opens(of.reason, []*Candidate{c}), id)
	answer := s.whatIf.insist(of.reason, []*Candidate{c}, q)
	if len(answer.parts) != 1 {
		return nil
	}
	step := of.step(&answer.parts[0])
	step.Open, step.First = nil, NoReservedCapacity
	return step
}
