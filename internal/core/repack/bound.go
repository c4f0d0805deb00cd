package repack

import (
	"cmp"
	"math"
	"slices"

	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/pack"
	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/rule/spread"
	"karpenter.sh/karpenter/internal/core/solve"
	"karpenter.sh/karpenter/internal/kit/identity"
)

// bound proves a lower bound on the cost of every plan for the pods of the new nodes, and writes it to r; it writes no bound if it finds
// none that is right. The bound allows any domains, and what limits and minValues forbid. In the plans that it covers, machines up to over
// steps too large may hold any pod.
func bound(p *problem.Problem, at *solve.Placement, r *problem.Result, over int) {
	boundBy(newQuestion(p, at), r, over)
	if tooHigh(r) {
		q := newQuestion(p, at)
		q.floors, r.Floors = true, true
		boundBy(q, r, over)
	}
	if tooHigh(r) { // no bound is better than a wrong one
		r.Volume, r.Config, r.Proof = 0, 0, problem.Proof{}
	}
}

// tooHigh reports whether the bound is above the cost of the plan itself, so that it cannot be right: the plan launches a list of
// instance types that no cell holds. Cells are meant to hold every list (see narrowed). One case is known in which they do not, in one of
// about 1,100 random worlds of at most four pods: a node was opened for a small machine, and what is launched begins with a cheaper
// machine, which the policy about sizes finds too large. bound then proves a lower bound from the lowest price of each shape
// (question.floors), and says so in Result.Floors.
func tooHigh(r *problem.Result) bool { return max(r.Volume, r.Config) > r.Cost }

// boundBy asks package pack for a bound on a question about the pods of all new nodes, and writes bound and proof to r.
func boundBy(q *question, r *problem.Result, over int) {
	p, at := q.p, q.at
	q.loose, q.proves = true, true
	for _, n := range at.New() {
		for _, put := range n.Puts {
			q.addItem(put, p.Templates[n.Template].Tier, nil)
		}
	}
	if len(q.items) == 0 {
		return
	}
	q.pinLeast()
	q.problem.Classes = make([]pack.Class, len(q.items))
	for i := range q.items {
		q.problem.Classes[i].PerNode = q.items[i].together
	}
	q.makeCells()
	q.anySize()
	if countSizes(q) <= mostCapped {
		q.capHosts(q.forcing())
	}
	discount(q).makeRows()
	o := q.options()
	o.Exact = exactWork / 2
	o.Memory, o.Known, o.Price, o.Over = p.Settings.Memory.Bound, r.Memory.Known, r.Cost, over
	if q.rows.on {
		o = q.rows.beside(o, r.Cost)
		for c := range q.problem.Cells {
			q.problem.Cells[c].Over = 0
		}
	}
	answer := pack.Bound(&q.problem, o)
	r.Memory.Bound, r.Memory.Known = answer.Memory, answer.Known
	q.prove(r, answer)
}

// anySize takes the size policy out of a question, so that any machine may hold any pod, if a plan may have had to break the policy.
// That may be so if some pods may use any machine to reach a domain, if a pool may run out of machines (limits, minValues,
// reservations), if pods need larger machines in one pool than in another, or if pods must share a node, which may need a larger machine
// than one of them.
func (q *question) anySize() {
	glued := func(it item) bool { return q.at.Ties(it.class, it.variant).Glued }
	if q.unlimited() && !q.at.AnyMachine() && q.evenSizes() && !slices.ContainsFunc(q.items, glued) {
		return
	}
	for c := range q.problem.Cells {
		q.problem.Cells[c].Over = 0
	}
}

