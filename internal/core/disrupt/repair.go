package disrupt

import (
	"cmp"
	"slices"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/lifecycle"
	"karpenter.sh/karpenter/internal/core/movable"
)

// Repair replaces or reboots broken nodes: nodes with a fault that has lasted for longer than the provider's policies tolerate. It differs
// from drift in what keeps a node:
//
//   - The annotation do-not-disrupt on Node or claim does not, nor that the node was never initialised.
//   - Protected pods do, unless a grace period bounds the drain.
//   - The annotation do-not-repair does.
//   - If more than a fifth of the pool is broken, all its nodes stay: the cause is hardly in the machines.
//
// Before a node is replaced, each of its pods that will come back must have another place, even if it could not be evicted now. Pods of a
// node that is rebooted go where there is room, or come back to it.

// due reports whether the node has a fault for which it may be repaired now.
func (c *Candidate) due(s *survey) bool { return c.Fault != nil && !c.Fault.Due.After(s.w.Now) }

// broken returns the nodes that may be repaired now, the highest score of their faults first, and why the others that are due stay.
func (s *survey) broken() (out []*Candidate, stay []Refusal) {
	for _, c := range s.rows {
		if s.busy(c) || !c.due(s) {
			continue
		}
		if why := s.keepsBroken(c); why.Code != "" {
			why.Reason = v1.DisruptionReasonUnhealthy
			stay = append(stay, why.of(c))
			continue
		}
		out = append(out, c.forRepair())
	}
	slices.SortFunc(out, func(a, b *Candidate) int {
		return cmp.Or(cmp.Compare(b.Fault.Score, a.Fault.Score), cmp.Compare(a.Cost, b.Cost), cmp.Compare(a.Name(), b.Name()))
	})
	return out, stay
}

// keepsBroken returns what keeps a node that is due from being repaired, apart from budgets; the code is "" if nothing does. It ignores
// those blocks that do not count for repair (see Repair above).
func (s *survey) keepsBroken(c *Candidate) Refusal {
	if b := c.Block; b != nil && b.Code != NodeProtected && b.Code != ClaimProtected && b.Code != NotInitialized && b.Code != Awaited {
		return *b
	}
	if c.Pool == nil { // a node that was never initialised is blocked for that before its pool is looked at
		return Refusal{Code: NoPool}
	}
	if lifecycle.RepairForbidden(c.Node.Node, c.Node.Claim) != "" {
		return Refusal{Code: RepairForbidden, Name: v1.DoNotRepairAnnotationKey}
	}
	if sum := s.pools[c.Pool.Name]; lifecycle.TooManyAil(sum.faulty, sum.nodes) {
		return Refusal{Code: TooManyBroken, Name: c.Pool.Name, Have: float64(sum.faulty), Need: float64(sum.nodes)}
	}
	if c.Held != nil && c.Fault.Grace == nil {
		return *c.Held
	}
	return Refusal{}
}

// forRepair returns a copy of the candidate whose Pods are all that will come back and so need a place, even those that could not be
// evicted now.
func (c *Candidate) forRepair() *Candidate {
	out := *c
	out.Pods = nil
	for _, p := range c.Node.Pods {
		if movable.Reschedulable(p) {
			out.Pods = append(out.Pods, p)
		}
	}
	return &out
}

// mendable reports whether a broken node is to be rebooted and not replaced. A node that has drifted is replaced anyway. Without a boot id
// the reboot would not be noticed. In pools whose steps need approval, nodes are replaced: plans describe no reboots.
func (c *Candidate) mendable() bool {
	return c.Fault.Reboot && c.Drifted == nil && c.Node.Initialized() && c.Node.Node.Status.NodeInfo.BootID != "" &&
		!c.Pool.AsksApproval()
}

// reboots returns a step for each broken node that is to be rebooted, in their order and as far as budgets allow, and the nodes that are
// not mendable. A mendable node that the budgets do not allow now is in neither.
func (s *search) reboots(of replacing, counted []*Candidate) (steps []*Step, others []*Candidate) {
	now := s.ledger.Fits(of.reason, counted)
	for _, c := range counted {
		switch {
		case !c.mendable():
			others = append(others, c)
		case slices.Contains(now, c) && s.ledger.Take(of.reason, []*Candidate{c}):
			steps = append(steps, &Step{Method: of.method, Reason: of.reason, Remove: []*Candidate{c}, Reboot: true, Before: c.Price,
				After: c.Price, Worst: c.Price})
		}
	}
	return steps, others
}

// repairs returns the steps that reboot or replace broken nodes as far as budgets allow. Nodes that were never initialised count in no
// budget, so none keeps them; but a node that did not come back from a reboot counts. No pod is placed onto a broken node (closed). What
// keeps a node that finds no replacement is noted with hold.
func (s *search) repairs(broken []*Candidate) []*Step {
	of := replacing{method: Repair, reason: v1.DisruptionReasonUnhealthy, closed: map[string]bool{}}
	var counted, others []*Candidate
	for _, c := range broken {
		of.closed[c.Name()] = true
		if c.Node.Initialized() {
			counted = append(counted, c)
		} else {
			others = append(others, c)
		}
	}
	steps, counted := s.reboots(of, counted)
	replaced := slices.DeleteFunc(slices.Clone(broken), (*Candidate).mendable)
	counted, others = slices.DeleteFunc(counted, (*Candidate).Static), slices.DeleteFunc(others, (*Candidate).Static)
	steps = append(steps, s.replace(of, counted)...)
	for _, c := range others {
		if c.rebooted && len(s.ledger.Fits(of.reason, []*Candidate{c})) == 0 {
			continue
		}
		question := engine.Question{Gone: goneBy(steps), Closed: union(s.survey.closed, of.closed)}
		answer := s.whatIf.insist(of.reason, []*Candidate{c}, question)
		for i := range answer.parts {
			if !c.rebooted || s.ledger.Take(of.reason, []*Candidate{c}) {
				steps = append(steps, of.step(&answer.parts[i]))
			}
		}
		for c, stuck := range answer.refused {
			s.hold(of.reason, c, noPlace(stuck))
		}
	}
	return append(steps, s.replaceStatic(of, replaced)...)
}

// goneBy names the nodes that steps remove.
func goneBy(steps []*Step) map[string]bool {
	gone := map[string]bool{}
	for _, step := range steps {
		for _, c := range step.Remove {
			gone[c.Name()] = true
		}
	}
	return gone
}
