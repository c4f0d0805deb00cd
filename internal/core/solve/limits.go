package solve

import (
	"slices"

	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/quantity"
	"karpenter.sh/karpenter/internal/core/reason"
	"karpenter.sh/karpenter/internal/core/rule/limits"
)

// Limits are asked when a node is opened or gets another target, not when pods join. In the end, finishing cuts what each new bin may be
// bought as, so that limits allow all of them together.

// Allowances are what limits leave. An index below len(Pools) is the limit of that pool; the quotas follow.
type allowances struct {
	p    *problem.Problem
	left []limits.Pool
}

// newAllowances returns what limits leave before any node is opened.
func newAllowances(p *problem.Problem) allowances {
	a := allowances{p: p}
	for i := range p.Pools {
		a.left = append(a.left, p.Pools[i].Limit.Clone())
	}
	for i := range p.Quotas {
		a.left = append(a.left, p.Quotas[i].Limit.Clone())
	}
	return a
}

func (a allowances) clone() allowances {
	a.left = slices.Clone(a.left)
	for i := range a.left {
		a.left[i] = a.left[i].Clone()
	}
	return a
}

// limited reports whether anything limits the nodes of a template.
func (a allowances) limited(t problem.TemplateID) bool { return a.left[a.p.Templates[t].Pool].Limited }

// allow reports whether the pool's limit and those quotas for which under holds allow one more node of a template, if the node counts as
// capacity against them.
func (a allowances) allow(t problem.TemplateID, capacity quantity.Vec, under func(q *problem.Quota) bool) bool {
	if !a.left[a.p.Templates[t].Pool].Fits(capacity) {
		return false
	}
	for i := range a.p.Quotas {
		if under(&a.p.Quotas[i]) && !a.left[len(a.p.Pools)+i].Fits(capacity) {
			return false
		}
	}
	return true
}

// allowed reports whether limits allow one more node of a shape.
func (a allowances) allowed(t problem.TemplateID, sh int) bool {
	return a.allow(t, a.p.Templates[t].Counts(sh), func(q *problem.Quota) bool { return q.Covers(t, sh) })
}

// allowsReserve reports whether limits allow one more node of a template that takes reserve, the largest capacity of several shapes. All
// quotas on the template count, because any of the shapes may fall under them.
func (a allowances) allowsReserve(t problem.TemplateID, reserve quantity.Vec) bool {
	return a.allow(t, reserve, func(q *problem.Quota) bool { return q.Of[t].Any() })
}

// counted reports whether a new bin counts against the limit with this index.
func (a allowances) counted(n *newNode, limit int) bool {
	pools := len(a.p.Pools)
	switch {
	case limit < pools:
		return a.p.Templates[n.tmpl].Pool == limit
	case n.fixed():
		return a.p.Quotas[limit-pools].Of[n.tmpl].Any()
	}
	return a.p.Quotas[limit-pools].Covers(n.tmpl, n.target)
}

// A stock is what can still be bought: what limits and reservations leave, and at what price.
type stock struct {
	facts  *facts
	bins   *bins
	limits allowances // after every new bin has taken what takenBy returns
	left   []int      // by reservation: machines that no new bin holds
	prices priceTable // emptied when a reservation is used up
}

func newStock(facts *facts, bins *bins) *stock {
	return &stock{facts: facts, bins: bins, limits: newAllowances(facts.p), left: slices.Clone(facts.p.Reservations)}
}

func (k *stock) openLimits(bin problem.BinID) { k.limits.take(k.bins.node(bin)) }

// take takes a new bin from what limits leave.
func (a allowances) take(n *newNode) {
	a.left[a.p.Templates[n.tmpl].Pool].Take(a.takenBy(n))
	for i := len(a.p.Pools); i < len(a.left); i++ {
		if a.counted(n, i) {
			a.left[i].Take(a.takenBy(n))
		}
	}
}

// give gives back what take took. It must be called before the bin's target or minimum changes.
func (a allowances) give(n *newNode) {
	a.left[a.p.Templates[n.tmpl].Pool].Give(a.takenBy(n))
	for i := len(a.p.Pools); i < len(a.left); i++ {
		if a.counted(n, i) {
			a.left[i].Give(a.takenBy(n))
		}
	}
}

// takenBy returns what a new bin takes from limits: the capacity of its target, or its reserve if it has minValues.
func (a allowances) takenBy(n *newNode) quantity.Vec {
	if n.fixed() {
		return n.min.reserve
	}
	return a.p.Templates[n.tmpl].Counts(n.target)
}

