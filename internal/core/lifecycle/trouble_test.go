package lifecycle_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/lifecycle"
	"karpenter.sh/karpenter/internal/explain/sentence"
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

// TestAMachineIsOutdone by one of the same template that got ready since it was launched, a minute after the start.
func TestAMachineIsOutdone(t *testing.T) {
	stamped := func(c *v1.NodeClaim) {
		c.Labels = map[string]string{v1.NodePoolLabelKey: "p"}
		c.Annotations = map[string]string{v1.NodePoolHashAnnotationKey: "1", v1.NodePoolHashVersionAnnotationKey: "x"}
	}
	ready := func(after time.Duration) func(*v1.NodeClaim) {
		return set(v1.ConditionTypeInitialized, "True", after)
	}
	failed := claim(stamped, set(v1.ConditionTypeLaunched, "True", time.Minute))
	for name, tc := range map[string]struct {
		failed, other *v1.NodeClaim
		want          bool
	}{
		"by one that got ready later":        {failed, claim(stamped, ready(2*time.Minute)), true},
		"by one that got ready in that time": {failed, claim(stamped, ready(time.Minute)), true},
		"not by one that was ready before":   {failed, claim(stamped, ready(59*time.Second)), false},
		"not by one that is not ready":       {failed, claim(stamped, set(v1.ConditionTypeInitialized, "Unknown", 2*time.Minute)), false},
		"not by one of another template": {failed, claim(stamped, ready(2*time.Minute), func(c *v1.NodeClaim) {
			c.Annotations[v1.NodePoolHashAnnotationKey] = "2"
		}), false},
		"not by one of another pool": {failed, claim(stamped, ready(2*time.Minute), func(c *v1.NodeClaim) {
			c.Labels[v1.NodePoolLabelKey] = "other"
		}), false},
		"it counts from its creation where nobody says when it was launched": {claim(stamped, set(v1.ConditionTypeLaunched, "Unknown", time.Minute)), claim(stamped, ready(30*time.Second)), true},
	} {
		t.Run(name, func(t *testing.T) {
			store := cluster.NewStore()
			tc.other.Name, tc.other.UID = "other", "other-uid"
			store.Update(func(d *cluster.Draft) { d.PutClaim(tc.failed); d.PutClaim(tc.other) })
			pool := &v1.NodePool{}
			pool.Name, pool.Annotations = "p", failed.Annotations
			if got := lifecycle.Outdone(store.Snapshot(), pool, tc.failed); got != tc.want {
				t.Errorf("outdone = %v, want %v", got, tc.want)
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
