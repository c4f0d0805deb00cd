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
)

// bound writes a bound on every plan for the pods of new nodes, whatever domains it chooses and whatever limits and
// minValues allow. Machines up to so many steps too large are for anybody.
func bound(p *problem.Problem, at *solve.Placement, r *problem.Result, over int) {
	boundBy(newQuestion(p, at), r, over)
	if tooHigh(r) {
		q := newQuestion(p, at)
		q.floors = true
		boundBy(q, r, over)
	}
}

// tooHigh reports whether a bound is above the cost of the plan itself. It was proven for the lists that the cells
// hold, and a plan may have opened another one: domains that rules about pods elsewhere took away leave lists that
// no item asks for by itself.
func tooHigh(r *problem.Result) bool { return max(r.Volume, r.Config) > r.Cost }

func boundBy(q *question, r *problem.Result, over int) {
	p, at := q.p, q.at
	q.loose, q.proves = true, true
	opened := 0
	for _, n := range at.New() {
		opened++
		for _, put := range n.Puts {
			q.add(put, p.Templates[n.Template].Tier, nil)
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
	q.capHosts(opened)
	o := q.options()
	o.Exact = exactWork / 2
	o.Memory, o.Known, o.Price, o.Over = p.Settings.Memory.Bound, r.Memory.Known, r.Cost, over
	answer := pack.Bound(&q.problem, o)
	r.Memory.Bound, r.Memory.Known = answer.Memory, answer.Known
	q.prove(r, answer)
}

// anySize takes the policy about sizes out of a question where plans may have had to leave it: where pods were let off for the sake of a
// domain, a pool may run out of what it may have, or pods need larger machines of one pool than of another.
func (q *question) anySize() {
	if q.free() && !q.at.Lavish() && q.evenSizes() {
		return
	}
	for c := range q.problem.Cells {
		q.problem.Cells[c].Over = 0
	}
}

// evenSizes reports whether every item needs machines of the same size in all templates that it fits at all. Exotic
// machines count where there are no others, as when it is placed.
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

// pinLeast splits pods that are spread over domains: whatever a plan does, so many of them are in each domain. Of
// those that are left no domain gets more than a few, and so no node.
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

// leastByDomain returns how many pods of an item every plan puts into each domain of a key over which they are
// spread, and how many more than that any domain gets at most, 0 for any number. It knows only the plain case, in
// which a spread is about this class alone and all of its pods come to new nodes.
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
	// mostCaps is how many host-level groups a bound knows of: most force fewer machines than are needed anyway.
	mostCaps = 8
	// mostCapped is up to how many items it knows of any. Beyond, the LP takes longer than the bound gains.
	mostCapped = 400
)

// A hostCap is a host-level group with the items that every node holds only so many of.
type hostCap struct {
	items  []int
	most   int
	forced int // machines that its pods need at least
}

// capHosts tells the packer what host-level groups allow. It does so by one more dimension for a group, of which
// each of its pods needs one and each machine has as much as the group allows. That holds for every plan: a new
// node starts empty, all of these pods own the group and are counted by it wherever they go, so the last of them to
// come to a node was admitted beside all others there, and they are no more than the skew of a spread, or one where
// they keep apart. Pods that the group counts but that do not own it are left out.
func (q *question) capHosts(opened int) {
	if len(q.items) > mostCapped {
		return
	}
	var caps []hostCap
	for g := range q.p.Groups {
		if c := q.capOf(g); c.forced*2 > opened {
			caps = append(caps, c)
		}
	}
	slices.SortStableFunc(caps, func(a, b hostCap) int { return cmp.Compare(b.forced, a.forced) })
	for _, c := range caps[:min(len(caps), mostCaps)] {
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

// leastOf works out how many of n new pods come to each domain at least, and how many more than that to any. The
// last pod that comes to a domain finds it no more than the skew above the emptiest one, so if the emptiest ends
// with m pods, no other gets beyond m and the skew: m has to be large enough for n new ones, and every domain
// reaches m. Nor can every domain reach more than n new ones fill.
func (q *question) leastOf(g int, reach bits.Set, n int) (least []int, more int) {
	group := &q.p.Groups[g]
	domains := bits.Make(len(q.p.Keys[group.Key].Values))
	domains.Or(group.Universe)
	domains.Or(reach)
	if !domains.Any() {
		return nil, 0
	}
	upTo := func(m int32) (sum int) { // new pods with which no domain has more than m, or every one has as many
		for d := range domains.All() {
			sum += int(max(0, m-group.At(d)))
		}
		return sum
	}
	m := group.At(domains.Next(0))
	for d := range domains.All() {
		m = min(m, group.At(d))
	}
	for upTo(m+group.MaxSkew)-int(group.MaxSkew) < n { // the emptiest takes no more than m
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
