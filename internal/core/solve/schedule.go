package solve

import (
	"slices"

	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/rule/spread"
	"karpenter.sh/karpenter/internal/core/work"
)

// A schedule simulates how kube-scheduler binds the pods of a plan. kube-scheduler does not know the plan, so a plan holds only if
// kube-scheduler can bind all pods to their planned nodes in its own order.
//
// Start: all new nodes of the plan exist, and no planned pod is bound. For each group of pods (a spread, an affinity, an
// anti-affinity) a census counts the pods in each domain. Every node of the plan makes its domain known.
//
// Order: pods wait in the problem's queue, by priority and then by age. The simulation binds a pod to the first planned place of its
// class that the census admits, and the census counts it there. A refused pod is tried again only after another pod was bound, because
// nothing else can change the answer.
//
// Result: misplaced returns the pods that still wait after a whole pass over the queue bound none, with their planned places.
//
// Why it ends: each pass binds at least one pod or is the last one, so there are at most as many passes as pods. Nothing is simulated
// if the order cannot matter; see disputed.
//
// As in kube-scheduler, a preference refuses no node, and a domain exists only if some node is in it.
type schedule struct {
	facts *facts
	fleet *fleet
	ties  *ties
}

// required returns the groups of a class's last variant, which has given up all preferences: kube-scheduler refuses no node because of
// a preference.
func (sc *schedule) required(ci problem.ClassID) *touches {
	return sc.ties.touchesOf(ci, len(sc.facts.p.Classes[ci].Variants)-1)
}

// misplaced returns the pods that kube-scheduler would refuse to bind to their planned nodes, with these nodes.
func (sc *schedule) misplaced() []problem.Put {
	places := sc.places()
	if !sc.disputed(places) {
		return nil
	}
	seen := *sc.fleet.census // kube-scheduler's counts, while pods bind one by one
	seen.groups = sc.openedGroups(possible)
	waiting, bound := slices.Clone(sc.facts.p.Queue), 1 // bound is the number of bound pods, plus one
	refused := make([]int, len(places))                 // by class: bound when a pod was last refused; 0: none was
	for before := 0; before != bound; {                 // a pass over the queue, until one binds nothing
		before = bound
		still := waiting[:0]
		for _, ci := range waiting {
			switch {
			case len(places[ci]) == 0: // all planned pods of the class are bound, so the others have no place
			case refused[ci] != bound && sc.bindOne(&seen, problem.ClassID(ci), places):
				bound++
			default:
				refused[ci] = bound
				still = append(still, ci)
			}
		}
		waiting = still
	}
	return slices.Concat(places...)
}

// places returns, by class, where the plan puts the pods of that class. A class without pods in the queue has no places.
func (sc *schedule) places() [][]problem.Put {
	queued := bits.Make(len(sc.facts.p.Classes))
	for _, ci := range sc.facts.p.Queue {
		queued.Add(int(ci))
	}
	out := make([][]problem.Put, len(sc.facts.p.Classes))
	for p := range sc.fleet.bins.puts() {
		if queued.Has(int(p.Class)) {
			out[p.Class] = append(out[p.Class], *p)
		}
	}
	return out
}

// bindOne binds one pod of a class to the first of its planned places that admits it, and takes the pod off places. It reports whether
// any place admitted the pod.
func (sc *schedule) bindOne(seen *census, ci problem.ClassID, places [][]problem.Put) bool {
	t := sc.required(ci)
	for at := range places[ci] {
		p := &places[ci][at]
		// Only groups are asked here, so this costs less than a trial.
		sc.facts.meter.Charge(tryWork/5 + work.Units(len(t.host.shunned)+len(t.host.owned)+len(t.keys))*groupWork)
		if !sc.wouldBind(seen, t, p.Bin) {
			continue
		}
		seen.record(&t.host, int32(p.Bin), p.Bin, 1)
		for k := range t.keys {
			seen.record(&t.keys[k], sc.fleet.bins.domainOf(t.keys[k].key, p.Bin), p.Bin, 1)
		}
		if p.Count--; p.Count == 0 {
			places[ci] = slices.Delete(places[ci], at, at+1)
		}
		return true
	}
	return false
}

