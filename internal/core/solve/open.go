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
	worth unitWorth // of what machines hold; see price.go
	size  Size
}

// A target is what a new node could be: a template, and the shape that it is filled for.
type target struct {
	tmpl  problem.TemplateID
	shape int
	price int64
	value int64 // of the demand that it could hold
	min   *minimum
	unmet int // of a refusal for minValues: which of the template's cannot be met
}

// A run is neighbouring templates: those of a tier, or just one.
type run struct{ from, to problem.TemplateID }

// tierRun returns the templates of a tier.
func (op *opener) tierRun(tier int) run {
	at := func(tier int) problem.TemplateID {
		i, _ := slices.BinarySearchFunc(op.facts.p.Templates, tier, func(t problem.Template, tier int) int { return t.Tier - tier })
		return problem.TemplateID(i)
	}
	return run{at(tier), at(tier + 1)}
}

// openFor opens a new node in the given tier for one pod of a trial and places the pod there. It returns the reason if there is none.
func (op *opener) openFor(q *trial, tier int) reason.Code {
	if code := op.openHost(q); code != 0 {
		return code
	}
	if op.fleet.heldOff(q, op.fleet.bins.next()) {
		return reason.DeviceAt
	}
	best, code := op.openFrom(q, op.tierRun(tier), 0)
	if code != 0 {
		return code
	}
	q.bin = op.fleet.open(best)
	copy(q.mask, op.fleet.bins.maskOf(q.bin))
	op.narrow(q, best.tmpl, q.mask)
	op.fleet.stock.hold(op.fleet.bins.node(q.bin), q.mask)
	op.fleet.commit(q, 1)
	return 0
}

// openHost asks the host-level groups about a new, empty node.
func (op *opener) openHost(q *trial) reason.Code {
	if op.facts.arrival != nil {
		return 0 // it will not be empty; see expected
	}
	return op.fleet.census.refusesOwners(q.touches, op.fleet.bins.next())
}

// openFrom settles the domains of the touched keys from the i-th on, in the order of preference, and chooses the best target
// among some templates.
func (op *opener) openFrom(q *trial, among run, i int) (target, reason.Code) {
	if i == len(q.keys) {
		return op.bestTarget(q, among)
	}
	to := &q.keys[i]
	if op.facts.arrival != nil && len(to.owned)+len(to.counted) == 0 {
		return op.openAnywhere(q, among, i)
	}
	bare := op.admitsFirst(to, problem.NoDomain) == 0
	if bare && op.leavesOut(to.key, among) { // a node gets no label that no pod asks for
		q.domain[to.key] = problem.NoDomain
		if got, bad := op.openFrom(q, among, i+1); bad == 0 {
			return got, 0
		}
	}
	best, code := target{}, codeOfTouch(op.facts.p, to)
	reached := false // a domain that the groups admit and some template is in
	order := op.fleet.census.byCount(q, i)
	for at, d := range order {
		if bad := op.admitsFirst(to, int(d)); bad != 0 {
			if !reached {
				code = bad
			}
			continue
		}
		q.domain[to.key] = d
		got, bad := op.openFrom(q, among, i+1)
		if bad == 0 {
			return op.openBetter(q, among, i, order[at:], got), 0
		}
		if bad != reason.NoShape { // else no template is in that domain, which explains nothing
			best, code, reached = got, bad, true
		}
	}
	if bare {
		q.domain[to.key] = problem.NoDomain
		if got, bad := op.openFrom(q, among, i+1); bad != reason.NoShape {
			return got, bad
		}
	}
	return best, code
}

// openBetter looks for a better target than that of the first of some domains in those that are equal to it for
// pods which want to be together: wherever they begin, all of them will be.
func (op *opener) openBetter(q *trial, among run, i int, domains []int32, best target) target {
	to := &q.keys[i]
	from := to.owned
	if len(from) == 0 {
		from = to.counted
	}
	if !op.fleet.census.gather(from) || op.fleet.census.zoneRank != nil && to.key == op.facts.zones {
		return best
	}
	chosen := append([]int32(nil), q.domain...)
	for _, d := range domains[1:] {
		if op.fleet.census.populated(from, d) != op.fleet.census.populated(from, domains[0]) || to.key == op.facts.zones &&
			op.fleet.bins.inZone[d] != op.fleet.bins.inZone[domains[0]] {
			break
		}
		if op.admitsFirst(to, int(d)) != 0 {
			continue
		}
		q.domain[to.key] = d
		if got, bad := op.openFrom(q, among, i+1); bad == 0 && op.prefers(q, got, best) {
			best = got
			copy(chosen, q.domain)
		}
	}
	copy(q.domain, chosen)
	return best
}

// openAnywhere is openFrom for a key that pods have nothing to do with but for the daemons beside them: the best of all domains is theirs.
func (op *opener) openAnywhere(q *trial, among run, i int) (target, reason.Code) {
	key := q.keys[i].key
	best, code := target{tmpl: noTemplate}, reason.Code(reason.NoShape)
	chosen := append([]int32(nil), q.domain...)
	for d := int32(problem.NoDomain); int(d) < len(op.facts.p.Keys[key].Values); d++ {
		q.domain[key] = d
		got, bad := op.openFrom(q, among, i+1)
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

// admitsFirst asks the groups of a key about the first pod on a new node. Where daemons are counted, that is asked later, with these.
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

func codeOfTouch(p *problem.Problem, to *touch) reason.Code {
	if len(to.owned) > 0 {
		return codeOf(p.Groups[to.owned[0]].Kind)
	}
	return reason.NoShape
}
