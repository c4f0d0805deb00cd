package repack

import (
	"cmp"
	"slices"

	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/pack"
	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/quantity"
	"karpenter.sh/karpenter/internal/core/rule/spread"
	"karpenter.sh/karpenter/internal/core/rule/volumes"
	"karpenter.sh/karpenter/internal/core/solve"
	"karpenter.sh/karpenter/internal/kit/identity"
)

// mostConflicts is the most pairs of items that the packer has to keep apart. With more, the nodes of such pods are frozen.
const mostConflicts = 20_000

// An item is pods that the packer sees as equal: of one class and variant, pinned to the domains that they are counted in.
type item struct {
	class   problem.ClassID
	variant int
	tier    int
	pins    []int32 // by topology key: a domain, or negative for any; nil if the pods are counted in no domain
	count   int
	// together is how many of them one node holds at most, because no domain takes more; 0 means any number.
	together int
	// over is 1 + the topology key over which they are spread, if their node has to be in one domain of it but any will do; 0 is none.
	over int
}

// on returns n pods of the item on a bin.
func (it *item) on(bin problem.BinID, n int) problem.Put {
	return problem.Put{Class: it.class, Variant: it.variant, Bin: bin, Count: n}
}

// A question is a problem for the packer, and how to read its answer. problem.Classes are items, problem.Cells are cells, by index.
type question struct {
	p       *problem.Problem
	at      *solve.Placement // the question is about the pods of its new nodes
	items   []item
	index   map[string]int // item by its key, for addItem
	kinds   []int          // one item of each kind; see findKinds
	kindOf  []int          // by item: its kind
	cells   []cell
	exotic  bits.Set        // items that fit only exotic machines
	frozen  []problem.BinID // new bins that stay as they are, in order
	mounts  map[int]int     // by volume: pods that mount it
	gear    gear
	problem pack.Problem
	pinned  bool // some item has pins
	// chooses: the packer chooses the domains of pods that are spread (askChoosing).
	chooses bool
	// loose: the question is for a bound on every plan. Pods may use what any reading of equal preference allows, any kind of machine, and
	// reservations.
	loose bool
	// floors: there is a cell for each shape at its lowest price, whichever list a launch sends, so that no plan costs less.
	floors bool
	// proves: the packer's bound may be a bound on every plan. exact: so far, every node that a plan can have is one of the cells.
	proves, exact bool
	rows          rows
	lists         map[string]listed // by template, shapes and offers; see listsOf
}

// A cell is what a node can be bought as: a template, with a list of machines that a launch sends.
type cell struct {
	tmpl        problem.TemplateID
	shape       int      // the cheapest shape of the list
	pins        []int32  // the domain that it is bought in, if prices differ between domains (question.split); else nil
	kinds       bits.Set // kinds of items that may be on it
	*discounted          // how commitments restrict the list; nil if they do not
}

// newQuestion returns a question without items.
func newQuestion(p *problem.Problem, at *solve.Placement) *question {
	q := &question{p: p, at: at, index: map[string]int{}, mounts: map[int]int{}, gear: gearOf(p), lists: map[string]listed{}}
	for i := range p.Classes {
		for _, v := range p.Classes[i].Volumes {
			q.mounts[v.ID] += p.Classes[i].Count
		}
	}
	return q
}

// ask returns the question how to fill nodes with the pods of the new nodes that are not frozen. It returns nil if there are no such pods.
func ask(p *problem.Problem, at *solve.Placement) *question {
	return fillIn(newQuestion(p, at))
}

// askBlind is ask as if there were no commitments.
func askBlind(p *problem.Problem, at *solve.Placement) *question {
	q := newQuestion(p, at)
	q.rows.blind = true
	return fillIn(q)
}

// fillIn adds items, cells, limits and commitments to a question, and returns it; nil if there are no items.
func fillIn(q *question) *question {
	if !q.gather() {
		return nil
	}
	q.makeCells()
	q.makeLimits()
	discount(q).makeRows()
	return q
}

