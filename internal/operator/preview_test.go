package operator

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/control/catalog"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/testing/fakecloud"
	"karpenter.sh/karpenter/internal/testing/sim"
)

func TestThePreviewNeedsPoolsThatMayOpenNodes(t *testing.T) {
	preview := func(p *parts) (string, error) {
		answer, err := p.preview(func(_ context.Context, manifests []byte, in engine.Question) ([]byte, error) {
			return fmt.Appendf(nil, "%s on %s", manifests, in.Pools[0].Pool.Name), nil
		})(t.Context(), []byte("pods"))
		return string(answer), err
	}
	ready := []metav1.Condition{{Type: v1.ConditionTypeReady, Status: metav1.ConditionTrue}}
	p := someParts(t)
	machines, err := fakecloud.New(fakecloud.Options{Catalog: sim.Shop})
	if err != nil {
		t.Fatal(err)
	}
	p.catalogs = catalog.New(machines)
	static := sim.Pool("static")
	static.Status.Conditions = ready
	static.Spec.Replicas = new(int64(1))
	p.store.Update(func(d *cluster.Draft) { cluster.Pools.Put(d, static); cluster.Pools.Put(d, sim.Pool("unready")) })
	if _, err := preview(p); err == nil || !strings.Contains(err.Error(), "no NodePool may open nodes") {
		t.Errorf("with a static pool and one that is not ready: %v", err)
	}
	p.store.Update(func(d *cluster.Draft) { d.Synced(false) })
	if _, err := preview(p); err == nil || !strings.Contains(err.Error(), "still reading the cluster") {
		t.Errorf("before the cluster is read: %v", err)
	}
	pool := sim.Pool("default")
	pool.Status.Conditions = ready
	p.store.Update(func(d *cluster.Draft) { d.Synced(true); cluster.Pools.Put(d, pool) })
	if answer, err := preview(p); err != nil || answer != "pods on default" {
		t.Errorf("with a pool: %s, %v", answer, err)
	}
	if p.preview(nil) != nil {
		t.Error("without a planner there is a preview")
	}
	if _, err := p.leave(t.Context(), "no-such"); err == nil || !strings.Contains(err.Error(), "the node is gone") {
		t.Errorf("of a node that is not there: %v", err)
	}
	p.store.Update(func(d *cluster.Draft) {
		for _, name := range []string{"a", "full"} {
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
			n.Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse("2"), "memory": resource.MustParse("8Gi"), "pods": resource.MustParse("10")}
			d.PutNode(n)
		}
		for name, node := range map[string]string{"one": "a", "two": "full", "agent": "a"} {
			pod := sim.Pod(name, map[string]string{"one": "1", "two": "2", "agent": "1"}[name])
			if name == "agent" {
				pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "agent", UID: "agent", Controller: new(true)}}
			}
			pod.Spec.NodeName, pod.Status.Phase = node, corev1.PodRunning
			d.PutPod(pod)
		}
	})
	plan, err := p.leave(t.Context(), "a")
	if err != nil || len(plan.Refused) > 0 || len(plan.Place) > 0 || len(plan.Open) != 1 || len(plan.Open[0].Pods) != 1 {
		t.Errorf("%+v, %v; want a new node for one pod, since the other node is full", plan, err)
	}
}
