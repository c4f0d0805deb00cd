package view_test

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/disrupt"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/explain/view"
)

var now = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// machine is a claim and its Node, ready for pods.
func machine() (*v1.NodeClaim, *corev1.Node) {
	labels := map[string]string{v1.NodePoolLabelKey: "p", corev1.LabelInstanceTypeStable: "m.x", corev1.LabelTopologyZone: "z",
		v1.CapacityTypeLabelKey: v1.CapacityTypeSpot, v1.NodeRegisteredLabelKey: "true", v1.NodeInitializedLabelKey: "true"}
	claim := &v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "c", UID: "c", Labels: labels}}
	claim.Status.ProviderID = "id"
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: labels}}
	node.Spec.ProviderID = "id"
	node.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi")}
	return claim, node
}

func putPod(s *cluster.Store, name, cpu string) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: name, UID: types.UID(name)}}
	pod.Spec.NodeName, pod.Status.Phase = "n", corev1.PodRunning
	pod.Spec.Containers = []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse("2Gi")}}}}
	s.Update(func(d *cluster.Draft) { d.PutPod(pod) })
}

func catalog(price float64) map[string]engine.Pool {
	return map[string]engine.Pool{"p": {Catalog: &cloud.Catalog{Types: []*cloud.InstanceType{{Name: "m.x", Offerings: []cloud.Offering{{
		Labels: map[string]string{corev1.LabelTopologyZone: "z", v1.CapacityTypeLabelKey: v1.CapacityTypeSpot}, Price: cloud.FromDollars(price)}}}}}}}
}

func TestWhatIsReadFollowsPodsAndPrices(t *testing.T) {
	s := cluster.NewStore()
	claim, node := machine()
	s.Update(func(d *cluster.Draft) {
		d.PutClaim(claim)
		d.PutNode(node)
		d.PutNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "of-others"}})
	})
	var r view.Reader
	want := view.Machine{Name: "n", Claim: "c", Pool: "p", Type: "m.x", Zone: "z", CapacityType: "spot", CPU: view.Share{All: 4}, Memory: view.Share{All: 8 << 30}}
	look := func(when string, pools map[string]engine.Pool) {
		t.Helper()
		for range 2 { // the second time from memory
			rows := r.Read(s.Snapshot(), pools)
			if len(rows) != 1 || rows[0].Machine != want {
				t.Errorf("%s: got %+v, want %+v", when, rows, want)
			}
		}
	}
	look("before prices are known", nil)
	want.Price = cloud.FromDollars(0.1)
	dear := catalog(0.1)
	look("with a price", dear)
	putPod(s, "a", "1")
	putPod(s, "b", "500m")
	want.CPU.Used, want.Memory.Used, want.Pods = 1.5, 4<<30, 2
	look("with pods", dear)
	want.Price = cloud.FromDollars(0.2)
	look("with another price", catalog(0.2))
}

func TestMarks(t *testing.T) {
	for name, tc := range map[string]struct {
		edit func(*v1.NodeClaim, *corev1.Node)
		want []view.Mark
	}{
		"of a machine like any other": {func(*v1.NodeClaim, *corev1.Node) {}, nil},
		"a machine that boots":        {func(c *v1.NodeClaim, n *corev1.Node) { n.Labels = map[string]string{v1.NodePoolLabelKey: "p"} }, []view.Mark{view.Boots}},
		"one that has drifted": {func(c *v1.NodeClaim, _ *corev1.Node) {
			c.Status.Conditions = []metav1.Condition{{Type: v1.ConditionTypeDrifted, Status: metav1.ConditionTrue}}
		}, []view.Mark{view.Drifted}},
		"one of a step that goes": {func(c *v1.NodeClaim, _ *corev1.Node) {
			c.Annotations, c.DeletionTimestamp = map[string]string{v1.DisruptionCommandAnnotationKey: "{}"}, &metav1.Time{Time: now}
		}, []view.Mark{view.Goes, view.InStep}},
	} {
		t.Run(name, func(t *testing.T) {
			s := cluster.NewStore()
			claim, node := machine()
			tc.edit(claim, node)
			s.Update(func(d *cluster.Draft) { d.PutClaim(claim); d.PutNode(node) })
			snap := s.Snapshot()
			if got := view.Marks(snap, snap.Node("n"), now); !slices.Equal(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
	s := cluster.NewStore()
	claim, node := machine()
	s.Update(func(d *cluster.Draft) {
		d.PutClaim(claim)
		d.PutNode(node)
		cluster.Pools.Put(d, &v1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "p", Annotations: map[string]string{v1.PausedAnnotationKey: "2026-05-01T12:00:01Z"}}})
	})
	for at, want := range map[time.Time][]view.Mark{now: {view.Paused}, now.Add(time.Second): nil} {
		if got := view.Marks(s.Snapshot(), s.Snapshot().Node("n"), at); !slices.Equal(got, want) {
			t.Errorf("at %v: got %q, want %q", at, got, want)
		}
	}
}

// A quota that leaves no room for another machine keeps the node, and not the pods that would need it.
func TestAQuotaKeepsANode(t *testing.T) {
	r := disrupt.Refusal{Code: disrupt.NoPlace, Quotas: []string{"budget"}, Stuck: []disrupt.Stuck{{Pod: cluster.PodKey{Namespace: "n", Name: "p"}}}}
	snap := cluster.NewStore().Snapshot()
	if got := view.Keeper(snap, &r); got != "CapacityQuota budget" {
		t.Errorf("kept by %q", got)
	}
	r.Quotas = nil
	if got := view.Keeper(snap, &r); got != "Pod n/p" {
		t.Errorf("without a quota kept by %q", got)
	}
}
