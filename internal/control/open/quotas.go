package open

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/quota"
)

// shareQuotas divides what CapacityQuotas leave among the tasks of all pools, one quota after the other. The lists of types of claims
// only get shorter, so a quota does not undo what an earlier quota or a pool's limit allowed. gone: see admit.
func (s *Service) shareQuotas(snap *cluster.Snapshot, pools map[string]engine.Pool, shares map[string][]*task,
	gone func(*cluster.Node) bool) {
	quotas := quota.All(snap)
	if len(quotas) == 0 {
		return
	}
	market := engine.MarketOf(pools)
	for i := range quotas {
		var tasks []*task
		goneNow := gone
		for _, name := range slices.Sorted(maps.Keys(shares)) {
			for _, t := range shares[name] {
				if t.err != nil || quotas[i].Most(t.claim, market) == nil { // nil: no machine of the claim would count
					continue
				}
				tasks = append(tasks, t)
				if t.opening.Static { // then machines that leave count, for all tasks of the quota; see noneGone
					goneNow = noneGone
				}
			}
		}
		if len(tasks) > 0 {
			r := quotaRoom(&quotas[i], market)
			s.countQuota(&r, &quotas[i], snap, market, goneNow)
			r.share(tasks)
		}
	}
}

// quotaRoom returns the room of a quota, with what machines of a claim count against it.
func quotaRoom(q *quota.Quota, market quota.Market) room {
	return room{limits: q.Limits, quota: q.Name, most: func(c *v1.NodeClaim, types []string) corev1.ResourceList {
		if types == nil {
			return q.Most(c, market)
		}
		return q.MostOf(c, market[c.Labels[v1.NodePoolLabelKey]], types)
	}}
}

// countQuota sets what counts against a quota, as count does for a pool's limits.
func (s *Service) countQuota(r *room, q *quota.Quota, snap *cluster.Snapshot, market quota.Market, gone func(*cluster.Node) bool) {
	r.used, r.sure = q.Used(snap, market, gone), q.Sum(snap, market, gone, r.least)
	for _, created := range s.reserved {
		quota.Add(r.used, r.largest(created.claim))
		quota.Add(r.sure, r.least(created.claim))
	}
}
