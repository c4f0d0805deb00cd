package lifecycle_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/core/lifecycle"
	"karpenter.sh/karpenter/internal/explain/sentence"
)

func bootID(id string) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Status.NodeInfo.BootID = id }
}

func annotation(key, value string) func(*v1.NodeClaim) {
	return func(c *v1.NodeClaim) { metav1.SetMetaDataAnnotation(&c.ObjectMeta, key, value) }
}

// askedFor is a claim whose machine is to be rebooted; grace bounds the drain, "" does not.
func askedFor(grace string) func(*v1.NodeClaim) {
	return func(c *v1.NodeClaim) {
		lifecycle.RebootRequested(c, "", start)
		if grace != "" {
			annotation(v1.RebootGracePeriodAnnotationKey, grace)(c)
		}
	}
}

func issuing(c *v1.NodeClaim) { annotation(v1.RebootPreBootIDAnnotationKey, "first")(c) }

func stoppedAt(after time.Duration) func(*v1.NodeClaim) {
	return func(c *v1.NodeClaim) {
		condition.SetUnknown(c, v1.ConditionTypeInitialized, v1.ReasonRebooting, "", start.Add(after))
	}
}

func issued(c *v1.NodeClaim) {
	r := condition.Get(c, v1.ConditionTypeRebooting)
	r.Reason = v1.ReasonRebootIssued
	condition.Set(c, *r, start)
}

