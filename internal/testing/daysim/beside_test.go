package daysim

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"karpenter.sh/karpenter/internal/testing/memapi"
	"karpenter.sh/karpenter/internal/testing/sim"
)

// A node group is left as the page about Cluster Autoscaler says: while its node is there its room is used and nothing is bought; once it is cordoned pods
// that come get machines; what is drained off it gets machines too, and nobody touches the node itself.
func TestANodeGroupIsLeft(t *testing.T) {
	const pods = 4
	sim.Bubble(t, sim.Options{}, sim.KarpenterOptions{Provision: true, Disrupt: true}, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
		group := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "group", Labels: map[string]string{corev1.LabelHostname: "group", "eks.amazonaws.com/nodegroup": "workers"}}}
		group.Status.Capacity = corev1.ResourceList{"cpu": resource.MustParse("5"), "memory": resource.MustParse("16Gi"), "pods": resource.MustParse("110")}
		group.Status.Allocatable = group.Status.Capacity
		group.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		w.API.Put(group)
		add := func(i int) {
			sim.Create(t, w, sim.Pod(fmt.Sprintf("p-%d", i), "1", func(p *corev1.Pod) { p.Labels["app"] = "web" }, owned))
		}
		for i := range pods {
			add(i)
		}
		time.Sleep(time.Minute)
		if n := len(w.Cloud.Machines()); n > 0 || on(w, "group") != pods {
			t.Fatalf("%d pods run on the node group, and %d machines were bought beside it", on(w, "group"), n)
		}
		memapi.Edit(w.API, "", "group", func(n *corev1.Node) { // kubectl cordon, and what Kubernetes adds
			n.Spec.Unschedulable, n.Spec.Taints = true, []corev1.Taint{{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}}
		})
		add(pods)
		time.Sleep(time.Minute)
		if n := len(w.Cloud.Machines()); n == 0 || on(w, "group") != pods {
			t.Errorf("%d machines were bought for a pod that comes after the cordon; %d pods run on the node group", n, on(w, "group"))
		}
		for _, p := range memapi.All[*corev1.Pod](w.API) { // kubectl drain
			if p.Spec.NodeName == "group" {
				sim.Delete(t, w, p)
			}
		}
		time.Sleep(time.Minute)
		all := memapi.All[*corev1.Pod](w.API)
		if on(w, "group") > 0 || on(w, "") > 0 || len(all) != pods+1 {
			t.Errorf("of %d pods %d run on the node group and %d nowhere", len(all), on(w, "group"), on(w, ""))
		}
		if n := sim.Get[*corev1.Node](t, w, "group"); n.DeletionTimestamp != nil || len(n.Finalizers) > 0 || len(n.Spec.Taints) != 1 {
			t.Errorf("the node of the group was touched: %+v", n)
		}
	})
}

// on counts the pods of a node, or those that have none.
func on(w *sim.World, node string) (n int) {
	for _, p := range memapi.All[*corev1.Pod](w.API) {
		if p.Spec.NodeName == node && p.DeletionTimestamp == nil {
			n++
		}
	}
	return n
}
