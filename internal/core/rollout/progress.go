package rollout

import (
	"cmp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
)

// A Look is what the loop has found out about a pool in one turn.
type Look struct {
	Pool     *v1.NodePool
	Revision string
	Fleet    *Fleet
	Resumed  bool // it was stopped by a gate and is not paused any more
	Trips    bool // a gate of its policy trips
	Waits    bool // a new machine, or a pod on one, is neither ready nor late, or a gate has not answered
}

// Next returns the entry of a pool in the status of the policy after a look at it. was is the entry before, nil if there was none.
//
// The cases are those of the table in the package doc, in order of precedence: a new revision, a stop by a gate or its end, the begin of a
// rollout, and its progress. If machines of the rollout have drifted, what new machines are made from has changed, and it begins anew.
func (p *Policy) Next(was *v1alpha1.RolloutPool, at *Look, now time.Time) v1alpha1.RolloutPool {
	stamp := func() *metav1.Time { return &metav1.Time{Time: now.UTC().Truncate(time.Second)} }
	fresh := v1alpha1.RolloutPool{Name: at.Pool.Name, Revision: at.Revision}
	if was != nil {
		fresh.LastGood = was.LastGood
	}
	if was == nil || was.Revision != at.Revision {
		if at.Fleet.Drifted > 0 {
			fresh.Since = stamp()
		}
		return fresh
	}
	next := *was
	switch {
	case was.Tripped != nil && at.Resumed:
		next.Tripped, next.Evidence, next.JudgedSince = nil, "", stamp()
	case was.Tripped != nil:
	case at.Trips:
		next.Tripped = stamp()
	case was.Since == nil && at.Fleet.Drifted > 0, was.Since != nil && at.Fleet.Stale > 0:
		fresh.Since = stamp()
		return fresh
	case was.Since != nil:
		p.advance(&next, at, stamp())
	}
	return next
}

// advance takes a rollout to its next stage, if the present one is over: a step that is taken begins to be watched, and a step that has
// been watched passes. If no node is left to be replaced, the rollout ends and its state is remembered as LastGood.
func (p *Policy) advance(e *v1alpha1.RolloutPool, at *Look, now *metav1.Time) {
	steps := len(p.Object.Spec.Steps)
	inSteps := int(e.Step) < steps
	taken := at.Fleet.Drifted == 0 || inSteps && len(at.Fleet.Fresh) >= p.target(int(e.Step), at.Fleet.Nodes)
	switch {
	case !taken || at.Fleet.Leaving > 0 || at.Waits:
	case e.BakingSince == nil:
		e.BakingSince = now
		if p.bake(int(e.Step)) > 0 {
			return
		}
		fallthrough
	case !now.Time.Before(e.BakingSince.Add(p.bake(int(e.Step)))):
		if at.Fleet.Drifted == 0 {
			*e = v1alpha1.RolloutPool{Name: e.Name, Revision: e.Revision, LastGood: cmp.Or(passed(e, at, now), e.LastGood)}
			return
		}
		e.BakingSince = nil
		e.Step++
	}
}