func TestAMachineIsRebooted(t *testing.T) {
	fence := taint(v1.RebootingTaintKey, corev1.TaintEffectNoSchedule)
	calm := func(more ...func(*v1.NodeClaim)) *v1.NodeClaim {
		return claim(append([]func(*v1.NodeClaim){launched, registered, initialized}, more...)...)
	}
	sick := node(joined, ready, fence, bootID("first"))
	const back = "write, node registered initialized, taints ; reached initialized"
	const ok = "write Initialized=True, node registered initialized, taints ; reached initialized"
	for name, tc := range map[string]struct {
		claim    *v1.NodeClaim
		node     *corev1.Node // nil for none
		occupied bool
		after    time.Duration
		want     string
		failure  lifecycle.RebootFailure // of an end
		asks     string                  // annotation that is written before the provider is asked
	}{
		"first the node is closed, and counts as one that comes back": {
			claim: calm(askedFor("5m")), node: node(joined, was, ready, bootID("first")), after: time.Second,
			want: "write, node registered, taints rebooting",
		},
		"its pods may leave": {
			claim: calm(askedFor("5m")), node: sick, occupied: true, after: time.Minute,
			want: "wait until 5m0s",
		},
		"an empty node waits for pods that were bound a moment ago": {
			claim: calm(askedFor("5m")), node: sick, after: 4 * time.Second, want: "wait until 5s"},
		"the boot is noted when the node is empty": {
			claim: calm(askedFor("5m")), node: sick, after: 5 * time.Second,
			want: "prepare", asks: "first",
		},
		"and when pods have had their time": {
			claim: calm(askedFor("5m")), node: sick, occupied: true, after: 5 * time.Minute,
			want: "prepare", asks: "first",
		},
		"without a drain pods ride through the reboot": {
			claim: calm(askedFor("0s")), node: sick, occupied: true, after: 5 * time.Second,
			want: "prepare", asks: "first",
		},
		"a drain without bound is waited for": {
			claim: calm(askedFor("")), node: sick, occupied: true, after: 29 * time.Minute,
			want: "wait until 30m0s",
		},
		"but not for ever": {
			claim: calm(askedFor("")), node: sick, occupied: true, after: 30 * time.Minute,
			want: back, failure: lifecycle.RebootHeld,
		},
		"a bound that cannot be read ends it": {
			claim: calm(askedFor("soon")), node: sick, after: 2 * time.Minute,
			want: back, failure: lifecycle.RebootGraceInvalid,
		},
		"so does a negative one": {
			claim: calm(askedFor("-1m")), node: sick, after: 2 * time.Minute,
			want: back, failure: lifecycle.RebootGraceInvalid,
		},
		"and a node without a boot id": {
			claim: calm(askedFor("5m")), node: node(joined, ready, fence), after: 2 * time.Minute,
			want: back, failure: lifecycle.RebootWithoutID,
		},
		"a node that is gone is waited for": {
			claim: calm(askedFor("5m")), after: 4 * time.Minute,
			want: "wait until 5m0s",
		},
		"and given up": {
			claim: calm(askedFor("5m")), after: 5 * time.Minute,
			want: "write", failure: lifecycle.RebootWithoutNode,
		},
		"before the provider is asked, the claim says since when": {
			claim: calm(askedFor("5m"), issuing), node: sick, after: time.Minute,
			want: "write Initialized=Unknown/Rebooting until 6m0s",
		},
		"then the provider is asked": {
			claim: calm(askedFor("5m"), issuing, stoppedAt(time.Minute)), node: sick, after: 2 * time.Minute,
			want: "reboot until 6m0s",
		},
		"whatever process there is, until it has had its time": {
			claim: calm(askedFor("5m"), issuing, stoppedAt(time.Minute)), node: sick, after: 6 * time.Minute,
			want: ok, failure: lifecycle.RebootNotAccepted,
		},
		"it is not asked for a machine that has booted": {
			claim: calm(askedFor("5m"), issuing, stoppedAt(time.Minute)), node: node(joined, fence, bootID("second")),
			after: 2 * time.Minute,
			want:  "write, node registered, taints ; reached observed until 21m0s",
		},
		"nor once it has answered": {
			claim: calm(askedFor("5m"), issuing, stoppedAt(time.Minute), issued), node: sick, after: 20 * time.Minute,
			want: "wait until 21m0s",
		},
		"a machine that has booted and is ready is what it was": {
			claim: calm(askedFor("5m"), issuing, stoppedAt(time.Minute), issued), node: node(joined, ready, fence,
				bootID("second")), after: 3 * time.Minute,
			want: "write Initialized=True, node registered initialized, taints ; reached observed initialized", failure: "none",
		},
		"a machine that does not boot is left to repair": {
			claim: calm(askedFor("5m"), issuing, stoppedAt(time.Minute), issued), node: sick, after: 21 * time.Minute,
			want: ok, failure: lifecycle.RebootTooSlow,
		},
		"a machine that booted and is not ready is left to it, too": {
			claim: calm(askedFor("5m"), issuing, stoppedAt(time.Minute), issued), node: node(joined, bootID("second")),
			after: 21 * time.Minute,
			want:  "write Initialized=Unknown/NodeNotReady", failure: lifecycle.RebootTooSlow,
		},
		"the label of a node whose claim is being rebooted goes off": {
			claim: calm(askedFor("5m"), issuing, stoppedAt(time.Minute), issued), node: node(joined, was, ready, fence,
				bootID("first")), after: 3 * time.Minute,
			want: "write, node registered, taints rebooting until 21m0s",
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := tc.claim.DeepCopy()
			view := lifecycle.View{Claim: tc.claim, Occupied: tc.occupied}
			if tc.node != nil {
				view.Nodes = []*corev1.Node{tc.node}
			}
			step := lifecycle.Next(view, start.Add(tc.after), lifecycle.Settings{Reboots: true, RebootWords: sentence.Reboot})
			if got := describe(step, before); got != tc.want {
				t.Errorf("step = %s\n   want  %s", got, tc.want)
			}
			if step.Kind == lifecycle.Prepare && step.Claim.Annotations[v1.RebootPreBootIDAnnotationKey] != tc.asks {
				t.Errorf("annotations = %v, want boot id %q", step.Claim.Annotations, tc.asks)
			}
			if (step.Ended != nil) != (tc.failure != "") {
				t.Fatalf("ended: %+v, want %q", step.Ended, tc.failure)
			}
			if step.Ended == nil {
				return
			}
			c := condition.Get(step.Claim, v1.ConditionTypeRebooting)
			switch {
			case tc.failure == "none":
				if step.Ended.Failure != "" || step.Ended.Recovery != 2*time.Minute || c.Reason != v1.ReasonRebootSucceeded {
					t.Errorf("ended: %+v, %s", step.Ended, c.Reason)
				}
			case step.Ended.Failure != tc.failure || c.Reason != v1.ReasonRebootFailed || !strings.HasPrefix(c.Message,
				"The machine was not repaired"):
				t.Errorf("ended: %+v, %s: %s; want %q", step.Ended, c.Reason, c.Message, tc.failure)
			}
			if step.Ended.Took != tc.after || condition.IsTrue(step.Claim, v1.ConditionTypeDisruptionReason) {
				t.Errorf("it took %s, want %s; conditions %v", step.Ended.Took, tc.after, step.Claim.Status.Conditions)
			}
		})
	}
}

