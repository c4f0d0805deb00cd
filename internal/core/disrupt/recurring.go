package disrupt

import (
	"maps"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/kit/ztime"
)

// Some drift comes back: another program changes, say, the security groups of each machine right after its launch, so that the machine no
// longer matches its class, and neither does the machine that replaces it. Replacing would never end.
//
// So the planner looks at the newest machine of each class. If that has drifted within atBirth of its launch, nodes of the class with the
// same drift reason are replaced one at a time, after pauses that double. This ends when the newest machine of the class has not drifted.

const (
	atBirth     = 5 * time.Minute  // drift within this time of a launch counts as drift from birth
	judgedAfter = 30 * time.Second // a machine that has not drifted this long after its launch has been looked at
	firstPause  = 5 * time.Minute
	lastPause   = 6 * time.Hour
)

// recurrence identifies drift that may come back.
type recurrence struct{ class, reason string }

// A pause is the time until one more node is replaced, to see whether the drift still comes back, and its length.
type pause struct {
	until time.Time
	wait  time.Duration
}

// recurringOf returns, by class, the reason for which the newest machine of the class drifted within atBirth of its launch. Classes whose
// newest machine did not are left out. Machines launched less than judgedAfter ago that have not drifted are ignored; judged is when the
// first of them will count, zero if there is none.
func recurringOf(s *survey) (out map[string]string, judged time.Time) {
	type newest struct {
		created metav1.Time
		reason  string
	}
	of := map[string]newest{}
	for _, c := range s.rows {
		claim := c.Node.Claim
		if _, old := claim.Annotations[v1.LastGoodImagesAnnotationKey]; old {
			continue // it was not made from the present template and class
		}
		launched := condition.Get(claim, v1.ConditionTypeLaunched)
		if claim.Spec.NodeClassRef == nil || launched == nil || launched.Status != metav1.ConditionTrue || claim.DeletionTimestamp != nil {
			continue
		}
		if at := launched.LastTransitionTime.Add(judgedAfter); c.Drifted == nil && at.After(s.w.Now) {
			judged = ztime.Sooner(judged, at)
			continue
		}
		class := claim.Spec.NodeClassRef.Name
		if known, ok := of[class]; ok && !known.created.Before(&claim.CreationTimestamp) {
			continue
		}
		n := newest{created: claim.CreationTimestamp}
		if c.Drifted != nil && c.Drifted.LastTransitionTime.Sub(launched.LastTransitionTime.Time) < atBirth {
			n.reason = c.Drifted.Reason
		}
		of[class] = n
	}
	out = map[string]string{}
	for class, n := range of {
		if n.reason != "" {
			out[class] = n.reason
		}
	}
	return out, judged
}

// withoutRecurring returns the drifted nodes without those whose drift would come back on their replacements, and notes why these stay. For
// each recurrence one node passes when the pause is over, to see whether the drift still comes back; then a pause of twice the length
// begins.
func (p *pass) withoutRecurring(drifted []*Candidate) (out []*Candidate) {
	recurring, judged := recurringOf(p.survey)
	paused := maps.Clone(p.memory.recurring)
	maps.DeleteFunc(paused, func(r recurrence, _ pause) bool { return recurring[r.class] != r.reason })
	if paused == nil {
		paused = map[recurrence]pause{}
	}
	for _, c := range drifted {
		class := ""
		if ref := c.Node.Claim.Spec.NodeClassRef; ref != nil {
			class = ref.Name
		}
		key := recurrence{class, c.Drifted.Reason}
		if class == "" || recurring[class] != key.reason {
			out = append(out, c)
			continue
		}
		state := paused[key]
		if state.until.After(p.survey.w.Now) {
			p.search.hold(v1.DisruptionReasonDrifted, c, Refusal{Code: DriftReturns, Name: key.reason, Value: class, Until: state.until})
			p.out.by(ztime.Sooner(state.until, judged))
			continue
		}
		state.wait = min(lastPause, max(firstPause, 2*state.wait))
		state.until = p.survey.w.Now.Add(state.wait)
		paused[key] = state
		out = append(out, c)
	}
	p.memory.recurring = paused
	return out
}
