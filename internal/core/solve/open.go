package solve

import (
	"slices"

	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/reason"
)

// An opener chooses the machine of a new node for the pods of one class, and opens it.
type opener struct {
	facts *facts
	fleet *fleet
	visit visit
	worth unitWorth // of the room of machines; see price.go
	size  Size      // which machine is preferred
}

// A target is what a new node could be: a template, and the shape that it is filled for.
type target struct {
	tmpl  problem.TemplateID
	shape int
	price int64
	value int64    // what its room is worth, as far as pods are left that could use it; for glued pods how many of them fit
	min   *minimum // how it meets minValues; nil without
	unmet int      // if there is no target because of minValues: index of the number in Template.Min that cannot be met
}

// A run is the templates from one (inclusive) to another (exclusive): those of a tier, or just one.
type run struct{ from, to problem.TemplateID }

// tierRun returns the templates of a tier.
func (op *opener) tierRun(tier int) run {
	at := func(tier int) problem.TemplateID {
		i, _ := slices.BinarySearchFunc(op.facts.p.Templates, tier, func(t problem.Template, tier int) int { return t.Tier - tier })
		return problem.TemplateID(i)
	}
	return run{at(tier), at(tier + 1)}
}

// openFor opens a new node in the given tier for one pod of a trial and places the pod there. It returns 0, or why no node can be opened.
func (op *opener) openFor(q *trial, tier int) reason.Code {
	if code := op.newHostRefuses(q); code != 0 {
		return code
	}
	if op.fleet.heldOff(q, op.fleet.bins.next()) {
		return reason.DeviceAt
	}
	best, code := op.targetFrom(q, op.tierRun(tier), 0)
	if code != 0 {
		return code
	}
	q.bin = op.fleet.addBin(best)
	copy(q.mask, op.fleet.bins.maskOf(q.bin))
	op.narrow(q, best.tmpl, q.mask)
	op.fleet.stock.holdReserved(op.fleet.bins.node(q.bin), q.mask)
	op.fleet.commit(q, 1)
	return 0
}

// newHostRefuses returns the kind of host-level group that keeps the pod off a new, empty node, 0 if none does. If groups count daemons,
// the node will not be empty, and refusesFirst asks later.
func (op *opener) newHostRefuses(q *trial) reason.Code {
	if op.facts.arrival != nil {
		return 0
	}
	return op.fleet.census.refusesOwners(q.touches, op.fleet.bins.next())
}

// targetFrom chooses the domains of a trial's keys from the i-th on, and the best target among some templates there. It returns the target
// of the first combination of domains, in the order of byCount, that works; q.domain then holds these domains. A node without the label is
// tried first if some template gives the label only to pods that ask for it, else last. If nothing works, it returns no target and
// the last refusal by a template, or by a group if no template was reached.
func (op *opener) targetFrom(q *trial, among run, i int) (target, reason.Code) {
	if i == len(q.keys) {
		return op.bestTarget(q, among)
	}
	to := &q.keys[i]
	if op.facts.arrival != nil && len(to.owned)+len(to.counted) == 0 {
		return op.targetAnywhere(q, among, i)
	}
	bare := op.admitsFirst(to, problem.NoDomain) == 0
	if bare && op.leavesOut(to.key, among) { // a node gets no label that no pod asks for
		q.domain[to.key] = problem.NoDomain
		if got, bad := op.targetFrom(q, among, i+1); bad == 0 {
			return got, 0
		}
	}
	best, code := target{}, codeOfTouch(op.facts.p, to)
	reached := false // there was a domain that the groups admit, and in which some template has nodes
	order := op.fleet.census.byCount(q, i)
	for at, d := range order {
		if bad := op.admitsFirst(to, int(d)); bad != 0 {
			if !reached {
				code = bad
			}
			continue
		}
		q.domain[to.key] = d
		got, bad := op.targetFrom(q, among, i+1)
		if bad == 0 {
			return op.betterTarget(q, among, i, order[at:], got), 0
		}
		if bad != reason.NoShape { // NoShape: no template is in that domain, which explains nothing
			best, code, reached = got, bad, true
		}
	}
	if bare {
		q.domain[to.key] = problem.NoDomain
		if got, bad := op.targetFrom(q, among, i+1); bad != reason.NoShape {
			return got, bad
		}
	}
	return best, code
}

// betterTarget returns a better target than best if there is one, and sets q.domain to its domains. best is in the first of the given
// domains. If the pods want to be together, it tries the domains that rank equal to the first: all pods will follow, so a cheaper machine
// there is worth more than the order of names.
func (op *opener) betterTarget(q *trial, among run, i int, domains []int32, best target) target {
	to := &q.keys[i]
	from := to.owned
	if len(from) == 0 {
		from = to.counted
	}
	if !op.fleet.census.gathers(from) || op.fleet.census.zoneRank != nil && to.key == op.facts.zoneKey {
		return best
	}
	chosen := append([]int32(nil), q.domain...)
	for _, d := range domains[1:] {
		if op.fleet.census.domainRank(from, d) != op.fleet.census.domainRank(from, domains[0]) || to.key == op.facts.zoneKey &&
			op.fleet.bins.inZone[d] != op.fleet.bins.inZone[domains[0]] {
			break
		}
		if op.admitsFirst(to, int(d)) != 0 {
			continue
		}
		q.domain[to.key] = d
		if got, bad := op.targetFrom(q, among, i+1); bad == 0 && op.prefers(q, got, best) {
			best = got
			copy(chosen, q.domain)
		}
	}
	copy(q.domain, chosen)
	return best
}

// targetAnywhere does what targetFrom does for a key that matters only to daemons on the node: it returns the best target of all domains,
// and of a node without the label.
func (op *opener) targetAnywhere(q *trial, among run, i int) (target, reason.Code) {
	key := q.keys[i].key
	best, code := target{tmpl: noTemplate}, reason.Code(reason.NoShape)
	chosen := append([]int32(nil), q.domain...)
	for d := int32(problem.NoDomain); int(d) < len(op.facts.p.Keys[key].Values); d++ {
		q.domain[key] = d
		got, bad := op.targetFrom(q, among, i+1)
		switch {
		case bad != 0 && best.tmpl < 0 && bad != reason.NoShape:
			code = bad
		case bad == 0 && (best.tmpl < 0 || op.better(got, best)):
			best, code = got, 0
			copy(chosen, q.domain)
		}
	}
	copy(q.domain, chosen)
	return best, code
}

// admitsFirst asks the groups of a key about the first pod on a new node in domain d, and returns the code of the refusal. If groups count
// daemons, it returns 0, and refusesFirst asks later with the daemons counted.
func (op *opener) admitsFirst(to *touch, d int) reason.Code {
	if op.facts.arrival != nil {
		return 0
	}
	return op.fleet.census.admits(to, d)
}

// leavesOut reports whether some of the templates have the label of a key only if a pod asks for it.
func (op *opener) leavesOut(key int, among run) bool {
	return slices.ContainsFunc(op.facts.p.Keys[key].Tmpl[among.from:among.to], func(k problem.KeyOf) bool { return k.None != nil })
}

// codeOfTouch returns the code of a refusal if no domain of a key is left to try.
func codeOfTouch(p *problem.Problem, to *touch) reason.Code {
	if len(to.owned) > 0 {
		return codeOf(p.Groups[to.owned[0]].Kind)
	}
	return reason.NoShape
}