// What the provider answers is on the claim, and the operation is the same until then.
func TestTheProviderAnswersAReboot(t *testing.T) {
	c := claim(launched, registered, initialized, askedFor("5m"), issuing, stoppedAt(time.Minute))
	view := lifecycle.View{Claim: c, Nodes: []*corev1.Node{node(joined, ready, taint(v1.RebootingTaintKey,
		corev1.TaintEffectNoSchedule), bootID("first"))}}
	if got, want := lifecycle.Operation(c), fmt.Sprintf("%s-%d-first", c.UID, start.UnixNano()); got != want {
		t.Errorf("operation %s, want %s", got, want)
	}
	step := lifecycle.Issued(view, start.Add(2*time.Minute))
	r := condition.Get(step.Claim, v1.ConditionTypeRebooting)
	if r.Reason != v1.ReasonRebootIssued || r.Status != "True" || !r.LastTransitionTime.Time.Equal(start) || step.Node != nil {
		t.Errorf("accepted: %+v, node %v", r, step.Node)
	}
	step = lifecycle.Refused(view, "no right", start.Add(2*time.Minute), lifecycle.Settings{Reboots: true, RebootWords: sentence.Reboot})
	if r = condition.Get(step.Claim, v1.ConditionTypeRebooting); r.Reason != v1.ReasonRebootFailed ||
		!strings.Contains(r.Message, "no right") {
		t.Errorf("refused: %+v", r)
	}
	if step.Ended == nil || step.Ended.Result() != "provider_error" || len(step.Node.Spec.Taints) != 0 {
		t.Errorf("refused: %+v, node %v", step.Ended, step.Node)
	}
}

func TestResultsOfRebootsAreThoseOfUpstream(t *testing.T) {
	for failure, want := range map[lifecycle.RebootFailure]string{
		"": "succeeded", lifecycle.RebootGraceInvalid: "invalid_request", lifecycle.RebootWithoutID: "invalid_request",
		lifecycle.RebootWithoutNode: "provider_error", lifecycle.RebootRefused: "provider_error",
		lifecycle.RebootNotAccepted: "provider_error",
		lifecycle.RebootTooSlow:     "recovery_timeout", lifecycle.RebootHeld: "drain_timeout",
	} {
		if got := (lifecycle.RebootEnd{Failure: failure}).Result(); got != want {
			t.Errorf("%q: %s, want %s", failure, got, want)
		}
	}
}

// The writes of a request are two. What the first wrote stays while the second may come, and goes if it does not.
func TestARequestIsWrittenInTwoSteps(t *testing.T) {
	c := claim(launched, registered, initialized)
	grace := 5 * time.Minute
	c.Annotations = lifecycle.RequestReboot(c, &grace, start).Annotations
	view := lifecycle.View{Claim: c, Nodes: []*corev1.Node{node(joined, ready, was)}}
	if got := describe(lifecycle.Next(view, start.Add(59*time.Second), lifecycle.Settings{Reboots: true}), c); got != "wait until 1m0s" {
		t.Errorf("between the writes: %s", got)
	}
	step := lifecycle.Next(view, start.Add(time.Minute), lifecycle.Settings{Reboots: true})
	if _, still := step.Claim.Annotations[v1.RebootGracePeriodAnnotationKey]; still || step.Kind != lifecycle.Prepare {
		t.Errorf("after a crash between them: kind %d, %v", step.Kind, step.Claim.Annotations)
	}
	ended := c.DeepCopy()
	condition.SetFalse(ended, v1.ConditionTypeRebooting, v1.ReasonRebootFailed, "", start.Add(time.Second))
	if step := lifecycle.Next(lifecycle.View{Claim: ended, Nodes: view.Nodes}, start.Add(2*time.Second),
		lifecycle.Settings{}); step.Kind != lifecycle.Prepare {
		t.Errorf("once it is over: kind %d", step.Kind)
	}
	again := lifecycle.RequestReboot(lifecycle.RequestReboot(c, nil, start.Add(time.Hour)), nil, start.Add(2*time.Hour))
	if got := again.Annotations; got[v1.RebootsAnnotationKey] != "2026-03-01T13:00:00Z,2026-03-01T14:00:00Z" ||
		got[v1.RebootGracePeriodAnnotationKey] != "" {
		t.Errorf("the last two requests are %v", got)
	}
}

