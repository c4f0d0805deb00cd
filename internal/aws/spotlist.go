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
)

// inShare returns types without the spot offerings of which the claim's pool has its share already, or which are for other launches that
// are under way. done is called when the launch has ended. Where the pool sets no share, that is all of them.
func (ms *machines) inShare(types []*cloud.InstanceType, claim *v1.NodeClaim) (left []*cloud.InstanceType, done func()) {
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
	q := &spotshare.Question{NodePool: name, Share: share, Of: weightsOf(claim), Offered: spotOffered(types, claim)}
	q.Running, q.Waiting = ms.spotOf(name)
	named, kept, done := ms.shares.Begin(q)
	if named == nil {
		return types, done
	}
	if !kept {
		ms.env.reportShare(claim, text)
	}
	return changed(types, func(it *cloud.InstanceType, o *cloud.Offering) {
		o.Available = o.Available && named[price.Pool{Type: it.Name, Zone: o.Zone()}]
	}), done
}

// spotOffered returns what the claim can be bought as on spot now, cheapest first.
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

func mayBeSpot(claim *v1.NodeClaim) bool {
	return need.Of(claim.Spec.Requirements).AllowValue(v1.CapacityTypeLabelKey, v1.CapacityTypeSpot)
}

// spotOf returns the spot machines of a pool, those of a moment ago too, and what waits for its launch and may become spot.
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

// weightsOf is what a claim counts: one machine, and the pods that it was opened for.
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

// asReckoned returns types with the prices by which the plan of a claim chose: with what interruptions are reckoned to cost. What is sent
// is what was priced. Nothing that the caller has is changed.
func asReckoned(types []*cloud.InstanceType, claim *v1.NodeClaim) []*cloud.InstanceType {
	dollars, err := v1.InterruptionCost(claim.Annotations[v1.InterruptionCostAnnotationKey])
	if err != nil || dollars == 0 {
		return types
	}
	each := cloud.FromDollars(dollars)
	return changed(types, func(_ *cloud.InstanceType, o *cloud.Offering) { o.Price += o.Risk(each) })
}

// changed returns copies of types, of whose spot offerings each is changed.
func changed(types []*cloud.InstanceType, change func(*cloud.InstanceType, *cloud.Offering)) []*cloud.InstanceType {
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
