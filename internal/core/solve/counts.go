package solve

import (
	"slices"

	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/rule/spread"
)

// A group counts only pods on nodes that pass its node filter. Whether a new bin passes it may depend on what is bought. So a new bin is
// narrowed to machines and choices that are all counted, or all not counted.

// A census counts, for each group of pods that a spread or an affinity is about, the pods in each domain.
type census struct {
	facts       *facts
	bins        *bins
	groups      []spread.Group // of the problem, with what was placed counted too
	pinned      bool           // domains were decided before: spread and affinity are not asked again. See Afresh
	zoneRank    []int32        // by zone: which of equal zones is taken first; nil is the usual choice
	keepsSpread bool           // daemons of a further node may not upset pods that have their place; see upsets
}

func newCensus(facts *facts, bins *bins) *census {
	t := &census{facts: facts, bins: bins, groups: make([]spread.Group, len(facts.p.Groups))}
	for i := range t.groups {
		t.groups[i] = facts.p.Groups[i].Clone()
	}
	return t
}

// record counts n pods, which came to domain d, in the groups of one key. A domain below 0 is none: then only Elsewhere may count them.
func (cs *census) record(to *touch, d int32, bin problem.BinID, n int) {
	if d < 0 {
		cs.recordElsewhere(to, bin, n)
		return
	}
	for _, g := range to.counted {
		group := &cs.groups[g]
		if !cs.counts(group, bin) {
			continue
		}
		group.Add(int(d), int32(n))
		group.Know(int(d)) // a node in it makes it a domain for all pods
	}
	for _, g := range to.repels {
		cs.groups[g].AddOwners(int(d), int32(n))
	}
	if cs.facts.arrival != nil {
		cs.recordSpread(to, int(d), int32(n))
	}
}

// recordSpread counts, for each spread that n pods carry, that they are in domain d; upsets reads that. Spreads that are only a preference
// are left out: they keep no node from being opened.
func (cs *census) recordSpread(to *touch, d int, n int32) {
	for _, g := range to.owned {
		if cs.groups[g].Kind == spread.Spread && cs.facts.strict.Has(g) {
			cs.groups[g].AddOwners(d, n)
		}
	}
}

// recordElsewhere counts n pods in the groups of a key for which they have no domain, if they have a domain for another affinity term of
// the owners. Without that an owner would take itself for the first of its affinity and choose any domain.
func (cs *census) recordElsewhere(to *touch, bin problem.BinID, n int) {
	for _, g := range to.counted {
		if group := &cs.groups[g]; slices.ContainsFunc(group.Others, func(key int) bool {
			return key == spread.Host ||
				cs.bins.domainOf(key, bin) >= 0
		}) {
			group.Elsewhere += n
		}
	}
}

// counts reports whether a group counts the pods of a bin: whether the bin passes the node filter.
func (cs *census) counts(g *spread.Group, bin problem.BinID) bool {
	if n := cs.bins.node(bin); n != nil {
		return cs.countsAs(g, bin, n.target)
	}
	return g.Nodes == nil || g.Nodes.Has(int(bin))
}

// countsAs reports what counts would for a new bin, if the bin became shape sh.
func (cs *census) countsAs(g *spread.Group, bin problem.BinID, sh int) bool {
	for _, key := range g.Beside {
		if cs.bins.domainOf(key, bin) == problem.NoDomain {
			return false
		}
	}
	return cs.countsOn(g, cs.bins.node(bin).tmpl, sh, cs.bins.maskOf(bin))
}

// countsOn reports what counts would for a new node of template t and shape sh, with the choices that mask leaves.
func (cs *census) countsOn(g *spread.Group, t problem.TemplateID, sh int, mask bits.Set) bool {
	if g.Templates != nil && !g.Templates.Has(int(t)) {
		return false
	}
	for _, key := range g.Beside {
		if cs.facts.keyOf(key, t).DomainOf(sh) == problem.NoDomain {
			return false
		}
	}
	return len(g.Filter) == 0 || cs.facts.meetsAny(g.Filter, t, sh, mask)
}

// settleFilters narrows the choices of a trial for each spread that may count the pod, or the daemons of the node: any machine that is
// bought then passes the spread's node filter, if that is possible.
func (f *fleet) settleFilters(q *trial) {
	n := f.bins.node(q.bin)
	for _, a := range f.bins.template(n).Arrivals(n.target) {
		f.settleFilter(q, n, a.Group)
	}
	for _, g := range q.c.Groups {
		f.settleFilter(q, n, g)
	}
}

// settleFilter does so for one group. It does nothing if the group has no filter, is only a preference, or counts the node with all choices
// already. Otherwise it takes the first requirements of the filter with which the target is still sold and minValues are met, and notes
// them in the node's Narrowed.To.
func (f *fleet) settleFilter(q *trial, n *newNode, g int) {
	filter := f.census.groups[g].Filter
	suits := func(reqs int) *problem.Match {
		if m := &f.facts.p.Labels.OnTemplate[reqs][n.tmpl]; m.OK && (m.Shapes == nil || m.Shapes.Has(n.target)) {
			return m
		}
		return nil
	}
	if len(filter) == 0 || !f.facts.strict.Has(g) || slices.ContainsFunc(filter, func(reqs int) bool {
		m := suits(reqs)
		return m != nil && (m.Mask == nil || q.mask.Within(m.Mask))
	}) {
		return
	}
	for _, reqs := range filter {
		m := suits(reqs)
		if m == nil {
			continue
		}
		less := f.facts.spare
		copy(less, q.mask)
		less.Keep(m.Mask)
		if f.facts.sells(f.bins.template(n), n.target, less) && f.meetsValues(q, n, less) {
			copy(q.mask, less)
			to := f.bins.narrowed(n)
			to.To = append(to.To, reqs)
			return
		}
	}
}

// narrowed returns, to be changed, how a new bin's choices were narrowed for pods on other nodes.
func (b *bins) narrowed(n *newNode) *problem.Narrowed {
	if n.narrow == nil {
		n.narrow = &problem.Narrowed{}
	}
	return n.narrow
}

// narrowing returns a copy of the same, to be read; it is empty for nearly all bins.
func (n *newNode) narrowing() problem.Narrowed {
	if n.narrow == nil {
		return problem.Narrowed{}
	}
	return *n.narrow
}

// cutCounts takes out the shapes on which some spread would count the bin's pods or daemons although it does not on the target, or the
// other way round. If minValues fail without these shapes, it takes out none.
func (cs *census) cutCounts(bin problem.BinID, shapes bits.Set) {
	n := cs.bins.node(bin)
	if tmpl := cs.bins.template(n); len(tmpl.Min) > 0 {
		before := shapes.Clone()
		defer func() {
			if !tmpl.MeetsMinValues(shapes, cs.bins.maskOf(bin), n.lowered()) {
				shapes.Copy(before)
			}
		}()
	}
	like := func(g int) {
		if group := &cs.groups[g]; len(group.Filter) > 0 && cs.facts.strict.Has(g) {
			want := cs.countsAs(group, bin, n.target)
			shapes.Only(func(sh int) bool { return cs.countsAs(group, bin, sh) == want })
		}
	}
	for _, a := range cs.bins.template(n).Arrivals(n.target) {
		like(a.Group)
	}
	for _, put := range n.puts {
		for _, g := range cs.facts.p.Classes[put.Class].Groups {
			like(g)
		}
	}
}
