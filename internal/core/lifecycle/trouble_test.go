package lifecycle_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/core/lifecycle"
	"karpenter.sh/karpenter/internal/sentence"
)

func TestTrouble(t *testing.T) {
	stamped := func(hash string) func(*v1.NodeClaim) {
		return func(c *v1.NodeClaim) {
			c.Annotations = map[string]string{v1.NodePoolHashAnnotationKey: hash, v1.NodePoolHashVersionAnnotationKey: "x"}
		}
	}
	fails := func(c *v1.NodeClaim) func(*v1.NodePool, time.Time) {
		return func(p *v1.NodePool, at time.Time) { lifecycle.Fails(p, c, at, sentence.Failing) }
	}
	works := func(c *v1.NodeClaim) func(*v1.NodePool, time.Time) {
		return func(p *v1.NodePool, at time.Time) { lifecycle.Works(p, c, at) }
	}
	present, other := claim(stamped("1")), claim(stamped("2"))
	bad, good := fails(present), works(present)
	type events []func(*v1.NodePool, time.Time)
	for name, tc := range map[string]struct {
		happens  events // a minute apart
		failures int
		broken   bool
		tryAfter time.Duration // from the last event
		replace  time.Duration
	}{
		"nothing is known":          {events{}, 0, false, 0, 0},
		"one machine is no pattern": {events{bad}, 1, false, 20 * time.Minute, 15 * time.Minute},
		"two are":                   {events{bad, bad}, 2, true, 20 * time.Minute, 15 * time.Minute},
		"with each more replacements wait twice as long": {events{bad, bad, bad}, 3, true, 20 * time.Minute, 30 * time.Minute},
		"up to an hour":                                {events{bad, bad, bad, bad, bad, bad, bad}, 7, true, 20 * time.Minute, time.Hour},
		"one that gets ready ends it":                  {events{bad, bad, bad, good}, 0, false, 0, 0},
		"and the count begins anew":                    {events{bad, good, bad}, 1, false, 20 * time.Minute, 15 * time.Minute},
		"a machine of another template does not count": {events{bad, fails(other)}, 1, false, 19 * time.Minute, 14 * time.Minute},
		"nor does one of another that gets ready":      {events{bad, bad, works(other)}, 2, true, 19 * time.Minute, 14 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			pool := &v1.NodePool{}
			pool.Annotations = present.Annotations
			at := start
			for _, happen := range tc.happens {
				at = at.Add(time.Minute)
				happen(pool, at)
			}
			got := lifecycle.TroubleOf(pool)
			if got.Failures != tc.failures || got.Broken() != tc.broken {
				t.Errorf("%d failures, broken %v; want %d, %v", got.Failures, got.Broken(), tc.failures, tc.broken)
			}
			if tc.failures > 0 && (got.TryAt().Sub(at) != tc.tryAfter || got.ReplaceAt().Sub(at) != tc.replace) {
				t.Errorf("tried after %v, replaced after %v; want %v, %v", got.TryAt().Sub(at), got.ReplaceAt().Sub(at), tc.tryAfter, tc.replace)
			}
		})
	}
}

// TestTroubleThatSomebodyElseWrote counts as enough to be careful.
func TestTroubleThatSomebodyElseWrote(t *testing.T) {
	pool := &v1.NodePool{}
	condition.SetFalse(pool, v1.ConditionTypeMachinesGetReady, "Other", "-5 machine(s)", start)
	if got := lifecycle.TroubleOf(pool); !got.Broken() || !got.ReplaceAt().Equal(start.Add(15*time.Minute)) {
		t.Errorf("trouble is %+v", got)
	}
}

func TestTheMessageSaysWhatWasMissing(t *testing.T) {
	for name, tc := range map[string]struct {
		claim  *v1.NodeClaim
		reason string
	}{
		"a machine that never joined": {claim(), v1.ReasonRegistrationTimeout},
		"a node that was never ready": {claim(set(v1.ConditionTypeRegistered, "True", 0)), v1.ReasonInitializationTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			pool := &v1.NodePool{}
			lifecycle.Fails(pool, tc.claim, start, sentence.Failing)
			if c := condition.Get(pool, v1.ConditionTypeMachinesGetReady); c == nil || c.Reason != tc.reason {
				t.Errorf("condition = %+v, want reason %s", c, tc.reason)
			}
		})
	}
}

// TestAMachineIsOverdue ten minutes after it joined.
func TestAMachineIsOverdue(t *testing.T) {
	c := claim(launched, set(v1.ConditionTypeRegistered, "True", 0))
	registered := condition.Get(c, v1.ConditionTypeRegistered).LastTransitionTime.Time
	n := node(func(n *corev1.Node) { n.Status.Conditions = nil })
	for after, want := range map[time.Duration]bool{10*time.Minute - time.Second: false, 10 * time.Minute: true} {
		step := lifecycle.Next(lifecycle.View{Claim: c, Nodes: []*corev1.Node{n}}, registered.Add(after), lifecycle.Settings{})
		if step.Overdue != want || !want && !step.Until.Equal(registered.Add(10*time.Minute)) {
			t.Errorf("after %v overdue = %v, next look %v", after, step.Overdue, step.Until)
		}
	}
}
