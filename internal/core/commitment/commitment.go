// Package commitment decides which CommitmentDiscounts plans count on, and lists the on-demand machines that use them.
//
// A commitment counts (Certain) if it is valid and active, names a share for this cluster, and ends in a week or later. Launches use only
// these. Commitments that end sooner (Ending) are a case of their own: a voluntary step has to save money both with and without them. So no
// pod moves for a commitment that ends soon, and no pod is moved off its machines before it ends.
package commitment

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/tariff"
)

const (
	// horizon is the time before its end in which a commitment no longer attracts machines.
	horizon = 7 * 24 * time.Hour
	// mostCounted is the most commitments that plans count on: each is a row of the planner's problem. The most valuable ones count.
	mostCounted = 16
	// fresh is how long an imported commitment counts after the cloud last listed it.
	fresh = 24 * time.Hour
	// managedCapacity is the label with the capacity type of nodes of EKS node groups.
	managedCapacity = "eks.amazonaws.com/capacityType"
)

// A State is whether plans count on a commitment, and if not why.
type State string

// The states. All but Certain are reasons not to count on it.
const (
	Certain    State = "Certain"
	Ending     State = "Ending"    // ends within the horizon
	NotShared  State = "NotShared" // no share for this cluster is given
	Stale      State = "Stale"     // imported, and the cloud has not listed it for a day
	NoRates    State = "NoRates"   // it covers no type that any pool can buy
	TooMany    State = "TooMany"   // others are worth more
	Duplicate  State = "Duplicate" // another object with the same id counts
	NotStarted State = "NotStarted"
	Ended      State = "Ended"
	Invalid    State = "Invalid"
)

// A Verdict is how a CommitmentDiscount is judged.
type Verdict struct {
	Object *v1alpha1.CommitmentDiscount
	State  State
	Err    error // why it is Invalid
	// The next three are known if Counted.
	Used   float64       // the part that machines use, from 0 to 1
	Unused cloud.NanoUSD // what is paid an hour for the unused part
	Takers bool          // some machine of the cluster may use it
	found  tariff.Commitment
}

// Counted reports whether launches or voluntary steps count on the commitment.
func (v *Verdict) Counted() bool { return v.State == Certain || v.State == Ending }

// A Books has the commitments that plans count on. nil means none.
type Books struct {
	Certain *tariff.Book // for launches and voluntary steps; nil if there are none
	All     *tariff.Book // Certain and Ending ones, for voluntary steps; nil if there are none
	// Verdicts has one for each object, in their order.
	Verdicts []Verdict
	// Coverage is the part of the list price of all on-demand machines that All covers.
	Coverage float64
}

// Read judges objects, and collects the on-demand machines of a snapshot, which use the commitments. It returns nil if there are no
// objects.
func Read(objects []*v1alpha1.CommitmentDiscount, snap *cluster.Snapshot, catalogs []*cloud.Catalog, now time.Time) *Books {
	if len(objects) == 0 {
		return nil
	}
	region, market := marketOf(catalogs)
	out := &Books{Verdicts: judge(objects, region, market, now)}
	machines := map[string]tariff.Line{}
	book := tariff.Book{Region: region}
	for n := range snap.Nodes() {
		if l, ok := hourOf(n, catalogs, &book); ok {
			machines[n.Name] = l
		}
	}
	var certain, all []tariff.Commitment
	for i := range out.Verdicts {
		switch v := &out.Verdicts[i]; v.State {
		case Certain:
			certain, all = append(certain, v.found), append(all, v.found)
		case Ending:
			all = append(all, v.found)
		}
	}
	if len(certain) > 0 {
		out.Certain = &tariff.Book{Commitments: certain, Region: region, Machines: machines}
	}
	if len(all) > 0 {
		out.All = &tariff.Book{Commitments: all, Region: region, Machines: machines}
		out.countUse()
	}
	return out
}

// countUse sets Coverage, and which part of each commitment the machines use.
func (b *Books) countUse() {
	lines := b.All.Without(nil)
	bill, list := tariff.Of(lines, b.All.Commitments), tariff.Of(lines, nil).Total
	if list > 0 {
		b.Coverage = float64(bill.List) / float64(list)
	}
	for i := range b.Verdicts {
		v := &b.Verdicts[i]
		if at := slices.IndexFunc(b.All.Commitments, func(c tariff.Commitment) bool { return c.ID == v.found.ID }); at >= 0 {
			v.Used = bill.Used[at]
			v.Unused = cloud.NanoUSD(float64(v.found.Fee()) * (1 - v.Used))
			v.Takers = slices.ContainsFunc(lines, func(l tariff.Line) bool { return v.found.Takes(&l) > 0 })
		}
	}
}

// judge returns a verdict on each object.
func judge(objects []*v1alpha1.CommitmentDiscount, region string, market []tariff.Line, now time.Time) []Verdict {
	out := make([]Verdict, len(objects))
	owner := map[string]*v1alpha1.CommitmentDiscount{}
	for _, d := range objects {
		id := d.CommitmentID()
		if o := owner[id]; o == nil || before(d, o) {
			owner[id] = d
		}
	}
	for i, d := range objects {
		v := &out[i]
		v.Object = d
		v.found, v.Err = tariff.FromObject(d, market)
		switch covers := func(l tariff.Line) bool { return v.found.Takes(&l) > 0 }; {
		case v.Err != nil:
			v.State = Invalid
		case owner[d.CommitmentID()] != d:
			v.State = Duplicate
		case d.Spec.Start != nil && d.Spec.Start.After(now.Truncate(time.Hour)):
			v.State = NotStarted
		case !tariff.Active(d, now):
			v.State = Ended
		case stale(d, now):
			v.State = Stale
		case d.Spec.Share == "":
			v.State = NotShared
		case !slices.ContainsFunc(market, covers) || v.found.Region != "" && v.found.Region != region:
			v.State = NoRates
		case d.Spec.End != nil && d.Spec.End.Sub(now) < horizon:
			v.State = Ending
		default:
			v.State = Certain
		}
	}
	markTooMany(out, market)
	return out
}

