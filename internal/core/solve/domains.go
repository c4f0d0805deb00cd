package solve

import (
	"slices"

	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/reason"
	"karpenter.sh/karpenter/internal/core/rule/spread"
	"karpenter.sh/karpenter/internal/core/work"
)

// Groups whose domains are values of a label: spread, affinity and anti-affinity beyond the host. An existing node is in one domain of a
// key or in none. The domain of a new node follows from its template, its shape or its choices (see problem.KeyKind). If choices decide, it
// is open until the first pod comes that has to do with the key.

// admitDomains settles, in the trial, the domain of every key that the pod has to do with. The domains are chosen so that the groups admit
// the pod and minValues are met.
func (f *fleet) admitDomains(q *trial) verdict {
	if len(q.keys) == 0 {
		return f.admitMinValues(q)
	}
	return verdict{code: f.settle(q, 0)}
}

// settle settles the keys from the i-th on. It returns 0, or which kind of constraint left no domain. q.steps[i] holds the choices that the
// keys before it left. For a new bin, q.mask gets what is left after the last key.
func (f *fleet) settle(q *trial, i int) reason.Code {
	isNew := int(q.bin) >= len(f.facts.p.Nodes)
	if i == len(q.keys) {
		if isNew && !f.meetsValues(q, f.bins.node(q.bin), q.steps[i]) {
			return reason.MinValues
		}
		if isNew {
			copy(q.mask, q.steps[i])
		}
		return 0
	}
	to := &q.keys[i]
	d := f.bins.domainOf(to.key, q.bin)
	if d == problem.OpenDomain {
		return f.settleOpen(q, i)
	}
	if code := f.census.admits(to, int(d)); code != 0 {
		return code
	}
	q.domain[to.key] = d
	if isNew {
		copy(q.steps[i+1], q.steps[i])
	}
	return f.settle(q, i+1)
}

// settleOpen tries what a new bin may still be in: no domain of the i-th key first, then its domains in the order of byCount. It keeps the
// first with which all later keys can be settled too. If there is none, it returns why the last of them failed; NoOffering if nothing is
// sold in any.
func (f *fleet) settleOpen(q *trial, i int) reason.Code {
	to, n := &q.keys[i], f.bins.node(q.bin)
	of := f.facts.keyOf(to.key, n.tmpl)
	code := reason.Code(reason.NoOffering)
	domains := f.census.byCount(q, i)
	for at := -1; at < len(domains); at++ {
		d := int32(problem.NoDomain) // first: the node gets the label only if a pod needs it
		if at >= 0 {
			d = domains[at]
		}
		chosen := of.ChoiceOf(d)
		if chosen == nil {
			continue
		}
		mask := q.steps[i+1]
		copy(mask, q.steps[i])
		mask.And(chosen)
		if !f.facts.sells(f.bins.template(n), n.target, mask) {
			continue
		}
		if bad := f.census.admits(to, int(d)); bad != 0 {
			code = bad
			continue
		}
		q.domain[to.key] = d
		if code = f.settle(q, i+1); code == 0 {
			return 0
		}
	}
	return code
}

// admits returns the kind of the first group of a key that keeps a pod out of a domain, 0 if none does. If domains are pinned, only
// anti-affinity is asked.
func (cs *census) admits(to *touch, d int) reason.Code {
	for _, g := range to.shunned {
		if cs.groups[g].Repels(d) {
			return reason.AntiAffinity
		}
	}
	for i, g := range to.owned {
		group := &cs.groups[g]
		if cs.pinned && group.Kind != spread.Anti {
			continue
		}
		if !group.Admits(d, to.self[i], to.reach) {
			return codeOf(group.Kind)
		}
	}
	return 0
}

// keepAdmitted takes choices out of mask that would put a new bin into domains which the groups of a trial do not
// admit, and reports whether enough are left.
func (cs *census) keepAdmitted(q *trial, mask bits.Set) bool {
	n := cs.bins.node(q.bin)
	for k := range q.keys {
		to := &q.keys[k]
		of, d := cs.facts.keyOf(to.key, n.tmpl), cs.bins.domainOf(to.key, q.bin)
		if d != problem.OpenDomain {
			if (of.Kind != problem.ByShape || cs.bins.boundOf(q.bin)[to.key]) && cs.admits(to, int(d)) != 0 {
				return false
			}
			continue
		}
		cs.facts.meter.Charge(work.Units(len(of.Choice) * groupWork))
		admitted := cs.facts.spare
		clear(admitted)
		for d := problem.NoDomain; d < len(of.Choice); d++ {
			if choice := of.ChoiceOf(int32(d)); choice != nil && cs.admits(to, d) == 0 {
				admitted.Or(choice)
			}
		}
		mask.And(admitted)
	}
	tmpl := cs.bins.template(n)
	return tmpl.SellsAny(mask[:len(tmpl.Mask)])
}

// cutRefused takes out shapes that would put a new bin into domains which the groups of a trial do not admit.
func (cs *census) cutRefused(q *trial, shapes bits.Set) {
	for k := range q.keys {
		to := &q.keys[k]
		if of := cs.facts.keyOf(to.key, cs.bins.node(q.bin).tmpl).Shape; of != nil {
			shapes.Only(func(sh int) bool { return cs.admits(to, int(of[sh])) == 0 })
		}
	}
}

