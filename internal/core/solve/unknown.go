package solve

import (
	"slices"

	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/rule/spread"
)

// A new node may be launched in any domain of a topology key if the key does not matter to its pods. Assume that it comes up in a
// domain in which a spread of other pods has no node and could get none. From then on kube-scheduler counts that
// domain with zero pods, and the spread's maxSkew is violated for as long as it stays empty. Such a domain is
// unknown to the spread. So the choices of new nodes are narrowed to domains that every placed spread knows, as far
// as anything is left to choose.

// Unknowns are the domains that the spreads of placed pods do not know.
type unknowns struct {
	domains []bits.Set // by topology key: unknown to at least one spread
	spreads []filtered
}

// A filtered spread counts only nodes that pass its filter. So new nodes in domains that it does not know should not pass the filter.
type filtered struct {
	group int
	known bits.Set // domains with nodes that it counts, and domains in which its owners could get a node
}

// findUnknown returns the domains that spreads of placed pods do not know.
func (sc *schedule) findUnknown() unknowns {
	out := unknowns{domains: make([]bits.Set, len(sc.facts.p.Keys))}
	if len(out.domains) == 0 {
		return out
	}
	known := sc.openedGroups(certain)
	asked := map[*touches]bool{}
	for p := range sc.fleet.bins.puts() {
		if t := sc.required(p.Class); !asked[t] {
			asked[t] = true
			sc.addUnknown(&out, t, known)
		}
	}
	return out
}

// addUnknown adds the domains that the spreads of one class do not know.
func (sc *schedule) addUnknown(out *unknowns, t *touches, known []spread.Group) {
	for k := range t.keys {
		to := &t.keys[k]
		for _, g := range to.owned {
			if sc.fleet.census.groups[g].Kind != spread.Spread {
				continue
			}
			n := len(sc.facts.p.Keys[to.key].Values)
			if out.domains[to.key] == nil {
				out.domains[to.key] = bits.Make(n)
			}
			mine := bits.Make(n)
			for d := range n {
				if known[g].Universe.Has(d) || to.reach.Has(d) {
					mine.Add(d)
				} else {
					out.domains[to.key].Add(d)
				}
			}
			if len(sc.fleet.census.groups[g].Filter) > 0 {
				out.spreads = append(out.spreads, filtered{g, mine})
			}
		}
	}
}

// avoidUnknown keeps new bins out of unknown domains if their pods allow it: it narrows their choices, and gives them another target.
func (sc *schedule) avoidUnknown() {
	unknown := sc.findUnknown().domains
	if !slices.ContainsFunc(unknown, bits.Set.Any) {
		return
	}
	for bin, n := range sc.fleet.bins.newBins() {
		if len(n.puts) == 0 || n.held != problem.NoReservation {
			continue
		}
		sc.retargetFromUnknown(unknown, bin)
		sc.avoidChoices(unknown, bin)
		if n.fixed() || !sc.isUnknown(unknown, bin, n.target) {
			continue
		}
		shapes := sc.fleet.bins.holding(bin, sc.fleet.bins.maskOf(bin), sc.fleet.bins.used(bin), nil)
		sc.fleet.cut(bin, shapes)
		shapes.Only(func(sh int) bool { return !sc.isUnknown(unknown, bin, sh) })
		if sh := sc.fleet.stock.cheapest(n, sc.fleet.bins.maskOf(bin), shapes); sh >= 0 {
			sc.fleet.retarget(bin, sh, n.min)
		}
	}
}

// retargetFromUnknown gives a new bin another target if its target is sold in unknown domains only, and its pods are bound to no domain.
func (sc *schedule) retargetFromUnknown(unknown []bits.Set, bin problem.BinID) {
	n := sc.fleet.bins.node(bin)
	tmpl, less := sc.fleet.bins.template(n), sc.fleet.bins.maskOf(bin).Clone()
	for k := range unknown {
		if of := sc.facts.keyOf(k, n.tmpl); of.Kind == problem.ByChoice && sc.fleet.bins.domainOf(k, bin) == problem.OpenDomain {
			for d := range unknown[k].All() {
				tmpl.Exclude(less, of.Choice[d])
			}
		}
	}
	if n.fixed() || sc.facts.sells(tmpl, n.target, less) || !tmpl.SellsAny(less[:len(tmpl.Mask)]) {
		return
	}
	shapes := sc.fleet.bins.holding(bin, less, sc.fleet.bins.used(bin), nil)
	sc.fleet.cut(bin, shapes)
	if sh := sc.fleet.stock.cheapest(n, less, shapes); sh >= 0 {
		sc.fleet.retarget(bin, sh, n.min)
	}
}

