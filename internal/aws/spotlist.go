package aws

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/aws/fleet"
	"karpenter.sh/karpenter/internal/aws/price"
	"karpenter.sh/karpenter/internal/aws/spotshare"
	"karpenter.sh/karpenter/internal/core/need"
	"karpenter.sh/karpenter/internal/core/shape"
)

// A chooser is fleet.Choose or fleet.ChooseWidely.
type chooser func([]*cloud.InstanceType, *v1.NodeClaim, shape.Band) (fleet.Choice, error)

// inShare returns the types without the spot offerings that would be above the share of the claim's pool, or that
// other running launches may take. done is called when the launch has ended. If the pool sets no share, all types are
// returned.
func (ms *machines) inShare(types []*cloud.InstanceType, claim *v1.NodeClaim, choose chooser) (left []*cloud.InstanceType, done func()) {
	name := claim.Labels[v1.NodePoolLabelKey]
	pool, known := ms.classes.pools.Get(name)
	if !known || !mayBeSpot(claim) {
		return types, func() {}
	}
	text, said := pool.Annotations[v1.SpotMaxShareAnnotationKey]
	share, err := v1.SpotMaxShare(text)
	if !said || err != nil {
		return types, func() {}
	}
	q := &spotshare.Question{NodePool: name, Share: share}
	q.Running, q.Waiting = ms.spotOf(name)
	if choice, err := choose(types, claim, shape.SpotBand(ms.env.settings.Spot.Types)); err == nil {
		q.Near = choice.Offerings()
	}
	left, kept, done := spotWithin(ms.shares, q, types, claim)
	if !kept {
		ms.env.reportShare(claim, text)
	}
	return left, done
}

// spotWithin returns the types with those spot offerings that the ledger lets the launch of a claim name, and whether
// they keep the shares. It completes the question. done is called when the launch has ended.
func spotWithin(l *spotshare.Ledger, q *spotshare.Question, types []*cloud.InstanceType, claim *v1.NodeClaim,
) (left []*cloud.InstanceType, kept bool, done func()) {
	q.Of, q.Offered = weightsOf(claim), spotOffered(types, claim)
	named, kept, done := l.Begin(q)
	if named == nil {
		return types, kept, done
	}
	return withSpotChanged(types, func(it *cloud.InstanceType, o *cloud.Offering) {
		o.Available = o.Available && named[price.Pool{Type: it.Name, Zone: o.Zone()}]
	}), kept, done
}

// spotOffered returns the spot offerings that a claim allows and that are available, cheapest first.
func spotOffered(types []*cloud.InstanceType, claim *v1.NodeClaim) (out []price.Pool) {
	type offered struct {
		pool  price.Pool
		price cloud.NanoUSD
	}
	var all []offered
	for it, o := range fleet.Offered(types, claim) {
		if o.CapacityType() == v1.CapacityTypeSpot {
			all = append(all, offered{price.Pool{Type: it.Name, Zone: o.Zone()}, o.Price})
		}
	}
	slices.SortStableFunc(all, func(a, b offered) int {
		return cmp.Or(cmp.Compare(a.price, b.price), cmp.Compare(a.pool.Type, b.pool.Type), cmp.Compare(a.pool.Zone, b.pool.Zone))
	})
	for _, x := range all {
		if !slices.Contains(out, x.pool) {
			out = append(out, x.pool)
		}
	}
	return out
}

// mayBeSpot reports whether a claim allows spot.
func mayBeSpot(claim *v1.NodeClaim) bool {
	return need.Of(claim.Spec.Requirements).AllowValue(v1.CapacityTypeLabelKey, v1.CapacityTypeSpot)
}

// spotOf returns the spot machines of a pool, just launched ones too, and the weights of claims that wait for their
// launch and may become spot.
func (ms *machines) spotOf(pool string) (running []spotshare.Machine, waiting []spotshare.Weights) {
	young := map[string]cloud.Machine{}
	for _, m := range ms.launches.machines.All() {
		young[m.ClaimName] = m
	}
	for claim := range ms.env.claims.Each() {
		if claim.Labels[v1.NodePoolLabelKey] != pool || claim.DeletionTimestamp != nil {
			continue
		}
		at := price.Pool{Type: claim.Labels[corev1.LabelInstanceTypeStable], Zone: claim.Labels[corev1.LabelTopologyZone]}
		m, launched := young[claim.Name]
		if launched {
			at = price.Pool{Type: m.InstanceType, Zone: m.Zone}
		}
		switch {
		case isSpot(claim) && claim.Status.ProviderID != "", launched && m.CapacityType == v1.CapacityTypeSpot:
			running = append(running, spotshare.Machine{Pool: at, Weights: weightsOf(claim)})
		case claim.Status.ProviderID == "" && !launched && mayBeSpot(claim):
			waiting = append(waiting, weightsOf(claim))
		}
	}
	return running, waiting
}

// weightsOf returns how much a claim counts towards shares of spot: as one machine, and for each workload as the pods
// that it was opened for ("default/web=3,default/db=1").
func weightsOf(claim *v1.NodeClaim) spotshare.Weights {
	out := spotshare.Weights{spotshare.Machines: 1}
	for part := range strings.SplitSeq(claim.Annotations[v1.OpenedForAnnotationKey], ",") {
		workload, count, _ := strings.Cut(part, "=")
		if n, err := strconv.Atoi(count); err == nil && n > 0 {
			out[workload] = n
		}
	}
	return out
}

// asReckoned returns the types with the spot prices by which the plan of a claim chose: with the expected cost of
// interruptions. So the launch names what was priced. types is not changed.
func asReckoned(types []*cloud.InstanceType, claim *v1.NodeClaim) []*cloud.InstanceType {
	dollars, err := v1.InterruptionCost(claim.Annotations[v1.InterruptionCostAnnotationKey])
	if err != nil || dollars == 0 {
		return types
	}
	each := cloud.FromDollars(dollars)
	return withSpotChanged(types, func(_ *cloud.InstanceType, o *cloud.Offering) { o.Price += o.Risk(each) })
}

// withSpotChanged returns copies of types, after change was called for each spot offering.
func withSpotChanged(types []*cloud.InstanceType, change func(*cloud.InstanceType, *cloud.Offering)) []*cloud.InstanceType {
	out := make([]*cloud.InstanceType, len(types))
	for i, it := range types {
		c := *it
		c.Offerings = slices.Clone(it.Offerings)
		for j := range c.Offerings {
			if o := &c.Offerings[j]; o.CapacityType() == v1.CapacityTypeSpot {
				change(it, o)
			}
		}
		out[i] = &c
	}
	return out
}