// evenSizes reports whether every item needs machines of the same size (in steps too large) in all templates that it fits. Exotic machines
// count only in templates where no ordinary machine fits, as when pods are placed.
func (q *question) evenSizes() bool {
	const none = math.MaxInt
	type smallest struct{ ordinary, exotic int } // by steps too large
	of := make([]smallest, len(q.p.Templates))
	for i := range q.items {
		for t := range of {
			of[t] = smallest{none, none}
		}
		least := none
		for c := range q.problem.Classes[i].Cells.All() {
			cell, over := &q.cells[c], q.problem.Cells[c].Over
			least = min(least, over)
			if s := &of[cell.tmpl]; q.p.Templates[cell.tmpl].Catalog.Exotic.Has(cell.shape) {
				s.exotic = min(s.exotic, over)
			} else {
				s.ordinary = min(s.ordinary, over)
			}
		}
		for _, s := range of {
			if s.ordinary == none {
				s.ordinary = s.exotic
			}
			if s.ordinary != none && s.ordinary > least {
				return false
			}
		}
	}
	return true
}

// pinLeast splits items whose pods are spread over domains. Every plan puts at least so many of the pods into each domain (see
// leastByDomain), and these become items that are pinned to it. The rest stays in the item, with a limit on how many of them one domain,
// and therefore one node, can have.
func (q *question) pinLeast() {
	for i := range q.items {
		it := &q.items[i]
		key, least, more := q.leastByDomain(it)
		it.together = more
		if least != nil {
			it.over = key + 1
		}
		for d, n := range least {
			if n == 0 {
				continue
			}
			pins := slices.Repeat([]int32{-1}, len(q.p.Keys))
			pins[key] = int32(d)
			q.items = append(q.items, item{class: it.class, variant: it.variant, tier: it.tier, pins: pins, count: n})
			it = &q.items[i] // the list may have moved
			it.count -= n
		}
	}
	q.items = slices.DeleteFunc(q.items, func(it item) bool { return it.count == 0 })
}

// leastByDomain returns how many pods of an item every plan puts into each domain of a key over which they are spread (least), and how many
// more than that one domain gets at most (more, 0 for any number). least is nil if it cannot tell: it supports only a spread that counts no
// other class to place, and only if all pods of the class are on new nodes.
func (q *question) leastByDomain(it *item) (key int, least []int, more int) {
	c := &q.p.Classes[it.class]
	if it.count != c.Count {
		return 0, nil, 0
	}
	for _, g := range c.Variants[it.variant].Owns {
		if key := q.p.Groups[g].Key; key != spread.Host && q.alone(g, it) {
			least, more = q.leastOf(g, q.at.Reach(it.class, key), it.count)
			return key, least, more
		}
	}
	return 0, nil, 0
}

// alone reports whether a group is a spread that counts every pod of the item on any new node, and no other pod that is to be placed.
func (q *question) alone(g int, it *item) bool {
	group := &q.p.Groups[g]
	if group.Kind != spread.Spread || group.MinDomains > 0 {
		return false
	}
	for i := range q.p.Classes {
		if problem.ClassID(i) != it.class && slices.Contains(q.p.Classes[i].Groups, g) {
			return false
		}
	}
	return q.bindsAlways(g, it)
}

// bindsAlways reports whether a pod of the item, whichever way it is read, owns a group that counts it on every new node that can take it.
func (q *question) bindsAlways(g int, it *item) bool {
	group := &q.p.Groups[g]
	if !slices.Contains(q.p.Classes[it.class].Groups, g) {
		return false
	}
	for _, v := range q.readings(it) {
		if !slices.Contains(v.Owns, g) || len(group.Filter) > 0 && !slices.Contains(group.Filter, v.Reqs) ||
			group.Templates != nil && !q.p.Labels.TolTmpl[v.Tol].Within(group.Templates) {
			return false
		}
	}
	return true
}

const (
	// mostCaps is how many host-level groups capHosts uses. Most groups force fewer machines than are needed anyway.
	mostCaps = 8
	// mostCapped is the number of items above which capHosts uses none: the LP would take longer than the better bound is worth.
	mostCapped = 400
)

// A hostCap is the limit that a host-level group sets on how many pods of some items one node holds.
type hostCap struct {
	items  []int
	most   int // pods of these items on one node, together
	forced int // the least number of machines that its pods need
}

