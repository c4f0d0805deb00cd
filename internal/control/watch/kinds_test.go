package watch

import (
	"slices"
	"testing"

	resourcev1alpha3 "k8s.io/api/resource/v1alpha3"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"karpenter.sh/karpenter/internal/cluster"
)

// A rule whose selector a later Kubernetes does not know would taint all devices.
func TestDeviceTaintRulesOfTwoVersions(t *testing.T) {
	rule := func(name string, s *resourcev1beta2.DeviceTaintSelector) *resourcev1beta2.DeviceTaintRule {
		return &resourcev1beta2.DeviceTaintRule{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourcev1beta2.DeviceTaintRuleSpec{DeviceSelector: s}}
	}
	alpha, beta := taintRules(resourcev1alpha3.SchemeGroupVersion), taintRules(resourcev1beta2.SchemeGroupVersion)
	store := cluster.NewStore()
	store.Update(func(d *cluster.Draft) {
		alpha.put(d, rule("alpha-nothing", nil))
		alpha.put(d, rule("alpha-empty", &resourcev1beta2.DeviceTaintSelector{}))
		alpha.put(d, rule("alpha-driver", &resourcev1beta2.DeviceTaintSelector{Driver: new("gpu.example")}))
		beta.put(d, rule("beta-empty", &resourcev1beta2.DeviceTaintSelector{}))
	})
	var have []string
	for r := range cluster.DeviceTaintRules.All(store.Snapshot()) {
		have = append(have, r.Name)
	}
	if want := []string{"alpha-driver", "beta-empty"}; !slices.Equal(have, want) {
		t.Errorf("rules = %v, want %v", have, want)
	}
}

func TestKindsThatMayBeMissingAreRead(t *testing.T) {
	var optional []string
	for _, list := range [][]served{builtin(), devices()} {
		for _, k := range list {
			if k.optional {
				optional = append(optional, k.name)
			}
		}
	}
	for _, name := range []string{"CSIDriver", "DeviceTaintRule v1beta2", "DeviceTaintRule v1alpha3"} {
		if !slices.Contains(optional, name) {
			t.Errorf("%s is not read, or a server without it stops the start", name)
		}
	}
}