// fixed reports whether a new bin has taken more from limits than its target needs, so that it cannot become another machine.
func (n *newNode) fixed() bool { return n.min != nil && n.min.reserve != nil }

// limitAny reports whether some template has limits.
func (a allowances) limitAny() bool {
	for t := range a.p.Templates {
		if a.limited(problem.TemplateID(t)) {
			return true
		}
	}
	return false
}

// exhausted reports whether limits allow none of the given shapes any more.
func (k *stock) exhausted(t problem.TemplateID, shapes []int32) bool {
	if !k.limits.limited(t) {
		return false
	}
	for _, sh := range shapes {
		if k.limits.allowed(t, int(sh)) {
			return false
		}
	}
	return true
}

// cutLimits takes out shapes that are larger than what limits leave, and takes the largest of the rest from free. free is what limits leave
// beside the bins that are finished, with each other bin counted as its target. So limits hold even if each claim gets the largest machine
// that it lists.
func (k *stock) cutLimits(n *newNode, shapes bits.Set, free allowances) {
	tmpl := k.bins.template(n)
	if !free.limited(n.tmpl) {
		return
	}
	free.give(n)
	shapes.Only(func(sh int) bool { return free.allowed(n.tmpl, sh) })
	free.left[tmpl.Pool].Take(k.largestOf(tmpl, shapes))
	for i := range k.facts.p.Quotas {
		if of := k.facts.p.Quotas[i].Of[n.tmpl]; of != nil && of.Meets(shapes) {
			under := shapes.Clone()
			under.Only(of.Has)
			free.left[len(k.facts.p.Pools)+i].Take(k.largestOf(tmpl, under))
		}
	}
}

// largestOf returns the most that any of some shapes has of each resource.
func (k *stock) largestOf(t *problem.Template, shapes bits.Set) quantity.Vec {
	most := make(quantity.Vec, k.facts.p.Resources)
	for sh := range shapes.All() {
		most.Max(t.Counts(sh))
	}
	return most
}

// explainLimit names the limits that keep out all given shapes on their own. If there is no such limit, it names those that keep out some.
func (k *stock) explainLimit(t problem.TemplateID, shapes []int32) reason.Explanation {
	p := k.facts.p
	var all, some reason.Explanation
	for i := range k.limits.left {
		c := reason.Count{Code: reason.Limit, Pool: p.Pools[p.Templates[t].Pool].Name, Candidates: p.Templates[t].Shapes.Count()}
		if i >= len(p.Pools) {
			c.Code, c.Detail = reason.Quota, p.Quotas[i-len(p.Pools)].Name
		} else if i != p.Templates[t].Pool {
			continue
		}
		switch k.limits.explainShort(&c, i, t, shapes) {
		case 0:
		case len(shapes):
			all = append(all, c)
		default:
			some = append(some, c)
		}
	}
	if len(all) > 0 {
		return all
	}
	return some
}

// explainShort returns how many of the given shapes a limit keeps out. It writes into c which resource is short, how much the limit leaves
// of it, and the least that any of these shapes needs. If shapes lack different resources, it names that of the first.
func (a allowances) explainShort(c *reason.Count, limit int, t problem.TemplateID, shapes []int32) (out int) {
	p := a.p
	for _, sh := range shapes {
		if limit >= len(p.Pools) && !p.Quotas[limit-len(p.Pools)].Covers(t, int(sh)) {
			continue
		}
		capacity := p.Templates[t].Counts(int(sh))
		short, ok := a.left[limit].Short(capacity)
		if !ok {
			continue
		}
		out++
		switch r := short.Resource; {
		case short.Nodes:
			c.Key, c.Left, c.Needs = "nodes", a.left[limit].Nodes, 1
		case r < len(p.Names):
			var needs int64
			if r < len(capacity) {
				needs = capacity[r]
			}
			if c.Key == "" || c.Key == p.Names[r] && needs < c.Needs {
				c.Key, c.Left, c.Needs = p.Names[r], a.left[limit].Left[r], needs
			}
		}
	}
	return out
}

// limitsResource reports whether some limit or quota on nodes of a template limits resource r.
func (a allowances) limitsResource(t problem.TemplateID, r int) bool {
	p := a.p
	for i := range a.left {
		of := p.Templates[t].Pool == i
		if i >= len(p.Pools) {
			of = p.Quotas[i-len(p.Pools)].Of[t].Any()
		}
		if of && r < len(a.left[i].Left) && a.left[i].Left[r] != limits.Unlimited {
			return true
		}
	}
	return false
}
