package engine

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/reason"
)

func TestPodsThatCannotBePlanned(t *testing.T) {
	required := func(terms ...corev1.NodeSelectorTerm) *corev1.Affinity {
		return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms}}}
	}
	asks := func(key, op string, values ...string) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: corev1.NodeSelectorOperator(op), Values: values}}}
	}
	for name, tc := range map[string]struct {
		spec corev1.PodSpec
		want reason.Code // none: it gets a node
	}{
		"one term of several is enough": {corev1.PodSpec{Affinity: required(asks(v1.NodePoolLabelKey, "DoesNotExist"), asks("a", "Gt"), asks(v1.NodeInitializedLabelKey, "Exists"),
			corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name"}}}, asks(v1.NodePoolLabelKey, "Exists"))}, reason.None},
		"a reason is told once":              {corev1.PodSpec{Affinity: required(asks(v1.NodeInitializedLabelKey, "In", "a"), asks(v1.NodeInitializedLabelKey, "In", "b"))}, reason.RestrictedLabel},
		"a value that no label can have":     {corev1.PodSpec{NodeSelector: map[string]string{"team": "a b"}}, reason.Invalid},
		"nor in affinity, if it is the only": {corev1.PodSpec{Affinity: required(asks("team", "In", "a b", "-1"))}, reason.Invalid},
		"resource claims are not supported":  {corev1.PodSpec{ResourceClaims: []corev1.PodResourceClaim{{Name: "x"}}}, reason.DeviceClaims},
		"nor claims of a container":          {corev1.PodSpec{InitContainers: []corev1.Container{{Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "x"}}}}}}, reason.DeviceClaims},
		"matchFields is not supported":       {corev1.PodSpec{Affinity: required(corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name"}}})}, reason.Invalid},
		"an operator without its value":      {corev1.PodSpec{Affinity: required(corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "a", Operator: "Gt"}}})}, reason.Invalid},
		"a label of Karpenter's own":         {corev1.PodSpec{NodeSelector: map[string]string{v1.NodeInitializedLabelKey: "true"}}, reason.RestrictedLabel},
		"terms that match no node":           {corev1.PodSpec{NodeSelector: map[string]string{"a": "b"}, Affinity: required(corev1.NodeSelectorTerm{}, corev1.NodeSelectorTerm{})}, reason.Invalid},
		"no term that can be planned for":    {corev1.PodSpec{Affinity: required(corev1.NodeSelectorTerm{}, asks(v1.NodePoolLabelKey, "DoesNotExist"))}, reason.AvoidsManaged},
		"a node without pool":                {corev1.PodSpec{Affinity: required(corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: v1.NodePoolLabelKey, Operator: "DoesNotExist"}}})}, reason.AvoidsManaged},
	} {
		t.Run(name, func(t *testing.T) {
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p"}, Spec: tc.spec}
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Reason: corev1.PodReasonUnschedulable}}
			store := cluster.NewStore()
			store.Update(func(d *cluster.Draft) { d.PutPod(p) })
			in := dice{rng(1)}.small(0, 2)
			in.Snap = store.Snapshot()
			in.Pods = in.Snap.Provisionable()
			plan := New().Plan(in)
			if tc.want == reason.None {
				if len(plan.Open) != 1 || len(plan.Refused) > 0 {
					t.Errorf("%d new nodes, refused %+v", len(plan.Open), plan.Refused)
				}
				return
			}
			if len(plan.Refused) != 1 || len(plan.Refused[0].Reasons) != 1 || plan.Refused[0].Reasons[0].Code != tc.want {
				t.Errorf("got %+v, want %v", plan.Refused, tc.want.Name())
			}
		})
	}
}