// countSizes returns how many different items q has for the packer: those that need the same and may be on the same cells are one.
func countSizes(q *question) int {
	known := map[string]bool{}
	var key []byte
	for i := range q.items {
		key = identity.Numbers(identity.Number(key[:0], int64(q.kindOf[i])), q.problem.Classes[i].Need)
		known[string(key)] = true
	}
	return len(known)
}

// forcing returns the limits that force more than half as many machines as the plan opened, those that force most before others.
func (q *question) forcing() (caps []hostCap) {
	opened := 0
	for range q.at.New() {
		opened++
	}
	for g := range q.p.Groups {
		if c := q.capOf(g); c.forced*2 > opened {
			caps = append(caps, c)
		}
	}
	slices.SortStableFunc(caps, func(a, b hostCap) int { return cmp.Compare(b.forced, a.forced) })
	return caps[:min(len(caps), mostCaps)]
}

// capHosts tells the packer how many pods of host-level groups one node may hold. For each group it adds a dimension: each pod of the
// group needs one unit, and each machine has as many units as the group allows on a node.
//
// The limit holds for every plan. A new node starts empty, and all these pods own the group and are counted by it on any node. So the last
// of them to come to a node was admitted with all others counted, and together they are at most the maxSkew of a spread, or one for
// anti-affinity. Pods that the group counts but that do not own it need no unit.
func (q *question) capHosts(caps []hostCap) {
	for _, c := range caps {
		for i := range q.problem.Classes {
			need := int64(0)
			if slices.Contains(c.items, i) {
				need = 1
			}
			q.problem.Classes[i].Need = append(q.problem.Classes[i].Need, need)
		}
		for i := range q.problem.Cells {
			q.problem.Cells[i].Room = append(q.problem.Cells[i].Room, int64(c.most))
		}
	}
}

// capOf returns the limit that group g sets on a node; the zero hostCap if it sets none.
func (q *question) capOf(g int) (out hostCap) {
	group := &q.p.Groups[g]
	switch {
	case group.Key != spread.Host || group.Kind == spread.Affinity || group.Kind == spread.Anti && !group.Required:
		return out
	case group.Kind == spread.Anti:
		out.most = 1
	default:
		out.most = int(group.MaxSkew)
	}
	pods := 0
	for i := range q.items {
		if q.bindsAlways(g, &q.items[i]) {
			out.items = append(out.items, i)
			pods += q.items[i].count
		}
	}
	out.forced = (pods + out.most - 1) / max(out.most, 1)
	return out
}

// leastOf returns how many of n new pods each domain gets at least, and how many more than that a domain gets at most.
//
// When the last pod comes to a domain, the domain has at most maxSkew pods more than the emptiest one, that pod included. So if the
// emptiest domain ends with m pods, no domain ends with more than m + maxSkew, and m must be large enough that n new pods fit. Every
// domain ends with at least the smallest such m. And m is at most the level (highest) up to which n new pods can fill all domains.
func (q *question) leastOf(g int, reach bits.Set, n int) (least []int, more int) {
	group := &q.p.Groups[g]
	domains := bits.Make(len(q.p.Keys[group.Key].Values))
	domains.Or(group.Universe)
	domains.Or(reach)
	if !domains.Any() {
		return nil, 0
	}
	upTo := func(m int32) (sum int) { // how many new pods bring every domain with fewer than m up to m
		for d := range domains.All() {
			sum += int(max(0, m-group.At(d)))
		}
		return sum
	}
	m := group.At(domains.Next(0))
	for d := range domains.All() {
		m = min(m, group.At(d))
	}
	for upTo(m+group.MaxSkew)-int(group.MaxSkew) < n { // one domain ends with m, all others with at most m + maxSkew
		m++
	}
	highest := m
	for upTo(highest+1) <= n {
		highest++
	}
	least = make([]int, len(q.p.Keys[group.Key].Values))
	for d := range domains.All() {
		least[d] = int(max(0, m-group.At(d)))
		more = max(more, int(max(0, highest+group.MaxSkew-group.At(d)))-least[d])
	}
	return least, more
}