// wouldBind reports whether kube-scheduler would let a pod onto a bin, given the pods that seen counts as bound. It asks as census.admits
// does, but ignores the reach of spreads: for kube-scheduler a domain exists only once a node is in it.
func (sc *schedule) wouldBind(seen *census, t *touches, bin problem.BinID) bool {
	if seen.refusesHost(t, bin) != 0 {
		return false
	}
	for k := range t.keys {
		to := &t.keys[k]
		d := int(sc.fleet.bins.domainOf(to.key, bin))
		for _, g := range to.shunned {
			if seen.groups[g].Repels(d) {
				return false
			}
		}
		for i, g := range to.owned {
			if !seen.groups[g].Admits(d, to.self[i], nil) { // nil instead of to.reach
				return false
			}
		}
	}
	return true
}

// disputed reports whether the order of binding could make kube-scheduler refuse a planned pod. The order cannot matter if every pod that
// a constraint counts also carries that constraint, and no new node opens a domain that the constraint did not know when the pods were
// placed: then a pod for the emptiest domain can always be bound next.
func (sc *schedule) disputed(places [][]problem.Put) bool {
	if sc.facts.arrival != nil {
		return true
	}
	owned := bits.Make(len(sc.fleet.census.groups))
	opened := sc.openedDomains()
	for ci := range places {
		if len(places[ci]) == 0 {
			continue
		}
		t := sc.required(problem.ClassID(ci))
		spreads := 0
		for k := range t.keys {
			if t.keys[k].reach != nil {
				spreads++
			}
			if sc.opensUnknown(&t.keys[k], opened) {
				return true
			}
			sc.markOwned(owned, &t.keys[k])
		}
		if spreads > 1 {
			return true // a pod that one spread admits may be refused by another
		}
		sc.markOwned(owned, &t.host)
	}
	for ci := range places {
		if len(places[ci]) == 0 {
			continue
		}
		for _, g := range sc.facts.p.Classes[ci].Groups {
			if v := sc.facts.p.Classes[ci].Variants; owned.Has(g) && !slices.Contains(v[len(v)-1].Owns, g) {
				return true
			}
		}
	}
	return false
}

// markOwned adds to owned the spreads and affinities that the pods carry. It leaves out anti-affinities: whether two pods
// may meet does not depend on which of them is bound first.
func (sc *schedule) markOwned(owned bits.Set, to *touch) {
	for _, g := range to.owned {
		if sc.fleet.census.groups[g].Kind != spread.Anti {
			owned.Add(g)
		}
	}
}

// opensUnknown reports whether a new node may be in a domain that one of the pods' spreads did not know when the pods were placed.
func (sc *schedule) opensUnknown(to *touch, opened []bits.Set) bool {
	for _, g := range to.owned {
		if sc.fleet.census.groups[g].Kind != spread.Spread {
			continue
		}
		for d := range opened[to.key].All() {
			if !sc.facts.p.Groups[g].Universe.Has(d) && !to.reach.Has(d) {
				return true
			}
		}
	}
	return false
}

// openedDomains returns, by topology key, the domains in which new nodes may be.
func (sc *schedule) openedDomains() []bits.Set {
	out, unknown := make([]bits.Set, len(sc.facts.p.Keys)), sc.unknownDomains()
	for key := range out {
		out[key] = bits.Make(len(sc.facts.p.Keys[key].Values))
		for _, in := range sc.mayAllBeIn(key, unknown) {
			for _, d := range in {
				out[key].Add(int(d))
			}
		}
	}
	return out
}

// mayAllBeIn returns the result of mayBeIn for each new bin.
func (sc *schedule) mayAllBeIn(key int, unknown []bits.Set) [][]int32 {
	out := make([][]int32, len(sc.fleet.bins.news))
	for bin := range sc.fleet.bins.newBins() {
		out[int(bin)-len(sc.facts.p.Nodes)] = sc.mayBeIn(key, bin, unknown)
	}
	return out
}

// mayBeIn returns the domains of a topology key in which a new bin may come up, if it is launched as its target. If minValues make the
// claim list several types, and the type decides the domain, it returns the domains of all these types (see shapesIn). unknown is from
// unknownDomains; with nil only the target counts.
func (sc *schedule) mayBeIn(key int, bin problem.BinID, unknown []bits.Set) []int32 {
	n := sc.fleet.bins.node(bin)
	of := sc.facts.keyOf(key, n.tmpl)
	switch d := sc.fleet.bins.domainOf(key, bin); {
	case len(n.puts) == 0 || d == problem.NoDomain:
		return nil
	case of.Kind == problem.ByShape && unknown != nil && len(sc.fleet.bins.template(n).Min) > 0 && !sc.fleet.bins.boundOf(bin)[key]:
		return sc.shapesIn(of, bin, unknown[key])
	case d != problem.OpenDomain:
		return sc.fleet.bins.domainsOf(bin)[key : key+1]
	}
	var out []int32
	mask := sc.facts.spare
	for d, choice := range of.Choice {
		if choice == nil {
			continue
		}
		copy(mask, sc.fleet.bins.maskOf(bin))
		mask.And(choice)
		if sc.facts.sells(sc.fleet.bins.template(n), n.target, mask) {
			out = append(out, int32(d))
		}
	}
	return out
}

