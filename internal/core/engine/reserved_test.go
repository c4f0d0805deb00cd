package engine_test

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/engine"
)

// A reservation may be offered in several ways, in each rack for instance. They share its machines, and which way is taken stays open as long as no pod
// cares.
func TestOfferingsOfOneReservation(t *testing.T) {
	it := &cloud.InstanceType{
		Name: "x", Labels: map[string][]string{corev1.LabelInstanceTypeStable: {"x"}, "rack": {"1", "2"}},
		Capacity: corev1.ResourceList{"cpu": resource.MustParse("2"), "memory": resource.MustParse("8Gi"), "pods": resource.MustParse("9")},
	}
	for _, rack := range []string{"1", "2"} {
		labels := map[string]string{v1.CapacityTypeLabelKey: v1.CapacityTypeReserved, corev1.LabelTopologyZone: "a", "id": "r", "rack": rack}
		it.Offerings = append(it.Offerings,
			cloud.Offering{Available: true, Price: 1, Labels: labels, Reservation: "r", Reserved: 2},
			cloud.Offering{Available: true, Price: 1000, Labels: map[string]string{v1.CapacityTypeLabelKey: v1.CapacityTypeOnDemand, corev1.LabelTopologyZone: "a", "rack": rack}})
	}
	pool := &v1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "default", UID: "pool"}}
	pool.Spec.Template.Spec.NodeClassRef = &v1.NodeClassReference{Group: "g", Kind: "K", Name: "default"}
	now := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	store := cluster.NewStore()
	store.Update(func(d *cluster.Draft) {
		for i := range 5 {
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("p", i), UID: types.UID(fmt.Sprint("p", i)), CreationTimestamp: metav1.NewTime(now)}}
			p.Spec.Containers = []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("1500m")}}}}
			p.Status.Phase = corev1.PodPending
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}
			d.PutPod(p)
		}
		d.Synced(true)
	})
	snap := store.Snapshot()
	plan := engine.New().Plan(engine.Question{Snap: snap, Pods: snap.Provisionable(), Now: now, Settings: engine.Settings{ReservedCapacity: true},
		Pools: []engine.Pool{{Pool: pool, Catalog: &cloud.Catalog{Types: []*cloud.InstanceType{it}}}}})
	reserved := 0
	for _, o := range plan.Open {
		if o.CapacityType != v1.CapacityTypeReserved {
			continue
		}
		reserved++
		ids := 0
		for _, r := range o.Claim.Spec.Requirements {
			if r.Key == "rack" && len(r.Values) == 1 {
				t.Errorf("a claim is bound to rack %v, which nobody asks for", r.Values)
			}
			if r.Key == "id" {
				ids++
			}
		}
		if ids != 1 {
			t.Errorf("a reserved claim names its reservation %d times", ids)
		}
	}
	if len(plan.Open) != 5 || reserved != 2 {
		t.Errorf("%d of %d machines are reserved, want 2 of 5", reserved, len(plan.Open))
	}
}
