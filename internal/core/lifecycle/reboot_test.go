package lifecycle_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/core/lifecycle"
)

func TestAFleetIsTakenOverInTheMiddleOfReboots(t *testing.T) {
	fenced := taint(v1.RebootingTaintKey, corev1.TaintEffectNoSchedule)
	boot := func(id string) func(*corev1.Node) { return func(n *corev1.Node) { n.Status.NodeInfo.BootID = id } }
	annotated := func(key, value string) func(*v1.NodeClaim) {
		return func(c *v1.NodeClaim) { metav1.SetMetaDataAnnotation(&c.ObjectMeta, key, value) }
	}
	rebooting := func(reason string) func(*v1.NodeClaim) {
		return func(c *v1.NodeClaim) {
			condition.Set(c, metav1.Condition{Type: v1.ConditionTypeRebooting, Status: "True", Reason: reason}, start)
			condition.Set(c, metav1.Condition{Type: v1.ConditionTypeDisruptionReason, Status: "True", Reason: "Unhealthy"}, start)
		}
	}
	asked := annotated(v1.RebootPreBootIDAnnotationKey, "first")
	stopped := func(c *v1.NodeClaim) { condition.SetUnknown(c, v1.ConditionTypeInitialized, "Rebooting", "", start) }
	for name, tc := range map[string]struct {
		claim     *v1.NodeClaim
		nodes     []*corev1.Node
		after     time.Duration
		want      string
		rebooting string // the reason of the condition afterwards
	}{
		"a reboot that was only requested is called off": {
			claim: claim(launched, registered, initialized, rebooting("RebootRequested")), nodes: []*corev1.Node{node(joined, was, ready, fenced, boot("first"))},
			want: "write, node registered initialized, taints ", rebooting: "RebootFailed",
		},
		"a reboot that the provider was or was not asked for is waited for": {
			claim: claim(launched, registered, initialized, rebooting("RebootRequested"), asked), nodes: []*corev1.Node{node(joined, was, ready, fenced, boot("first"))},
			want: "write Initialized=Unknown/Rebooting, node registered, taints rebooting until 20m0s", rebooting: "RebootRequested",
		},
		"a machine that has booted and is ready is initialized again": {
			claim: claim(launched, registered, stopped, rebooting("RebootIssued"), asked), nodes: []*corev1.Node{node(joined, ready, fenced, boot("second"))},
			after: time.Minute,
			want:  "write Initialized=True, node registered initialized, taints ; reached initialized", rebooting: "RebootSucceeded",
		},
		"a machine that has booted loses the taint before it is ready": {
			claim: claim(launched, registered, stopped, rebooting("RebootIssued"), asked), nodes: []*corev1.Node{node(joined, fenced, boot("second"))},
			after: time.Minute, want: "write, node registered, taints  until 20m0s", rebooting: "RebootIssued",
		},
		"a machine that did not boot in time is left to repair": {
			claim: claim(launched, registered, stopped, rebooting("RebootIssued"), asked), nodes: []*corev1.Node{node(joined, fenced, boot("first"))},
			after: 20 * time.Minute,
			want:  "write Initialized=Unknown/NodeNotReady, node registered, taints ", rebooting: "RebootFailed",
		},
		"without a boot id no boot is known": {
			claim: claim(launched, registered, stopped, rebooting("RebootIssued"), asked), nodes: []*corev1.Node{node(joined, ready, fenced)},
			after: 20*time.Minute - 1, want: "wait until 20m0s", rebooting: "RebootIssued",
		},
		"no boot is known where none was noted": {
			claim: claim(launched, registered, stopped, rebooting("RebootIssued")), nodes: []*corev1.Node{node(joined, ready, fenced, boot("second"))},
			after: time.Minute, want: "wait until 20m0s", rebooting: "RebootIssued",
		},
		"a machine whose Node is gone is waited for": {
			claim: claim(launched, registered, stopped, rebooting("RebootIssued"), asked), after: time.Minute, want: "wait until 20m0s", rebooting: "RebootIssued",
		},
		"the taint of a reboot that is over goes": {
			claim: claim(launched, registered, initialized), nodes: []*corev1.Node{node(joined, was, ready, fenced)},
			want: "write, node registered initialized, taints ",
		},
		"the annotations of a reboot that is over go": {
			claim: claim(launched, registered, initialized, asked), nodes: []*corev1.Node{node(joined, was, ready)}, want: "prepare",
		},
		"the grace period of a reboot that never began goes": {
			claim: claim(launched, registered, initialized, annotated(v1.RebootGracePeriodAnnotationKey, "5m")), nodes: []*corev1.Node{node(joined, was, ready)}, want: "prepare",
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := tc.claim.DeepCopy()
			step := lifecycle.Next(lifecycle.View{Claim: tc.claim, Nodes: tc.nodes}, start.Add(tc.after), lifecycle.Settings{})
			if got := describe(step, before); got != tc.want {
				t.Errorf("step = %s\n   want  %s", got, tc.want)
			}
			if step.Overdue {
				t.Error("the machine counts as one that never got ready")
			}
			after := tc.claim
			if step.Claim != nil {
				after = step.Claim
			}
			if got := condition.Get(after, v1.ConditionTypeRebooting); got != nil && got.Reason != tc.rebooting {
				t.Errorf("Rebooting is %s, want %s", got.Reason, tc.rebooting)
			}
			if tc.rebooting != "" && condition.IsTrue(after, v1.ConditionTypeRebooting) != condition.IsTrue(after, v1.ConditionTypeDisruptionReason) {
				t.Error("the claim is chosen for disruption although its reboot is over, or the reverse")
			}
			if step.Kind == lifecycle.Prepare && (len(step.Claim.Annotations) > 0 || len(before.Annotations) != 1) {
				t.Errorf("annotations are %v, were %v", step.Claim.Annotations, before.Annotations)
			}
		})
	}
}

func TestAMachineInMidRebootHasNoFault(t *testing.T) {
	n := node(joined, func(n *corev1.Node) {
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: "False", LastTransitionTime: metav1.NewTime(start)}}
	})
	repairs := lifecycle.NewRepairs(faultPolicies())
	if repairs.Of(n, claim(), start) == nil {
		t.Fatal("a node that is not ready has no fault")
	}
	c := claim()
	condition.SetTrue(c, v1.ConditionTypeRebooting, start)
	if f := repairs.Of(n, c, start); f != nil {
		t.Errorf("fault = %+v, want none", f)
	}
}
