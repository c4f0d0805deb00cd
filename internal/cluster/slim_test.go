package cluster_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
)

// labels are as many as those of a machine of EC2.
func manyLabels() map[string]string {
	out := map[string]string{v1.NodePoolLabelKey: "default"}
	for i := range 25 {
		out[fmt.Sprintf("label.example.com/something-%02d", i)] = fmt.Sprint("value of ", i)
	}
	return out
}

func manyResources() corev1.ResourceList {
	return corev1.ResourceList{
		"cpu": resource.MustParse("47810m"), "memory": resource.MustParse("387916572Ki"), "pods": resource.MustParse("234"),
		"ephemeral-storage": resource.MustParse("18233774490"), "vpc.amazonaws.com/pod-eni": resource.MustParse("54"),
	}
}

func fullMeta() metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: "NAME", UID: "uid-NAME", ResourceVersion: "4199", Generation: 1, Labels: manyLabels(), Finalizers: []string{v1.TerminationFinalizer},
		Annotations:     map[string]string{v1.NodePoolHashAnnotationKey: "8576363772586580947", v1.NodePoolHashVersionAnnotationKey: "go1"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "karpenter.sh/v1", Kind: "NodePool", Name: "default", UID: "pool"}},
		ManagedFields:   []metav1.ManagedFieldsEntry{{Manager: "somebody", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{}}}`)}},
	}
}

// fullClaim is a claim that lists 219 types, as those of a pool without many requirements do.
func fullClaim() *v1.NodeClaim {
	c := &v1.NodeClaim{ObjectMeta: fullMeta()}
	var types []string
	for i := range 219 {
		types = append(types, fmt.Sprintf("r%d.%dxlarge", i%9, i))
	}
	c.Spec.Requirements = []v1.NodeSelectorRequirementWithMinValues{
		{Key: v1.NodePoolLabelKey, Operator: "In", Values: []string{"default"}}, {Key: corev1.LabelInstanceTypeStable, Operator: "In", Values: types},
	}
	c.Spec.NodeClassRef = &v1.NodeClassReference{Group: "karpenter.k8s.aws", Kind: "EC2NodeClass", Name: "default"}
	c.Spec.Taints = []corev1.Taint{{Key: "team", Value: "a", Effect: "NoSchedule"}}
	c.Spec.Resources.Requests = manyResources()
	c.Status = v1.NodeClaimStatus{NodeName: "NAME", ProviderID: "aws:///z/NAME", ImageID: "ami-0dbe934f881b7032c", Capacity: manyResources(), Allocatable: manyResources()}
	for _, kind := range []string{"Launched", "Registered", "Initialized", "Ready"} {
		c.Status.Conditions = append(c.Status.Conditions, metav1.Condition{Type: kind, Status: "True", Reason: kind, ObservedGeneration: 1})
	}
	return c
}

func fullNode() *corev1.Node {
	n := &corev1.Node{ObjectMeta: fullMeta()}
	n.Spec = corev1.NodeSpec{ProviderID: "aws:///z/NAME", PodCIDR: "10.0.0.0/24", Taints: []corev1.Taint{{Key: "team", Value: "a", Effect: "NoSchedule"}}, Unschedulable: true}
	n.Status = corev1.NodeStatus{Capacity: manyResources(), Allocatable: manyResources(), Phase: corev1.NodeRunning}
	n.Status.NodeInfo = corev1.NodeSystemInfo{KubeletVersion: "v1.36.0", BootID: "9f1c"}
	n.Status.DeclaredFeatures = []string{"RestartAllContainersOnContainerExits"}
	n.Status.Addresses = []corev1.NodeAddress{{Type: "InternalIP", Address: "10.0.0.1"}}
	n.Status.Images = []corev1.ContainerImage{{Names: []string{"registry.example.com/image"}}}
	for _, kind := range []string{"MemoryPressure", "DiskPressure", "PIDPressure", "Ready"} {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{
			Type: corev1.NodeConditionType(kind), Status: "True", Reason: "KubeletHasSomethingToSayAboutIt", Message: "kubelet has something to say about it",
		})
	}
	return n
}

func TestWhatDecisionsReadIsKept(t *testing.T) {
	s := cluster.NewStore()
	node, claim := fullNode(), fullClaim()
	cameNode, cameClaim := node.DeepCopy(), claim.DeepCopy()
	s.Update(func(d *cluster.Draft) { d.PutNode(node); d.PutClaim(claim) })
	if !equality.Semantic.DeepEqual(node, cameNode) || !equality.Semantic.DeepEqual(claim, cameClaim) {
		t.Error("the store changed an object that it was given")
	}
	row := s.Snapshot().ClaimNode("NAME")
	wantNode, wantClaim := cameNode, cameClaim
	wantNode.ManagedFields, wantNode.Spec.PodCIDR, wantNode.Status.NodeInfo = nil, "", corev1.NodeSystemInfo{BootID: "9f1c"}
	wantNode.Status.Addresses, wantNode.Status.Images = nil, nil
	wantClaim.ManagedFields = nil
	if diff := cmp.Diff(wantNode, row.Node); diff != "" {
		t.Errorf("node: -want +have\n%s", diff)
	}
	if diff := cmp.Diff(wantClaim, row.Claim); diff != "" {
		t.Errorf("claim: -want +have\n%s", diff)
	}
}

func TestEqualClaimsShare(t *testing.T) {
	s := cluster.NewStore()
	a, b := fullClaim(), fullClaim()
	a.Name, b.Name, b.UID, b.Status.ProviderID = "a", "b", "other", "aws:///z/b"
	s.Update(func(d *cluster.Draft) { d.PutClaim(a); d.PutClaim(b) })
	snap := s.Snapshot()
	if x, y := snap.ClaimNode("a").Claim.Spec.Requirements[1].Values, snap.ClaimNode("b").Claim.Spec.Requirements[1].Values; &x[0] != &y[0] {
		t.Error("two claims hold two copies of one list of types")
	}
	old := snap.ClaimNode("a").Claim
	next := old.DeepCopy()
	next.ResourceVersion, next.Annotations = "5000", maps.Clone(next.Annotations)
	next.Annotations["new"] = "x"
	s.Update(func(d *cluster.Draft) { d.PutClaim(next) })
	if got := s.Snapshot().ClaimNode("a").Claim; got.Annotations["new"] != "x" || old.Annotations["new"] != "" {
		t.Errorf("after a change the annotations are %v, and those of the old row %v", got.Annotations, old.Annotations)
	}
}

// weigh reports what one object weighs of a thousand, each decoded by itself.
func weigh[O any](b *testing.B, sample O, put func(*cluster.Draft, O)) {
	text, err := json.Marshal(sample)
	if err != nil {
		b.Fatal(err)
	}
	const objects = 1000
	for b.Loop() {
		s := cluster.NewStore()
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		for i := range objects {
			var o O
			if err := json.Unmarshal(bytes.ReplaceAll(text, []byte("NAME"), fmt.Appendf(nil, "ip-10-0-%d-%d.internal", i/250, i%250)), &o); err != nil {
				b.Fatal(err)
			}
			s.Update(func(d *cluster.Draft) { put(d, o) })
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/objects, "B-live/object")
		if got := len(slices.Collect(s.Snapshot().Nodes())); got != objects {
			b.Fatalf("%d rows", got)
		}
	}
}

func BenchmarkWeight(b *testing.B) {
	b.Run("claim", func(b *testing.B) { weigh(b, fullClaim(), func(d *cluster.Draft, c *v1.NodeClaim) { d.PutClaim(c) }) })
	b.Run("node", func(b *testing.B) { weigh(b, fullNode(), func(d *cluster.Draft, n *corev1.Node) { d.PutNode(n) }) })
}
