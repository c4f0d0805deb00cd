package open

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
)

// A room is what a pool with limits, or a quota, has left for the claims of one call.
//
// A claim that is not launched counts as the largest machine that it lists, so that limits hold whichever is bought. The difference
// from its smallest machine is its surplus, which returns at launch. All surpluses together take at most an eighth of a limit; if there
// is only one, half of what is left if that is more. So a burst of claims with long lists does not use up the pool: a claim is refused
// only if the smallest machines use seven eighths of the limit.
type room struct {
	pool, quota string // the pool or the quota that has the limits; the other is ""
	limits      v1.Limits
	// most returns the most of each resource that a claim's machine may have if it is one of some types; nil stands for all types that
	// the claim lists. It returns nil for types that do not count.
	most func(c *v1.NodeClaim, types []string) corev1.ResourceList
	used corev1.ResourceList // what counts, with surpluses
	sure corev1.ResourceList // what counts, without surpluses
}

// poolRoom returns the room of a pool, before anything is counted.
func poolRoom(pool *v1.NodePool, m machines) room {
	return room{pool: pool.Name, limits: pool.Spec.Limits, most: func(c *v1.NodeClaim, types []string) corev1.ResourceList {
		switch {
		case types == nil:
			return m.largest(c)
		case len(types) == 1 && m[types[0]] == nil:
			return nil // a type that the catalogue does not have must not pass for the smallest; see least
		}
		return m.most(types)
	}}
}

func (r *room) largest(c *v1.NodeClaim) corev1.ResourceList { return r.most(c, nil) }

// share divides the room among tasks. Plans cut the types of claims to what was left when they were made; this does it again with what
// is left now. First each claim gets room for its smallest machine, or an error if there is none. Then the claims get surpluses in
// their order: each list keeps the types that still fit.
func (r *room) share(tasks []*task) {
	least := make([]corev1.ResourceList, len(tasks))
	for i, t := range tasks {
		least[i] = r.least(t.claim)
		if err := r.refuses(least[i]); err != nil {
			err.Pool = t.opening.Pool
			t.err = err
			continue
		}
		add(r.used, least[i])
		add(r.sure, least[i])
	}
	for i, t := range tasks {
		if t.err == nil {
			subtract(r.used, least[i])
			r.cut(t.claim, least[i])
			add(r.used, r.largest(t.claim))
		}
	}
}

// refuses returns the limit that a machine of this capacity would exceed, nil if there is none. The caller adds the pool.
func (r *room) refuses(capacity corev1.ResourceList) *LimitError {
	before := r.used.DeepCopy()
	add(r.used, capacity)
	over := r.over()
	r.used = before
	if over == "" {
		return nil
	}
	return &LimitError{Quota: r.quota, Resource: over, Limit: r.limits[over], Used: before[over], Needs: capacity[over]}
}

func (r *room) over() corev1.ResourceName { return r.limits.Exceeded(r.used) }

// least is the capacity of the smallest machine that a claim lists. A claim that must keep a choice of machines needs all of them.
func (r *room) least(c *v1.NodeClaim) corev1.ResourceList {
	listed := typesOf(c)
	if listed == nil || choosy(c) {
		return r.largest(c)
	}
	best := r.largest(c)
	for _, name := range listed.Values {
		if one := r.most(c, []string{name}); (one != nil || r.quota != "") && r.part(one) < r.part(best) {
			best = one
		}
	}
	return best
}

// choosy reports whether a claim has minValues: then its list of types must not be cut.
func choosy(c *v1.NodeClaim) bool {
	return slices.ContainsFunc(c.Spec.Requirements, func(q v1.NodeSelectorRequirementWithMinValues) bool { return q.MinValues != nil })
}

// part returns the part of a limit that a machine takes, for the limit of which it takes most.
func (r *room) part(capacity corev1.ResourceList) float64 {
	most := 0.0
	for name, limit := range r.limits {
		if have, ok := capacity[name]; ok && !have.IsZero() {
			most = max(most, have.AsApproximateFloat64()/limit.AsApproximateFloat64())
		}
	}
	return most
}

// cut removes from a claim's list the types that are too large for what is left. Its smallest type stays.
func (r *room) cut(c *v1.NodeClaim, least corev1.ResourceList) {
	listed := typesOf(c)
	if listed == nil || choosy(c) || r.fits(c, listed.Values, least) {
		return
	}
	listed.Values = slices.DeleteFunc(slices.Clone(listed.Values), func(name string) bool { return !r.fits(c, []string{name}, least) })
}

// fits reports whether a claim may list these types: their largest capacity must not exceed a limit, and its surplus over least must
// keep all surpluses within the bound that type room describes.
func (r *room) fits(c *v1.NodeClaim, names []string, least corev1.ResourceList) bool {
	capacity := r.most(c, names)
	add(r.used, capacity)
	defer subtract(r.used, capacity)
	if r.over() != "" {
		return false
	}
	for name, limit := range r.limits {
		milli := func(list corev1.ResourceList) int64 { q := list[name]; return q.MilliValue() }
		own := milli(capacity) - milli(least)
		all, most := milli(r.used)-milli(r.sure), limit.MilliValue()/8
		if all == own {
			most = max(most, (limit.MilliValue()-milli(r.sure))/2)
		}
		if own > 0 && all > most {
			return false
		}
	}
	return true
}
