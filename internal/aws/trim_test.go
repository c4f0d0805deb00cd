package aws

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/share"
)

func TestOnlyWhatTheProviderReadsIsKept(t *testing.T) {
	trim := trimmer{share.New()}
	now := time.Now()
	meta := metav1.ObjectMeta{
		Name: "a", UID: "u", ResourceVersion: "7", Finalizers: []string{v1.TerminationFinalizer},
		OwnerReferences: []metav1.OwnerReference{{Name: "default"}},
		Labels: map[string]string{
			v1.NodePoolLabelKey: "default", v1.CapacityTypeLabelKey: "spot", corev1.LabelTopologyZone: "z", corev1.LabelHostname: "h",
			v1.NodeRegisteredLabelKey: "true", corev1.LabelInstanceTypeStable: "m5.large",
		},
	}
	t.Run("claim", func(t *testing.T) {
		c := &v1.NodeClaim{ObjectMeta: meta}
		c.Annotations = map[string]string{awsv1.AnnotationInstanceTagged: "true"}
		c.Spec.NodeClassRef = &v1.NodeClassReference{Name: "default"}
		c.Spec.TerminationGracePeriod = &metav1.Duration{Duration: time.Hour}
		c.Spec.Requirements = []v1.NodeSelectorRequirementWithMinValues{{Key: corev1.LabelInstanceTypeStable, Operator: "In", Values: []string{"m5.large"}}}
		c.Status.ProviderID, c.Status.NodeName, c.Status.ImageID = "p", "n", "ami"
		c.Status.Capacity = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}
		for _, kind := range []string{v1.ConditionTypeLaunched, v1.ConditionTypeRegistered, v1.ConditionTypeDrifted} {
			condition.SetTrue(c, kind, now)
		}
		want := c.DeepCopy()
		want.Finalizers, want.OwnerReferences, want.Spec.Requirements, want.Status.Capacity = nil, nil, nil, nil
		delete(want.Labels, corev1.LabelHostname)
		delete(want.Labels, v1.NodeRegisteredLabelKey)
		want.Status.Conditions = []metav1.Condition{*condition.Get(c, v1.ConditionTypeLaunched), *condition.Get(c, v1.ConditionTypeDrifted)}
		if diff := cmp.Diff(want, trim.claim(c)); diff != "" {
			t.Errorf("-want +have:\n%s", diff)
		}
	})
	t.Run("node", func(t *testing.T) {
		n := &corev1.Node{ObjectMeta: meta}
		n.Annotations = map[string]string{"a": "b"}
		n.Spec.ProviderID = "p"
		n.Spec.Taints = []corev1.Taint{{Key: "k"}}
		n.Status.Capacity = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("8Gi")}
		want := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: "a", UID: "u", ResourceVersion: "7", Labels: map[string]string{v1.NodeRegisteredLabelKey: "true", v1.CapacityTypeLabelKey: "spot"},
		}}
		want.Spec.ProviderID = "p"
		want.Status.Capacity = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("8Gi")}
		if diff := cmp.Diff(want, trim.node(n)); diff != "" {
			t.Errorf("-want +have:\n%s", diff)
		}
	})
}
