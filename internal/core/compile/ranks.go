package compile

import (
	"cmp"
	"slices"
	"strconv"

	autoscalingv1beta1 "karpenter.sh/karpenter/api/autoscaling/v1beta1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/quantity"
	"karpenter.sh/karpenter/internal/core/quota"
	"karpenter.sh/karpenter/internal/core/worth"
)

const (
	// Pods of one priority are cut into bands of equal size; those of one band get the same rank, and are placed as if they were equal.
	// bands is how many come before one last band for all others.
	bands = 32
	// mostWeight is the largest weight of a namespace.
	mostWeight = 1000
)

// Ranks puts pods that do not all fit under the quotas into a fair order: by priority, and within one priority by weighted shares of the
// namespaces. The next pod is always of the namespace with the least share: what its pods on nodes under a quota, and those that came
// before, are worth, divided by its weight. placed is how many pods a plan without ranks placed. The largest rank comes first.
func (m *Memory) Ranks(in Input, placed int) map[cluster.PodKey]int32 {
	prices := m.worthOf(in)
	value := func(p *cluster.Pod) float64 {
		need := m.infoOf(p.Class).need
		return max(prices.Of(worth.Amounts{CPU: float64(need[quantity.CPU]), Memory: float64(need[quantity.Memory])}), 1)
	}
	weights, has := weightsOf(in.Snap), map[string]float64{}
	share := func(p *cluster.Pod) float64 { return value(p) / cmp.Or(weights[p.Namespace], 1) }
	quotas := quota.All(in.Snap)
	for n := range in.Snap.Nodes() {
		if !slices.ContainsFunc(quotas, func(q quota.Quota) bool { return n.Node != nil && q.Holds(n.Labels()) }) {
			continue
		}
		for _, p := range n.Pods {
			if !p.DaemonSet && !p.Mirror {
				has[p.Namespace] += share(p)
			}
		}
	}
	pods := slices.Clone(in.Pods)
	slices.SortStableFunc(pods, olderFirst)
	byPriority := func(x, y *cluster.Pod) int { return cmp.Compare(y.Priority, x.Priority) }
	slices.SortStableFunc(pods, byPriority)
	turn := map[cluster.PodKey]float64{} // what the namespace has before the pod's turn
	for _, p := range pods {
		turn[p.PodKey] = has[p.Namespace]
		has[p.Namespace] += share(p)
	}
	slices.SortStableFunc(pods, func(x, y *cluster.Pod) int {
		return cmp.Or(byPriority(x, y), cmp.Compare(turn[x.PodKey], turn[y.PodKey]),
			cmp.Compare(x.Namespace, y.Namespace))
	})
	width := max(2*placed/bands, 1) // pods of a band: together the bands hold twice the pods that have a chance
	out := make(map[cluster.PodKey]int32, len(pods))
	rank, inBand, band := int32(0), 0, 0
	for i, p := range pods {
		switch {
		case i > 0 && pods[i-1].Priority != p.Priority:
			rank, inBand, band = rank-1, 0, 0
		case inBand == width && band < bands:
			rank, inBand, band = rank-1, 0, band+1
		}
		out[p.PodKey] = rank
		inBand++
	}
	return out
}

// weightsOf returns the weights of the namespaces that have one.
func weightsOf(snap *cluster.Snapshot) map[string]float64 {
	out := map[string]float64{}
	for ns := range cluster.Namespaces.All(snap) {
		if w, err := strconv.Atoi(ns.Annotations[autoscalingv1beta1.QuotaWeightAnnotationKey]); err == nil && w >= 1 && w <= mostWeight {
			out[ns.Name] = float64(w)
		}
	}
	return out
}

// worthOf returns what CPU and memory cost in the machines that pools sell, for what the pods ask for.
func (m *Memory) worthOf(in Input) worth.Prices {
	var demand worth.Amounts
	for _, p := range in.Pods {
		need := m.infoOf(p.Class).need
		demand = demand.Plus(worth.Amounts{CPU: float64(need[quantity.CPU]), Memory: float64(need[quantity.Memory])})
	}
	var machines []worth.Machine
	for _, p := range in.Pools {
		cat := m.catalogOf(p, &in).shape
		for sh := range cat.Len() {
			least := int64(0)
			for o := range cat.Sold[sh].All() {
				if price := cat.Price[sh][o]; price > 0 && (least == 0 || price < least) {
					least = price
				}
			}
			if least > 0 && !cat.Exotic.Has(sh) {
				machines = append(machines, worth.Machine{Price: float64(least),
					Room: worth.Amounts{CPU: float64(cat.Alloc[sh][quantity.CPU]), Memory: float64(cat.Alloc[sh][quantity.Memory])}})
			}
		}
	}
	return worth.Find(machines, demand)
}
