package disrupt

import (
	"maps"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/rollout"
	"karpenter.sh/karpenter/internal/kit/ztime"
)

// Some drift comes back: another program changes, say, the security groups of each machine right after its launch, so that the machine no
// longer matches its class, and neither does the machine that replaces it. Replacing would never end.
//
// So the planner looks at the newest machine of each class. If that has drifted within atBirth of its launch, nodes of the class with the
// same drift reason are replaced one at a time, after pauses that double. This ends when the newest machine of the class has not drifted.
//
// A user who edits the NodePool or its class makes machines drift that were launched a minute before. Their replacements are made from what
// the user wrote and do not drift, so such drift does not come back, see edition.causes.

const (
	atBirth     = 5 * time.Minute  // drift within this time of a launch counts as drift from birth
	judgedAfter = 30 * time.Second // a machine that has not drifted this long after its launch has been looked at
	firstPause  = 5 * time.Minute
	lastPause   = 6 * time.Hour
	// afterEdit is how long after an edit claims may still be created that were planned before it.
	afterEdit = 10 * time.Second
)

// recurrence identifies drift that may come back.
type recurrence struct{ class, reason string }

// A pause is the time until one more node is replaced, to see whether the drift still comes back, and its length.
type pause struct {
	until time.Time
	wait  time.Duration
}

// An edition is what new machines of a pool are made from, and since when.
type edition struct {
	pool       *v1.NodePool // as it was read; the store has another object when it changes
	class      types.UID
	generation int64 // of the class
	revision   string
	since      time.Time // when a pass saw this revision first
	edited     bool      // an earlier pass saw another one
}

// editionsOf returns the present edition of each pool. It takes over from before what has not changed.
func editionsOf(w *World, before map[string]edition) map[string]edition {
	out := map[string]edition{}
	for pool := range cluster.Pools.All(w.Snap) {
		old, known := before[pool.Name]
		next := edition{pool: pool, revision: old.revision, since: old.since, edited: old.edited}
		if class := w.Snap.NodeClass(pool.Spec.Template.Spec.NodeClassRef); class != nil {
			next.class, next.generation = class.UID, class.Generation
		}
		if old.pool != pool || old.class != next.class || old.generation != next.generation {
			next.revision = rollout.Revision(w.Snap, pool)
		}
		if next.revision != old.revision {
			next.since, next.edited = w.Now, known
		}
		out[pool.Name] = next
	}
	return out
}

// causes reports whether a machine has drifted because a user edited its NodePool or class after its claim was created. After a restart no
// pass has seen an edit. Then it still follows from the two reasons for which a claim does not match its pool: hash and requirements of the
// pool were other ones when the claim was created. But if the claim was created from the present edition, something else has changed its
// hash or labels, and will do so again.
func (e *edition) causes(claim *v1.NodeClaim, reason string) bool {
	if !claim.CreationTimestamp.Time.Before(e.since.Add(afterEdit)) {
		return false
	}
	return e.edited || reason == v1.ReasonNodePoolDrifted || reason == v1.ReasonRequirementsDrifted
}

// recurringOf returns, by class, the reason for which the newest machine of the class drifted within atBirth of its launch. Classes whose
// newest machine did not are left out. Machines launched less than judgedAfter ago that have not drifted are ignored; judged is when the
// first of them will count, zero if there is none.
//
// editions are those of the pools. A drift that an edit caused is not one from birth.
func recurringOf(s *survey, editions map[string]edition) (out map[string]string, judged time.Time) {
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
			if e := editions[claim.Labels[v1.NodePoolLabelKey]]; !e.causes(claim, c.Drifted.Reason) {
				n.reason = c.Drifted.Reason
			}
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
	p.memory.editions = editionsOf(p.survey.w, p.memory.editions)
	recurring, judged := recurringOf(p.survey, p.memory.editions)
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
