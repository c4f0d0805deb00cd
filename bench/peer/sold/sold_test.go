package sold

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
)

func TestTheirTypesSellWhatOursDo(t *testing.T) {
	it := &cloud.InstanceType{Name: "m5.large", Labels: map[string][]string{corev1.LabelInstanceTypeStable: {"m5.large"}, "never": nil},
		Offerings: []cloud.Offering{{Available: true, Price: cloud.FromDollars(0.1), Labels: map[string]string{corev1.LabelTopologyZone: "a", v1.CapacityTypeLabelKey: "spot"}}}}
	out := Type(it)
	if o := out.Offerings[0]; o.Zone() != "a" || o.CapacityType() != "spot" || !o.Available || o.Price != 0.1 {
		t.Errorf("offering = %+v", o)
	}
	if out.Requirements.Get("never").Operator() != corev1.NodeSelectorOpDoesNotExist {
		t.Error("a label that the type never has may have a value")
	}
}