// shapesIn returns the domains of all shapes as which a new bin may be launched. It leaves out shapes in unknown domains if minValues
// can be met without them.
func (sc *schedule) shapesIn(of *problem.KeyOf, bin problem.BinID, unknown bits.Set) []int32 {
	n := sc.fleet.bins.node(bin)
	shapes := sc.fleet.bins.holding(bin, sc.fleet.bins.maskOf(bin), sc.fleet.bins.used(bin), nil)
	sc.fleet.cut(bin, shapes)
	sc.onlyDiverse(bin, shapes, func(sh int) bool { return of.Shape[sh] < 0 || !unknown.Has(int(of.Shape[sh])) })
	out := []int32{of.Shape[n.target]}
	for sh := range shapes.All() {
		if d := of.Shape[sh]; d >= 0 && !slices.Contains(out, d) {
			out = append(out, d)
		}
	}
	return out
}

// unknownDomains returns, by topology key, the domains that some spread does not know. It returns nil if no pool has minValues: only
// minValues can force a claim to list a type in such a domain.
func (sc *schedule) unknownDomains() []bits.Set {
	if !sc.facts.diverse {
		return nil
	}
	return sc.findUnknown().domains
}

// A domainChance says in which domains a new node counts as a node.
type domainChance bool

const (
	possible domainChance = false // in all domains where it may come up
	certain  domainChance = true  // in a domain only if it cannot come up in another
)

// openedGroups returns the constraints as they are when all new nodes exist and no planned pod is bound: each new node makes its domains
// known, those that which names.
func (sc *schedule) openedGroups(which domainChance) []spread.Group {
	out := make([]spread.Group, len(sc.facts.p.Groups))
	var unknown []bits.Set
	if which == possible {
		unknown = sc.unknownDomains()
	}
	mayBe := make([][][]int32, len(sc.facts.p.Keys)) // by key and new bin
	for g := range out {
		out[g] = sc.facts.p.Groups[g].Clone()
		group := &out[g]
		if group.Kind != spread.Spread || group.Key == spread.Host {
			continue
		}
		if mayBe[group.Key] == nil {
			mayBe[group.Key] = sc.mayAllBeIn(group.Key, unknown)
		}
		for bin := range sc.fleet.bins.newBins() {
			in := mayBe[group.Key][int(bin)-len(sc.facts.p.Nodes)]
			if which == certain && (len(in) != 1 || !sc.settled(group.Key, bin)) {
				continue
			}
			for _, d := range in {
				if !group.Universe.Has(int(d)) && sc.fleet.census.counts(group, bin) {
					group.Know(int(d))
				}
			}
		}
	}
	for bin, n := range sc.fleet.bins.newBins() {
		if sc.facts.arrival != nil && len(n.puts) > 0 {
			sc.fleet.census.arrive(out, bin)
		}
	}
	return out
}

// settled reports whether all machines and choices that are left to a new bin are in the same domain of a key.
func (sc *schedule) settled(key int, bin problem.BinID) bool {
	n := sc.fleet.bins.node(bin)
	of := sc.facts.keyOf(key, n.tmpl)
	if of.Kind != problem.ByChoice || sc.fleet.bins.domainOf(key, bin) != problem.OpenDomain {
		return of.Kind != problem.ByShape || sc.fleet.bins.boundOf(bin)[key]
	}
	left := 0 // domains in which its choices leave some machine to buy
	for _, choice := range of.Choice {
		if choice == nil {
			continue
		}
		mask := sc.facts.spare
		copy(mask, sc.fleet.bins.maskOf(bin))
		mask.And(choice)
		if sc.fleet.bins.template(n).SellsAny(mask[:len(sc.fleet.bins.template(n).Mask)]) {
			left++
		}
	}
	return left <= 1
}
