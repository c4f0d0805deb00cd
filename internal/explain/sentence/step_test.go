package sentence

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/disrupt"
	"karpenter.sh/karpenter/internal/core/engine"
)

func TestStep(t *testing.T) {
	labels := map[string]string{corev1.LabelInstanceTypeStable: "m.large", v1.CapacityTypeLabelKey: "spot"}
	node := &cluster.Node{Name: "a", Node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: labels}}}
	step := &disrupt.Step{Remove: []*disrupt.Candidate{{Node: node}}}
	if got, want := Step(step), "delete 1 node: a/m.large/spot"; got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	step.Open = []engine.Opening{{Type: "c.small", Types: []string{"c.small", "c.large"}, Price: cloud.FromDollars(0.05)}}
	if got, want := Step(step), "replace 1 node: a/m.large/spot, replaced by c.small (2 types, $0.0500/h)"; got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestAskedSaysTheSameAsTheStep(t *testing.T) {
	plan := &v1alpha1.DisruptionStep{Remove: []v1alpha1.DisruptedNode{{Node: "a", InstanceType: "m.large", CapacityType: "spot"}}}
	if got, want := Asked(plan), "delete 1 node: a/m.large/spot"; got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	plan.Open = []v1alpha1.OpenedNode{{InstanceType: "c.small", Types: 2, Price: "0.0500"}}
	if got, want := Asked(plan), "replace 1 node: a/m.large/spot, replaced by c.small (2 types, $0.0500/h)"; got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestNoMinusStandsBehindADollar(t *testing.T) {
	for dollars, want := range map[float64]string{0.0132: "saves $0.0132 an hour, $0.0132/h", -0.0132: "costs $0.0132 an hour more, -$0.0132/h"} {
		if got := Saves(dollars) + ", " + PerHour(dollars); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