// askChoosing is ask, except that the packer also chooses domains: pods that are spread over domains are pinned to one only as far as every
// plan has them there (pinLeast). It returns nil if there is nothing to choose, pods are too many, or no proofs are wanted.
func askChoosing(p *problem.Problem, at *solve.Placement) *question {
	pods := 0
	for _, n := range at.New() {
		for _, put := range n.Puts {
			pods += put.Count
		}
	}
	q := newQuestion(p, at)
	q.chooses = true
	if p.Settings.Unproven || pods > mostChoosing || !q.gather() ||
		!slices.ContainsFunc(q.items, func(it item) bool { return it.together > 0 }) {
		return nil
	}
	for i := range q.items {
		if most := q.items[i].together; most > 0 {
			c := &q.problem.Classes[i]
			c.PerNode = min(most, cmp.Or(c.PerNode, most))
		}
	}
	q.makeCells()
	q.makeLimits()
	discount(q).makeRows()
	return q
}

// gather collects items, with their caps and conflicts, and reports whether there are any. It starts over without the classes whose ties
// the packer cannot express, until there are no more of these.
func (q *question) gather() bool {
	bad := map[problem.ClassID]bool{} // classes whose ties the packer cannot express
	for again := true; again; {
		q.collect(bad)
		if len(q.items) == 0 {
			return false
		}
		again = q.tie(bad)
	}
	q.proves = len(q.frozen) == 0 && !q.pinned && !q.chooses // else the bound would be about some pods or some domains only
	return true
}

// collect sorts the pods of new bins into items, and lists the frozen bins: those with a class in bad, and others that the packer cannot
// express.
func (q *question) collect(bad map[problem.ClassID]bool) {
	q.items, q.frozen, q.pinned = nil, nil, false
	clear(q.index)
	for bin, n := range q.at.New() {
		if len(n.Puts) == 0 {
			continue
		}
		if n.Holds || len(q.p.Templates[n.Template].Min) > 0 ||
			slices.ContainsFunc(n.Puts, func(p problem.Put) bool { return bad[p.Class] || !q.simple(&p, n.Template) }) {
			q.frozen = append(q.frozen, bin)
			continue
		}
		for _, p := range n.Puts {
			pins := q.pinsOf(p)
			q.pinned = q.pinned || pins != nil
			q.addItem(p, q.p.Templates[n.Template].Tier, pins)
		}
	}
	if q.chooses {
		q.pinLeast()
	}
}

// pinsOf returns the domains that pods are pinned to: those in which the plan at hand counts them, by topology key. It is nil for pods that
// count in none, and for pods whose domain the packer chooses; pinLeast pins as many of those as every plan has in a domain.
func (q *question) pinsOf(p problem.Put) []int32 {
	pins := q.at.Pins(p)
	if pins == nil || !q.chooses {
		return pins
	}
	whole := item{class: p.Class, variant: p.Variant, count: q.p.Classes[p.Class].Count} // leastByDomain knows whole classes only
	if _, least, _ := q.leastByDomain(&whole); least != nil {
		return nil
	}
	return pins
}

// simple reports whether the packer can express the constraints of a class: no ports, no affinity that ties pods to one node, no shared
// volume, no devices beyond numbers, and, on templates whose pods choose labels, no such choice.
func (q *question) simple(p *problem.Put, t problem.TemplateID) bool {
	c, ties := &q.p.Classes[p.Class], q.at.Ties(p.Class, p.Variant)
	if ties.Glued || len(c.Ports) > 0 || !q.gear.counts(p.Class) || slices.ContainsFunc(c.Volumes, q.shared) {
		return false
	}
	return len(q.p.Templates[t].Segments) == 1 || q.match(&c.Variants[p.Variant], t).Mask == nil && !ties.Spread
}

// match returns what a variant leaves of a template.
func (q *question) match(v *problem.Variant, t problem.TemplateID) *problem.Match {
	return &q.p.Labels.OnTemplate[v.Reqs][t]
}

// shared reports whether several pods mount a volume.
func (q *question) shared(v volumes.Volume) bool { return q.mounts[v.ID] > 1 }

// addItem adds pods to the item of their class, variant, tier and pins.
func (q *question) addItem(p problem.Put, tier int, pins []int32) {
	key := identity.Numbers(make([]byte, 0, 64), []int{int(p.Class), p.Variant, tier})
	key = identity.Numbers(key, pins)
	i, ok := q.index[string(key)]
	if !ok {
		i = len(q.items)
		q.index[string(key)] = i
		q.items = append(q.items, item{class: p.Class, variant: p.Variant, tier: tier, pins: pins})
	}
	q.items[i].count += p.Count
}

