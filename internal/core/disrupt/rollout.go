package disrupt

import (
	"slices"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/core/rollout"
)

// withoutHeldRollouts leaves out drifted nodes of pools whose RolloutPolicy lets none go now, and notes why they stay.
func (p *pass) withoutHeldRollouts(drifted []*Candidate) []*Candidate {
	return slices.DeleteFunc(drifted, func(c *Candidate) bool {
		why, held := p.survey.heldByRollout(c, v1.DisruptionReasonDrifted)
		if held {
			p.search.hold(v1.DisruptionReasonDrifted, c, why)
			p.out.by(why.Until)
		}
		return held
	})
}

// heldByRollout reports whether a RolloutPolicy keeps a node from going now for a reason, and why.
func (s *survey) heldByRollout(c *Candidate, reason v1.DisruptionReason) (why Refusal, held bool) {
	a, bound := s.w.Rollouts[c.Pool.Name]
	switch {
	case !bound:
		return Refusal{}, false
	case reason == v1.DisruptionReasonDrifted && a.More <= 0:
		return Refusal{Code: Rollout, Reason: reason, Name: a.Policy, Value: string(a.State), Until: a.Until, Detail: a.Detail}, true
	case reason == v1.DisruptionReasonUnderutilized && a.Still:
		return Refusal{Code: Rollout, Reason: reason, Name: a.Policy, Value: string(rollout.Rolling)}, true
	}
	return Refusal{}, false
}

// together returns the part of a window that one question is asked about. It is all of it, unless a pool in the window has a rollout
// under way: such a pool gets machines for its own drifted nodes only, so then it is the nodes of the pool of the first one.
func (s *search) together(window []*Candidate) []*Candidate {
	if !slices.ContainsFunc(window, func(c *Candidate) bool { return s.survey.w.Rollouts[c.Pool.Name].Still }) {
		return window
	}
	return slices.DeleteFunc(window, func(c *Candidate) bool { return c.Pool.Name != window[0].Pool.Name })
}