// zoneLabel is the key of zones.
const zoneLabel = "topology.kubernetes.io/zone"

// findZoneKey returns the index of the key of zones among the problem's keys, −1 if no pod has to do with zones.
func findZoneKey(p *problem.Problem) int {
	return slices.IndexFunc(p.Keys, func(k problem.Key) bool { return k.Name == zoneLabel })
}

// nodesByZone counts the existing nodes in each zone; nil without a key of zones. bins.inZone begins with these numbers.
func nodesByZone(p *problem.Problem, key int) []int32 {
	if key < 0 {
		return nil
	}
	out := make([]int32, len(p.Keys[key].Values))
	for _, d := range p.Keys[key].Node {
		if d >= 0 {
			out[d]++
		}
	}
	return out
}

// bind gives a new bin its domain of a key for good, because pods are counted in that domain now.
func (b *bins) bind(bin problem.BinID, key int, d int32) {
	if key == b.facts.zoneKey && d >= 0 && !b.boundOf(bin)[key] {
		b.inZone[d]++
	}
	b.domainsOf(bin)[key], b.boundOf(bin)[key] = d, true
}

// byCount returns the domains of the i-th key in the order in which they are tried: for spreads those with the fewest pods first, for
// affinities those with the most. Among equal zones, zoneRank decides if it is set. Otherwise affinities take the zone with the fewest
// nodes, so that pods that could be in any zone are not all in one; spreads take the first by name, so that the odd pods of several classes
// meet in one zone and share nodes there.
func (cs *census) byCount(q *trial, i int) []int32 {
	to := &q.keys[i]
	cs.facts.meter.Charge(work.Units(len(cs.facts.p.Keys[to.key].Values) * groupWork))
	order := q.orders[i][:0]
	for d := range cs.facts.p.Keys[to.key].Values {
		order = append(order, int32(d))
	}
	q.orders[i] = order
	from := to.owned
	if len(from) == 0 {
		from = to.counted
	}
	evenly := to.key == cs.facts.zoneKey && cs.gathers(from)
	before := func(d, e int32) bool {
		x, y := cs.domainRank(from, d), cs.domainRank(from, e)
		if x == y && cs.zoneRank != nil && to.key == cs.facts.zoneKey {
			return cs.zoneRank[d] < cs.zoneRank[e]
		}
		return x < y || x == y && evenly && cs.bins.inZone[d] < cs.bins.inZone[e]
	}
	for a := 1; a < len(order); a++ { // insertion keeps equal domains in the order of their names
		for b := a; b > 0 && before(order[b], order[b-1]); b-- {
			order[b], order[b-1] = order[b-1], order[b]
		}
	}
	return order
}

// gathers reports whether all groups are affinities: they hold their pods together, and none spreads them.
func (cs *census) gathers(groups []int) bool {
	return len(groups) > 0 && !slices.ContainsFunc(groups, func(g int) bool { return cs.groups[g].Kind != spread.Affinity })
}

// domainRank ranks a domain for pods of some groups, the lowest first: a spread wants few pods there, an affinity wants many.
func (cs *census) domainRank(groups []int, d int32) int32 {
	var sum int32
	for _, g := range groups {
		if cs.groups[g].Kind == spread.Affinity {
			sum -= cs.groups[g].At(int(d))
		} else {
			sum += cs.groups[g].At(int(d))
		}
	}
	return sum
}

func (cs *census) takeDomains(q *trial, n int) {
	for k := range q.keys {
		cs.record(&q.keys[k], q.domain[q.keys[k].key], q.bin, n)
	}
}

// openDomains gives a new bin its domain of each key, as far as template and target decide; no pod binds it yet.
func (b *bins) openDomains(bin problem.BinID) {
	n := b.node(bin)
	for k := range b.facts.p.Keys {
		b.domain = append(b.domain, b.facts.keyOf(k, n.tmpl).DomainOf(n.target))
		b.bound = append(b.bound, false)
	}
}

// keepChosen narrows mask to the choices that lead to the domains of a trial, for keys that choices decide. cutChosen does the same for
// keys that the shape decides.
func (cs *census) keepChosen(q *trial, t problem.TemplateID, mask bits.Set) {
	for k := range q.keys {
		key := q.keys[k].key
		if of := cs.facts.keyOf(key, t); of.Kind == problem.ByChoice {
			mask.And(of.ChoiceOf(q.domain[key]))
		}
	}
}

// cutDomains takes out shapes that would put the bin into another domain than its pods were counted in.
func (b *bins) cutDomains(bin problem.BinID, shapes bits.Set) {
	n := b.node(bin)
	for k, bound := range b.boundOf(bin) {
		if of, d := b.facts.keyOf(k, n.tmpl).Shape, b.domainOf(k, bin); bound && of != nil {
			shapes.Only(func(sh int) bool { return of[sh] == d })
		}
	}
}

// cutChosen takes out shapes that are not in the domains of a trial.
func (cs *census) cutChosen(q *trial, t problem.TemplateID, shapes bits.Set) {
	for k := range q.keys {
		if of, d := cs.facts.keyOf(q.keys[k].key, t).Shape, q.domain[q.keys[k].key]; of != nil {
			shapes.Only(func(sh int) bool { return of[sh] == d })
		}
	}
}