// A reboot that failed, or two within a day, make the next repair a replacement, whichever process looks.
func TestRebootsAreNotRepeatedForEver(t *testing.T) {
	failedAt := func(after time.Duration) func(*v1.NodeClaim) {
		return func(c *v1.NodeClaim) {
			condition.SetFalse(c, v1.ConditionTypeRebooting, v1.ReasonRebootFailed, "", start.Add(after))
		}
	}
	repairs := lifecycle.NewRepairs(faultPolicies())
	if !repairs.Reboots() || (*lifecycle.Repairs)(nil).Reboots() || lifecycle.NewRepairs(faultPolicies()[2:]).Reboots() {
		t.Error("Reboots does not say whether there is a fault that a reboot may mend")
	}
	day := 24 * time.Hour
	for name, tc := range map[string]struct {
		claim *v1.NodeClaim
		want  bool
	}{
		"a machine that was never rebooted": {claim(), true},
		"one reboot today":                  {claim(annotation(v1.RebootsAnnotationKey, "2026-03-01T12:00:00Z")), true},
		"two reboots today": {claim(annotation(v1.RebootsAnnotationKey,
			"2026-03-01T12:00:00Z,2026-03-01T13:00:00Z")), false},
		"one of them before that": {claim(annotation(v1.RebootsAnnotationKey,
			"2026-03-01T10:00:00Z,2026-03-01T13:00:00Z")), true},
		"what cannot be read":         {claim(annotation(v1.RebootsAnnotationKey, "often,x")), true},
		"a reboot that failed today":  {claim(failedAt(time.Hour)), false},
		"one that failed before that": {claim(failedAt(-2 * time.Hour)), true},
	} {
		n := node(func(n *corev1.Node) {
			n.Status.Conditions = []corev1.NodeCondition{{Type: gpu, Status: "False", Reason: "Mendable",
				LastTransitionTime: metav1.NewTime(start.Add(day - time.Hour - 11*time.Minute))}}
		})
		f := repairs.Of(n, tc.claim, start.Add(day-time.Hour))
		if f == nil || f.Reboot != tc.want {
			t.Errorf("%s: %+v, want reboot %t", name, f, tc.want)
		}
	}
}

// What a node said before its machine was rebooted counts from when it was back; where the reboot failed nothing changes.
func TestAFaultIsTimedFromTheLastReboot(t *testing.T) {
	repairs := lifecycle.NewRepairs(faultPolicies())
	n := node(func(n *corev1.Node) {
		n.Status.Conditions = []corev1.NodeCondition{{Type: gpu, Status: "False", Reason: "Mendable",
			LastTransitionTime: metav1.NewTime(start)}}
	})
	for reason, want := range map[string]time.Duration{v1.ReasonRebootSucceeded: 25 * time.Minute,
		v1.ReasonRebootFailed: 10 * time.Minute} {
		c := claim(func(c *v1.NodeClaim) {
			condition.SetFalse(c, v1.ConditionTypeRebooting, reason, "", start.Add(15*time.Minute))
		})
		if f := repairs.Of(n, c, start.Add(20*time.Minute)); f == nil || !f.Due.Equal(start.Add(want)) {
			t.Errorf("%s: %+v, want due after %s", reason, f, want)
		}
	}
}

func TestPodsLeaveBeforeAReboot(t *testing.T) {
	fence := taint(v1.RebootingTaintKey, corev1.TaintEffectNoSchedule)
	for name, tc := range map[string]struct {
		claim *v1.NodeClaim
		node  *corev1.Node
		want  bool
	}{
		"a closed node":                       {claim(askedFor("5m")), node(fence), true},
		"and one whose drain has no bound":    {claim(askedFor("")), node(fence), true},
		"not before it is closed":             {claim(askedFor("5m")), node(), false},
		"not without a drain":                 {claim(askedFor("0s")), node(fence), false},
		"not once the provider is asked":      {claim(askedFor("5m"), issuing), node(fence), false},
		"nor once it has answered":            {claim(askedFor("5m"), issued), node(fence), false},
		"not where nothing is to be rebooted": {claim(), node(fence), false},
		"a claim that is deleted drains its own way": {claim(askedFor("5m"), func(c *v1.NodeClaim) {
			c.DeletionTimestamp = &metav1.Time{Time: start}
		}), node(fence), false},
	} {
		if got := lifecycle.Vacates(tc.claim, tc.node); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