// tie writes the rules of host-level groups into the problem, as caps per node and pairs of items that may not meet. It adds classes for
// which that is not possible to bad, and returns true if it added any: then the caller has to collect again without their nodes.
func (q *question) tie(bad map[problem.ClassID]bool) bool {
	q.problem = pack.Problem{Classes: make([]pack.Class, len(q.items))}
	before := len(bad)
	counted := map[int][]int{} // by host-level group: items that it counts
	owners := map[int][]int{}
	for i := range q.items {
		it := &q.items[i]
		ties := q.at.Ties(it.class, it.variant)
		for _, g := range ties.Counted {
			counted[g] = append(counted[g], i)
		}
		for _, g := range ties.Owned {
			owners[g] = append(owners[g], i)
		}
	}
	pairs := 0
	for g := range q.p.Groups {
		pairs += len(owners[g]) * len(counted[g])
	}
	for g := range q.p.Groups {
		crowded := pairs > mostConflicts && len(counted[g]) > 1
		for _, o := range owners[g] {
			if crowded || !q.tieOwner(g, o, counted[g], owners[g]) {
				bad[q.items[o].class] = true
			}
		}
	}
	return len(bad) > before
}

// tieOwner writes the rule of host-level group g that item o owns, and returns false if it cannot. A pair may only be kept apart if the
// rule holds in any order in which the two come to a node, or the bound would be wrong: both own the group, or it is required
// anti-affinity.
func (q *question) tieOwner(g, o int, counted, owners []int) bool {
	group := &q.p.Groups[g]
	limit := 1
	if group.Kind == spread.Spread {
		limit = int(group.MaxSkew)
	}
	for _, c := range counted {
		if c == o {
			if n := &q.problem.Classes[o].PerNode; *n == 0 || *n > limit {
				*n = limit
			}
			continue
		}
		mutual := group.Kind == spread.Anti && group.Required || slices.Contains(owners, c) && slices.Contains(counted, o)
		if limit > 1 || !mutual {
			return false
		}
		q.problem.Conflicts = append(q.problem.Conflicts, [2]int{min(o, c), max(o, c)})
	}
	return true
}

// needOf returns what a pod of a class needs: resources, then volumes to attach by driver, then devices (gear).
func (q *question) needOf(ci problem.ClassID) []int64 {
	c := &q.p.Classes[ci]
	out := append([]int64(nil), c.Need...)
	for range q.p.Drivers {
		out = append(out, 0)
	}
	for _, v := range c.Volumes {
		if !q.shared(v) { // a shared one may be attached already: counting it would make bounds wrong
			out[q.p.Resources+v.Driver]++
		}
	}
	return q.gear.need(out, ci)
}

// makeLimits writes what limits of pools and quotas leave for new nodes, apart from the frozen ones.
func (q *question) makeLimits() {
	for i := range len(q.p.Pools) + len(q.p.Quotas) {
		left := q.at.Remains(i, q.stays)
		if !left.Limited {
			continue
		}
		counts := func(c *cell) bool { return q.p.Templates[c.tmpl].Pool == i }
		if i >= len(q.p.Pools) {
			counts = func(c *cell) bool { return q.p.Quotas[i-len(q.p.Pools)].Covers(c.tmpl, c.shape) }
		}
		q.addLimit(counts, left.Nodes, func(quantity.Vec) int64 { return 1 })
		for r, most := range left.Left {
			q.addLimit(counts, most, func(v quantity.Vec) int64 { return v[r] })
		}
	}
}

// stays reports whether a bin is frozen.
func (q *question) stays(bin problem.BinID) bool {
	_, found := slices.BinarySearch(q.frozen, bin)
	return found
}

// addLimit adds a limit of most on the cells that counts selects. use returns what a node takes from it, given what the limits of pools
// count of its shape. A most of quantity.Max is no limit.
func (q *question) addLimit(counts func(*cell) bool, most int64, use func(quantity.Vec) int64) {
	if most == quantity.Max {
		return
	}
	l := pack.Limit{Use: make([]int64, len(q.cells)), Max: max(most, 0)}
	for c := range q.cells {
		if counts(&q.cells[c]) {
			l.Use[c] = use(q.p.Templates[q.cells[c].tmpl].Counts(q.cells[c].shape))
		}
	}
	q.problem.Limits = append(q.problem.Limits, l)
}