// before reports whether object a counts, and not b, if both have the same id: an object that a person wrote counts before an imported one,
// then the older before the newer.
func before(a, b *v1alpha1.CommitmentDiscount) bool {
	_, importedA := a.ImportedAt()
	_, importedB := b.ImportedAt()
	if importedA != importedB {
		return importedB
	}
	return a.CreationTimestamp.Before(&b.CreationTimestamp)
}

// stale reports whether the cloud has not listed an imported commitment for so long that it may be gone.
func stale(d *v1alpha1.CommitmentDiscount, now time.Time) bool {
	at, imported := d.ImportedAt()
	return imported && now.Sub(at) > fresh
}

// markTooMany marks the least valuable commitments as TooMany if more than mostCounted count. Their value is what they could cover in an
// hour at most.
func markTooMany(verdicts []Verdict, market []tariff.Line) {
	var counted []*Verdict
	for i := range verdicts {
		if v := &verdicts[i]; v.Counted() {
			counted = append(counted, v)
		}
	}
	if len(counted) <= mostCounted {
		return
	}
	worth := map[*Verdict]cloud.NanoUSD{}
	for _, v := range counted {
		worth[v] = tariff.Reach(market, []tariff.Commitment{v.found})
	}
	slices.SortStableFunc(counted, func(a, b *Verdict) int { return cmp.Compare(worth[b], worth[a]) })
	for _, v := range counted[mostCounted:] {
		v.State = TooMany
	}
}

// marketOf returns the region of the catalogues, and a line for each way to buy on demand.
func marketOf(catalogs []*cloud.Catalog) (region string, market []tariff.Line) {
	for _, c := range catalogs {
		for _, it := range c.Types {
			if r := it.Labels[corev1.LabelTopologyRegion]; region == "" && len(r) == 1 {
				region = r[0]
			}
			for i := range it.Offerings {
				if o := &it.Offerings[i]; o.CapacityType() == v1.CapacityTypeOnDemand {
					book := tariff.Book{Region: region}
					market = append(market, book.Hour(it.Name, o.Labels, int64(o.Price)))
				}
			}
		}
	}
	return region, tariff.Together(market)
}

// hourOf returns the line of a node's machine for an hour; false if it is no on-demand machine or its price is not known. A claim that is
// not launched counts as the cheapest type that it lists. A node without a claim or capacity type is on demand, unless its node group is
// spot.
func hourOf(n *cluster.Node, catalogs []*cloud.Catalog, book *tariff.Book) (l tariff.Line, ok bool) {
	labels := map[string]string{}
	var types []string
	if n.Claim != nil {
		for _, r := range n.Claim.Spec.Requirements {
			switch {
			case r.Key == corev1.LabelInstanceTypeStable:
				types = r.Values
			case len(r.Values) == 1 && r.Operator == corev1.NodeSelectorOpIn:
				labels[r.Key] = r.Values[0]
			}
		}
		for _, key := range []string{corev1.LabelInstanceTypeStable, corev1.LabelTopologyZone, v1.CapacityTypeLabelKey} {
			if value := n.Claim.Labels[key]; value != "" {
				labels[key] = value
			}
		}
	}
	if n.Node != nil {
		for _, key := range []string{corev1.LabelInstanceTypeStable, corev1.LabelTopologyZone, v1.CapacityTypeLabelKey} {
			if value := n.Node.Labels[key]; value != "" {
				labels[key] = value
			}
		}
	}
	if n.Claim == nil && labels[v1.CapacityTypeLabelKey] == "" && n.Node != nil && n.Node.Labels[managedCapacity] != "SPOT" {
		labels[v1.CapacityTypeLabelKey] = v1.CapacityTypeOnDemand // node groups and machines made by hand
	}
	if labels[v1.CapacityTypeLabelKey] != v1.CapacityTypeOnDemand {
		return l, false
	}
	if t := labels[corev1.LabelInstanceTypeStable]; t != "" {
		types = []string{t}
	}
	for _, c := range catalogs {
		for _, name := range types {
			if o := onDemand(c.Type(name), labels[corev1.LabelTopologyZone]); o != nil && (!ok || o.Price < l.PerHour) {
				l, ok = book.Hour(name, o.Labels, int64(o.Price)), true
			}
		}
		if ok {
			return l, true
		}
	}
	return l, false
}

// onDemand returns the cheapest on-demand offering of a type in a zone, or in any zone if zone is ""; nil if there is none.
func onDemand(it *cloud.InstanceType, zone string) (best *cloud.Offering) {
	if it == nil {
		return nil
	}
	for i := range it.Offerings {
		o := &it.Offerings[i]
		if o.CapacityType() == v1.CapacityTypeOnDemand && (zone == "" || zone == o.Zone()) && (best == nil || o.Price < best.Price) {
			best = o
		}
	}
	return best
}
