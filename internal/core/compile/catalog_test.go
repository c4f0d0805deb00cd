package compile

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	apilabel "karpenter.sh/karpenter/api/label"
	"karpenter.sh/karpenter/cloud"
)

// A provider may call labels what they were called before.
func TestLabelsOfACatalogueHaveTheirPresentNames(t *testing.T) {
	got := NewMemory(apilabel.NewVocabulary(v1.Labels())).typeOf(&cloud.InstanceType{
		Name:   "m.large",
		Labels: map[string][]string{"beta.kubernetes.io/arch": {"arm64"}},
		Offerings: []cloud.Offering{{
			Available: true, Labels: map[string]string{"failure-domain.beta.kubernetes.io/zone": "a", v1.CapacityTypeLabelKey: v1.CapacityTypeSpot},
		}},
	}, &catalogKey{})
	if arch := got.Labels[corev1.LabelArchStable]; len(got.Labels) != 1 || len(arch) != 1 || arch[0] != "arm64" {
		t.Errorf("labels of the type are %v", got.Labels)
	}
	if labels := got.Offers[0].Labels; len(labels) != 2 || labels[corev1.LabelTopologyZone] != "a" {
		t.Errorf("labels of the offering are %v", labels)
	}
}
