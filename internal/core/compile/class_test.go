package compile

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	apilabel "karpenter.sh/karpenter/api/label"
	"karpenter.sh/karpenter/internal/core/quantity"
)

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

// A pool that asks for none of no values asks for the label: drift reads it so, and nodes that lack it would be replaced for ever.
func TestNoneOfNothingIsSomething(t *testing.T) {
	reqs := func(op corev1.NodeSelectorOperator) string {
		pool := &v1.NodePool{}
		pool.Spec.Template.Spec.Requirements = []v1.NodeSelectorRequirementWithMinValues{{Key: "team", Operator: op}}
		return NewMemory(apilabel.NewVocabulary(v1.Labels())).poolReqs(pool).Key()
	}
	if got, want := reqs(corev1.NodeSelectorOpNotIn), reqs(corev1.NodeSelectorOpExists); got != want {
		t.Errorf("NotIn of nothing leaves %q, Exists %q", got, want)
	}
}
