package static_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/static"
)

// A static pool gets another machine however much room there is on those that run.
func TestAMachineIsOpenedBesideEmptyOnes(t *testing.T) {
	amounts := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("16Gi"), corev1.ResourcePods: resource.MustParse("110"),
	}
	sold := &cloud.Catalog{Types: []*cloud.InstanceType{{
		Name: "m", Capacity: amounts, Labels: map[string][]string{corev1.LabelInstanceTypeStable: {"m"}, corev1.LabelTopologyZone: {"a"}, v1.CapacityTypeLabelKey: {v1.CapacityTypeOnDemand}},
		Offerings: []cloud.Offering{{
			Available: true, Price: cloud.FromDollars(0.2), Labels: map[string]string{corev1.LabelTopologyZone: "a", v1.CapacityTypeLabelKey: v1.CapacityTypeOnDemand},
		}},
	}}}
	store := cluster.NewStore()
	store.Update(func(d *cluster.Draft) {
		d.PutNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "idle"}, Status: corev1.NodeStatus{Capacity: amounts, Allocatable: amounts}})
		d.Synced(true)
	})
	p := pool(2)
	p.UID = "fixed"
	o, why := static.Opening(engine.New(), engine.Pool{Pool: p, Catalog: sold}, engine.Question{Snap: store.Snapshot(), Now: now})
	if why != nil || o.Pool != "fixed" || o.Type != "m" || !o.Static || len(o.Pods) > 0 {
		t.Errorf("opened %+v, refused for %+v", o, why)
	}
}
