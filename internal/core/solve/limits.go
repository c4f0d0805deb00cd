package solve

import (
	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/quantity"
	"karpenter.sh/karpenter/internal/core/reason"
	"karpenter.sh/karpenter/internal/core/rule/limits"
)

// A pool's limit is asked when a node is opened or becomes another machine, not when pods join: what a new bin may be bought as in the end
// is cut to what the limit allows all of them together.

func (f *fleet) openLimits(bin problem.BinID) {
	n := f.node(bin)
	f.limits[f.template(n).Pool].Take(f.takenBy(n))
}

// takenBy returns what a new bin has taken from its pool's limit.
func (f *fleet) takenBy(n *newNode) quantity.Vec {
	if n.fixed() {
		return n.min.reserve
	}
	return f.template(n).Catalog.Capacity[n.target]
}

// fixed reports whether a new bin has taken more from its pool's limit than its target needs, so that it cannot become another machine.
func (n *newNode) fixed() bool { return n.min != nil && n.min.reserve != nil }

// exhausted reports whether a pool's limits allow none of some shapes any more.
func (f *fleet) exhausted(t problem.TemplateID, shapes []int32) bool {
	tmpl := &f.p.Templates[t]
	limit := &f.limits[tmpl.Pool]
	if !limit.Limited {
		return false
	}
	for _, sh := range shapes {
		if limit.Fits(tmpl.Catalog.Capacity[sh]) {
			return false
		}
	}
	return true
}

// cutLimits takes out shapes that are larger than what the pool has left, where free is what it has left beside the
// bins that are finished. A claim takes the largest machine that it lists, so that limits hold whatever is
// launched.
func (f *fleet) cutLimits(n *newNode, shapes bits.Set, free *limits.Pool) {
	if !free.Limited {
		return
	}
	tmpl := f.template(n)
	free.Give(f.takenBy(n))
	shapes.Only(func(sh int) bool { return free.Fits(tmpl.Catalog.Capacity[sh]) })
	free.Take(f.largestOf(tmpl, shapes))
}

// largestOf returns the most that any of some shapes has of each resource.
func (f *fleet) largestOf(t *problem.Template, shapes bits.Set) quantity.Vec {
	most := make(quantity.Vec, f.p.Resources)
	for sh := range shapes.All() {
		most.Max(t.Catalog.Capacity[sh])
	}
	return most
}

// explainLimit names the limit that keeps the smallest of some shapes out.
func (f *fleet) explainLimit(t problem.TemplateID, shapes []int32) reason.Count {
	tmpl := &f.p.Templates[t]
	limit := &f.limits[tmpl.Pool]
	c := reason.Count{Code: reason.Limit, Pool: f.p.Pools[tmpl.Pool].Name, Candidates: tmpl.Shapes.Count()}
	for _, sh := range shapes {
		capacity := tmpl.Catalog.Capacity[sh]
		short, ok := limit.Short(capacity)
		switch r := short.Resource; {
		case !ok:
			continue
		case short.Nodes:
			c.Key, c.Left, c.Needs = "nodes", limit.Nodes, 1
			return c
		case r < len(f.p.Names):
			var needs int64
			if r < len(capacity) {
				needs = capacity[r]
			}
			if c.Key == "" || c.Key == f.p.Names[r] && needs < c.Needs {
				c.Key, c.Left, c.Needs = f.p.Names[r], limit.Left[r], needs
			}
		}
	}
	return c
}
