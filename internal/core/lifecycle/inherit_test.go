package lifecycle

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
)

// A claim for a machine of a Provisioner says what the pool says, but nothing by which the Node would change under its pods.
func TestAClaimForARunningMachineChangesNothingOnItsNode(t *testing.T) {
	pool := &v1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "general", Annotations: map[string]string{
		v1.ProvisionerAnnotationKey: "web", v1.NodePoolHashAnnotationKey: "1", v1.NodePoolHashVersionAnnotationKey: "go1", "team": "blue",
	}}}
	pool.Spec.Template.Labels = map[string]string{"team": "blue", "tier": "front"}
	spec := &pool.Spec.Template.Spec
	spec.NodeClassRef = &v1.NodeClassReference{Group: "example.org", Kind: "Class", Name: "default"}
	spec.Taints = []corev1.Taint{{Key: "kept", Effect: corev1.TaintEffectNoSchedule}, {Key: "newer", Effect: corev1.TaintEffectNoExecute}}
	spec.StartupTaints = []corev1.Taint{{Key: "starting", Effect: corev1.TaintEffectNoExecute}}
	spec.Requirements = []v1.NodeSelectorRequirementWithMinValues{{Key: corev1.LabelArchStable, Operator: corev1.NodeSelectorOpIn, Values: []string{"arm64"}}}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "ip-10-0-0-1", Labels: map[string]string{
		v1.ProvisionerLabelKey: "web", "team": "red", corev1.LabelArchStable: "amd64", corev1.LabelInstanceTypeStable: "m5.large", "somebody/else": "x",
	}}}
	node.Spec.Taints = []corev1.Taint{{Key: "kept", Effect: corev1.TaintEffectNoSchedule}}
	b := Bequest{Machine: cloud.Machine{ProviderID: "id-1", Provisioner: "web"}, Nodes: []*corev1.Node{node}, Heir: pool}

	c := b.Claim()
	if c.Name != node.Name || c.Annotations[v1.AdoptsAnnotationKey] != "id-1" || c.Annotations[v1.NodePoolHashAnnotationKey] != "1" {
		t.Errorf("claim %s with %v", c.Name, c.Annotations)
	}
	if diff := cmp.Diff(node.Spec.Taints, c.Spec.Taints); diff != "" || len(c.Spec.StartupTaints) > 0 {
		t.Errorf("taints that the Node does not have: %s, %v", diff, c.Spec.StartupTaints)
	}
	want := map[string]string{
		v1.ProvisionerLabelKey: "web", "team": "red", "tier": "front", corev1.LabelArchStable: "amd64", corev1.LabelInstanceTypeStable: "m5.large",
		v1.NodePoolLabelKey: "general", "example.org/class": "default",
	}
	if diff := cmp.Diff(want, c.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	if len(spec.StartupTaints) != 1 || len(spec.Taints) != 2 || pool.Spec.Template.Labels["team"] != "blue" {
		t.Error("the pool was changed")
	}
}

// Who deletes Provisioners, or their definition, does not delete Nodes by it.
func TestJoinTakesOlderOwnersAway(t *testing.T) {
	other := metav1.OwnerReference{APIVersion: "example.org/v1", Kind: "Machine", Name: "m", UID: "4"}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "karpenter.sh/v1alpha5", Kind: "Provisioner", Name: "web", UID: "1"}, {APIVersion: "karpenter.sh/v1alpha5", Kind: "Machine", Name: "web-x", UID: "2"}, other,
	}}}
	claim := &v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "c", UID: "3"}}
	Join(node, claim)
	if diff := cmp.Diff([]metav1.OwnerReference{other, owner(claim)}, node.OwnerReferences); diff != "" {
		t.Errorf("owners (-want +got):\n%s", diff)
	}
}