// isUnknown reports whether a new bin of shape sh would be in an unknown domain to which its pods do not bind it.
func (sc *schedule) isUnknown(unknown []bits.Set, bin problem.BinID, sh int) bool {
	for k := range unknown {
		of := sc.facts.keyOf(k, sc.fleet.bins.node(bin).tmpl).Shape
		if of != nil && of[sh] >= 0 && unknown[k].Has(int(of[sh])) && !sc.fleet.bins.boundOf(bin)[k] {
			return true
		}
	}
	return false
}

// avoidChoices takes unknown domains out of the choices of a new bin.
func (sc *schedule) avoidChoices(unknown []bits.Set, bin problem.BinID) {
	n := sc.fleet.bins.node(bin)
	tmpl := sc.fleet.bins.template(n)
	for k := range unknown {
		of := sc.facts.keyOf(k, n.tmpl)
		if of.Kind != problem.ByChoice || sc.fleet.bins.domainOf(k, bin) != problem.OpenDomain {
			continue
		}
		for d := range unknown[k].All() {
			less := sc.facts.spare
			copy(less, sc.fleet.bins.maskOf(bin))
			tmpl.Exclude(less, of.Choice[d])
			if !of.Choice[d].Any() || sc.fleet.bins.maskOf(bin).Equal(less) || !sc.facts.sells(tmpl, n.target, less) ||
				!sc.diverseWith(bin, less) {
				continue
			}
			copy(sc.fleet.bins.maskOf(bin), less)
			to := sc.fleet.bins.narrowed(n)
			to.From = append(to.From, problem.Domain{Key: k, Value: d})
		}
	}
}

// diverseWith reports whether a new bin meets minValues with the choices that mask leaves.
func (sc *schedule) diverseWith(bin problem.BinID, mask bits.Set) bool {
	n := sc.fleet.bins.node(bin)
	if len(sc.fleet.bins.template(n).Min) == 0 {
		return true
	}
	shapes := sc.fleet.bins.holding(bin, mask, sc.fleet.bins.used(bin), nil)
	sc.fleet.cut(bin, shapes)
	return sc.fleet.bins.template(n).MeetsMinValues(shapes, mask, n.lowered())
}

// avoidShapes takes out shapes in unknown domains, and shapes as which the bin would pass the node filter of a spread that does not
// know the bin's domain. It keeps them if minValues cannot be met without them.
func (sc *schedule) avoidShapes(unknown *unknowns, bin problem.BinID, shapes bits.Set) {
	n := sc.fleet.bins.node(bin)
	for k, domains := range unknown.domains {
		of := sc.facts.keyOf(k, n.tmpl).Shape
		if of == nil || !domains.Any() || sc.fleet.bins.boundOf(bin)[k] {
			continue
		}
		sc.onlyDiverse(bin, shapes, func(sh int) bool { return of[sh] < 0 || !domains.Has(int(of[sh])) })
	}
	for _, x := range unknown.spreads {
		group := &sc.fleet.census.groups[x.group]
		foreign := func(d int32) bool { return !x.known.Has(int(d)) }
		if !sc.fleet.census.countsAs(group, bin, n.target) && slices.ContainsFunc(sc.mayBeIn(group.Key, bin, nil), foreign) {
			sc.onlyDiverse(bin, shapes, func(sh int) bool { return !sc.fleet.census.countsAs(group, bin, sh) })
		}
	}
}

// onlyDiverse keeps only the wanted shapes of a new bin, unless minValues then fail or the bin's target is not wanted.
func (sc *schedule) onlyDiverse(bin problem.BinID, shapes bits.Set, wanted func(sh int) bool) {
	n := sc.fleet.bins.node(bin)
	before := shapes.Clone()
	shapes.Only(wanted)
	if !sc.fleet.bins.template(n).MeetsMinValues(shapes, sc.fleet.bins.maskOf(bin), n.lowered()) || !shapes.Has(n.target) {
		shapes.Copy(before)
	}
}
