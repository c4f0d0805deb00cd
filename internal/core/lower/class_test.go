package lower

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/quantity"
	"karpenter.sh/karpenter/internal/core/reason"
)

func cpu(text string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(text)}}
}

func container(text string) corev1.Container { return corev1.Container{Resources: cpu(text)} }

func sidecar(text string) corev1.Container {
	always := corev1.ContainerRestartPolicyAlways
	return corev1.Container{Resources: cpu(text), RestartPolicy: &always}
}

func TestPodRequests(t *testing.T) {
	podLevel := cpu("3")
	limits := corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("5")}}
	for name, tc := range map[string]struct {
		spec corev1.PodSpec
		want string
	}{
		"containers add up":                                  {corev1.PodSpec{Containers: []corev1.Container{container("1"), container("2")}}, "3"},
		"sidecars add to containers":                         {corev1.PodSpec{Containers: []corev1.Container{container("1")}, InitContainers: []corev1.Container{sidecar("2")}}, "3"},
		"the largest init container counts alone":            {corev1.PodSpec{Containers: []corev1.Container{container("1")}, InitContainers: []corev1.Container{container("4"), container("2")}}, "4"},
		"an init container runs beside the sidecars before":  {corev1.PodSpec{Containers: []corev1.Container{container("1")}, InitContainers: []corev1.Container{sidecar("2"), container("3")}}, "5"},
		"but not beside the sidecars after it":               {corev1.PodSpec{Containers: []corev1.Container{container("1")}, InitContainers: []corev1.Container{container("3"), sidecar("1")}}, "3"},
		"overhead comes on top":                              {corev1.PodSpec{Containers: []corev1.Container{container("1")}, Overhead: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("250m")}}, "1250m"},
		"pod-level requests replace the sum":                 {corev1.PodSpec{Containers: []corev1.Container{container("1")}, Resources: &podLevel}, "3"},
		"pod-level limits stand in for pod-level requests":   {corev1.PodSpec{Containers: []corev1.Container{container("1")}, Resources: &limits}, "5"},
		"a pod without requests asks for nothing but a slot": {corev1.PodSpec{Containers: []corev1.Container{{}}}, "0"},
	} {
		t.Run(name, func(t *testing.T) {
			got := podRequests(&tc.spec)
			want := resource.MustParse(tc.want)
			if q := got[corev1.ResourceCPU]; q.Cmp(want) != 0 {
				t.Errorf("CPU %s, want %s", q.String(), tc.want)
			}
			if q := got[corev1.ResourcePods]; q.Value() != 1 {
				t.Errorf("pods %s", q.String())
			}
		})
	}
}

func TestQuantitiesRound(t *testing.T) {
	for name, tc := range map[string]struct {
		resource corev1.ResourceName
		text     string
		up, down int64
	}{
		"CPU counts thousandths":               {corev1.ResourceCPU, "1500m", 1500, 1500},
		"parts of a thousandth round":          {corev1.ResourceCPU, "1500500u", 1501, 1500},
		"bytes are bytes":                      {corev1.ResourceMemory, "1Ki", 1024, 1024},
		"parts of a byte round":                {corev1.ResourceMemory, "1500m", 2, 1},
		"absurd amounts are merely too large":  {corev1.ResourceMemory, "1e30", quantity.Max, quantity.Max},
		"absurd CPU is merely too large":       {corev1.ResourceCPU, "1e18", quantity.Max, quantity.Max},
		"absurd negative amounts do not wrap":  {corev1.ResourceMemory, "-1e30", -quantity.Max, -quantity.Max},
		"the largest integer does not wrap":    {"x/y", "9223372036854775807", quantity.Max, quantity.Max},
		"extended resources count whole units": {"x/y", "3", 3, 3},
	} {
		t.Run(name, func(t *testing.T) {
			q := resource.MustParse(tc.text)
			if got := up(tc.resource, &q); got != tc.up {
				t.Errorf("up = %d, want %d", got, tc.up)
			}
			if got := down(tc.resource, &q); got != tc.down {
				t.Errorf("down = %d, want %d", got, tc.down)
			}
		})
	}
}

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
			plan := New().Plan(context.Background(), in)
			if tc.want == reason.None {
				if len(plan.Open) != 1 || len(plan.Refused) > 0 {
					t.Errorf("%d new nodes, refused %+v", len(plan.Open), plan.Refused)
				}
				return
			}
			if len(plan.Refused) != 1 || len(plan.Refused[0].Reasons) != 1 || plan.Refused[0].Reasons[0].Code != tc.want || plan.Refused[0].Text == "" {
				t.Errorf("got %+v, want %v", plan.Refused, tc.want.Name())
			}
		})
	}
}
