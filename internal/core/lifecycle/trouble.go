package lifecycle

import (
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/drift"
)

const (
	// initializationTime is how long a registered machine may take to be initialised, before it counts as a node that never will be.
	initializationTime = 10 * time.Minute
	// tolerated is how many machines of a template may fail in a row before fewer are bought.
	tolerated = 2
	// trialAfter is how long after a failure the next machine is tried. With the time that it has itself that makes two an hour.
	trialAfter = 20 * time.Minute
	// replaceAfter is how long after a failure nodes are replaced again, doubled with each more, up to replaceAtMost.
	replaceAfter  = 15 * time.Minute
	replaceAtMost = time.Hour
)

// A Trouble counts the machines of a pool's present template that did not get ready in their time, since the last success. It is
// stored in the pool's condition MachinesGetReady, so a restart does not forget it.
type Trouble struct {
	Failures int
	Last     time.Time
}

// TroubleOf reads the trouble from the condition of a pool. The message begins with the number of failures (see Fails). If it does not, so
// many are assumed that the pool counts as broken.
func TroubleOf(pool *v1.NodePool) Trouble {
	c := condition.Get(pool, v1.ConditionTypeMachinesGetReady)
	if c == nil || c.Status != metav1.ConditionFalse {
		return Trouble{}
	}
	t := Trouble{Failures: tolerated, Last: c.LastTransitionTime.Time}
	number, _, _ := strings.Cut(c.Message, " ")
	if n, err := strconv.Atoi(number); err == nil && n > 0 {
		t.Failures = n
	}
	return t
}

// Broken reports whether so many machines have failed that the pool gets only one machine at a time, as a trial.
func (t Trouble) Broken() bool { return t.Failures >= tolerated }

// TryAt is when the next machine may be tried for pods that wait.
func (t Trouble) TryAt() time.Time { return t.Last.Add(trialAfter) }

// ReplaceAt is when nodes that work may be replaced again by machines of this template.
func (t Trouble) ReplaceAt() time.Time {
	return t.Last.Add(min(replaceAtMost, replaceAfter<<min(10, max(0, t.Failures-tolerated))))
}

// Trying returns the name of a claim of a pool whose machine may still become ready and show that the template works, "" if there is none.
// A claim older than 2*trialAfter no longer counts.
func Trying(snap *cluster.Snapshot, pool string, now time.Time) string {
	for n := range snap.Nodes() {
		if n.Claim != nil && n.Pool() == pool && n.Claim.DeletionTimestamp == nil &&
			!condition.IsTrue(n.Claim, v1.ConditionTypeInitialized) &&
			now.Before(n.Claim.CreationTimestamp.Add(2*trialAfter)) {
			return n.Claim.Name
		}
	}
	return ""
}

// A Failing is what Fails passes to words: the trouble, and details of the last machine.
type Failing struct {
	Trouble
	Claim  string // of the last of them
	Joined bool   // its node was there
	Lacks  string // what it lacked, as its claim says; "" if that says nothing
}

// Fails adds a machine that did not get ready to the pool's condition. It returns false, and changes nothing, if the machine was made from
// another template than the pool's. words makes the message of the condition, which must begin with the number of failures in digits,
// because TroubleOf reads it there.
func Fails(pool *v1.NodePool, claim *v1.NodeClaim, now time.Time, words func(Failing) string) bool {
	if !ofTemplate(pool, claim) {
		return false
	}
	f := Failing{Trouble: Trouble{TroubleOf(pool).Failures + 1, now}, Claim: claim.Name,
		Joined: condition.IsTrue(claim, v1.ConditionTypeRegistered)}
	reason := v1.ReasonRegistrationTimeout
	if f.Joined {
		reason = v1.ReasonInitializationTimeout
		if c := condition.Get(claim, v1.ConditionTypeInitialized); c != nil {
			f.Lacks = c.Message
		}
	}
	condition.Clear(pool, v1.ConditionTypeMachinesGetReady, now) // the time of the last failure counts, not that of the first
	condition.SetFalse(pool, v1.ConditionTypeMachinesGetReady, reason, words(f), now)
	return true
}

// Works clears the pool's condition because a machine of its template got ready, and reports whether there was a condition to clear.
func Works(pool *v1.NodePool, claim *v1.NodeClaim, now time.Time) bool {
	return ofTemplate(pool, claim) && condition.Clear(pool, v1.ConditionTypeMachinesGetReady, now)
}

// Outdone reports whether another machine of the pool's template got ready since the claim's own was launched: then
// the template works, and this one machine does not.
func Outdone(snap *cluster.Snapshot, pool *v1.NodePool, claim *v1.NodeClaim) bool {
	launched := claim.CreationTimestamp.Time
	if c := condition.Get(claim, v1.ConditionTypeLaunched); c != nil && c.Status == metav1.ConditionTrue {
		launched = c.LastTransitionTime.Time
	}
	for n := range snap.Nodes() {
		if n.Claim == nil || n.Pool() != pool.Name || !ofTemplate(pool, n.Claim) {
			continue
		}
		if c := condition.Get(n.Claim, v1.ConditionTypeInitialized); c != nil && c.Status == metav1.ConditionTrue &&
			!c.LastTransitionTime.Time.Before(launched) {
			return true
		}
	}
	return false
}

// ofTemplate reports whether a claim was made from the pool's present template.
func ofTemplate(pool *v1.NodePool, claim *v1.NodeClaim) bool {
	return drift.Stored(pool.Annotations) == drift.Stored(claim.Annotations)
}

// overdue reports whether a registered machine should have been initialised by now. If it still has time, the step wakes up at the end of
// it.
func (w *work) overdue() bool {
	c := condition.Get(w.claim, v1.ConditionTypeRegistered)
	if c.Status != metav1.ConditionTrue || condition.IsTrue(w.claim, v1.ConditionTypeInitialized) ||
		condition.Get(w.claim, v1.ConditionTypeRebooting) != nil { // which was initialized before
		return false
	}
	until := c.LastTransitionTime.Add(initializationTime)
	if w.now.Before(until) {
		w.wake(until)
		return false
	}
	return true
}

// A Hold says why a pool gets no machine now.
type Hold struct {
	Pool string
	Trouble
	Tried string // the claim that is tried first; "" while none is
}

// Held returns the hold on a pool whose last machines never got ready, nil if it may get one.
func Held(snap *cluster.Snapshot, pool *v1.NodePool, now time.Time) *Hold {
	h := &Hold{Pool: pool.Name, Trouble: TroubleOf(pool)}
	if !h.Broken() {
		return nil
	}
	if h.Tried = Trying(snap, pool.Name, now); h.Tried == "" && !now.Before(h.TryAt()) {
		return nil
	}
	return h
}
