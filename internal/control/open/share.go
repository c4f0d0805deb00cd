package open

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
)

// A room is what a pool with limits has left for the claims of one call.
type room struct {
	pool     *v1.NodePool
	machines machines
	used     corev1.ResourceList
}

// share gives each task its part of the room. Plans cut the lists of their claims to what was left when they were
// made; here it is settled against what is left now. Every claim is sure of the smallest machine that it lists, as
// long as there is room; what is then left goes to the first ones, whose lists keep whatever fits.
func (r *room) share(tasks []*task) {
	least := make([]corev1.ResourceList, len(tasks))
	for i, t := range tasks {
		least[i] = r.least(t.claim)
		if err := r.refuses(least[i]); err != nil {
			t.err = err
			continue
		}
		add(r.used, least[i])
	}
	for i, t := range tasks {
		if t.err == nil {
			subtract(r.used, least[i])
			r.cut(t.claim)
			add(r.used, r.machines.largest(t.claim))
		}
	}
}

// refuses says which limit keeps out a machine of this capacity, nil if none does.
func (r *room) refuses(capacity corev1.ResourceList) error {
	before := r.used.DeepCopy()
	add(r.used, capacity)
	over := r.over()
	r.used = before
	if over == "" {
		return nil
	}
	return &LimitError{Pool: r.pool.Name, Resource: over, Limit: r.pool.Spec.Limits[over], Used: before[over], Needs: capacity[over]}
}

func (r *room) over() corev1.ResourceName { return r.pool.Spec.Limits.Exceeded(r.used) }

// least is the capacity of the smallest machine that a claim lists. A claim that must keep a choice of machines needs all of them.
func (r *room) least(c *v1.NodeClaim) corev1.ResourceList {
	listed := typesOf(c)
	if listed == nil || choosy(c) {
		return r.machines.largest(c)
	}
	best := r.machines.largest(c)
	for _, name := range listed.Values {
		if r.machines[name] == nil {
			continue
		}
		if one := r.machines.most([]string{name}); r.part(one) < r.part(best) {
			best = one
		}
	}
	return best
}

func choosy(c *v1.NodeClaim) bool {
	return slices.ContainsFunc(c.Spec.Requirements, func(q v1.NodeSelectorRequirementWithMinValues) bool { return q.MinValues != nil })
}

// part is how much of its limits a machine takes, where it takes most.
func (r *room) part(capacity corev1.ResourceList) float64 {
	most := 0.0
	for name, limit := range r.pool.Spec.Limits {
		if have, ok := capacity[name]; ok {
			most = max(most, have.AsApproximateFloat64()/limit.AsApproximateFloat64())
		}
	}
	return most
}

// cut takes the machines off a claim's list that are too large for what is left. Where each of them fits, the most of each resource does.
func (r *room) cut(c *v1.NodeClaim) {
	listed := typesOf(c)
	if listed == nil || choosy(c) || r.fits(listed.Values) {
		return
	}
	listed.Values = slices.DeleteFunc(slices.Clone(listed.Values), func(name string) bool { return !r.fits([]string{name}) })
}

func (r *room) fits(names []string) bool {
	capacity := r.machines.most(names)
	add(r.used, capacity)
	defer subtract(r.used, capacity)
	return r.over() == ""
}
