package rollout

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/testing/memapi"
	"karpenter.sh/karpenter/internal/testing/sim"
)

// Of the workloads with a failing pod, a Deployment that is not available trips the gate; one that is available, or that does not exist,
// and a pod without a Deployment do not.
func TestUnavailableDeploymentsTrip(t *testing.T) {
	api := memapi.New(memapi.Scheme())
	store := cluster.NewStore()
	var failing []*cluster.Pod
	for name, status := range map[string]corev1.ConditionStatus{"broken": corev1.ConditionFalse, "fine": corev1.ConditionTrue, "gone": ""} {
		if status != "" {
			d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
			d.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentAvailable, Status: status}}
			api.Put(d)
		}
		store.Update(func(d *cluster.Draft) {
			d.PutPod(sim.Pod(name, "1", sim.OwnedBy(name+"-5d8"), func(p *corev1.Pod) { p.Labels["pod-template-hash"] = "5d8" }))
			d.PutPod(sim.Pod(name+"-alone", "1", sim.OwnedBy(name)))
		})
	}
	for p := range store.Snapshot().Pods() {
		failing = append(failing, p)
	}
	l := New(Deps{Client: api.Client("test")})
	trips, err := l.unavailable(t.Context(), failing)
	if err != nil || len(trips) != 1 || trips[0].gate != "deploymentsAvailable" ||
		trips[0].evidence != "gate deploymentsAvailable: Deployment default/broken is not available, and its pod broken fails on a new machine" {
		t.Errorf("%v, %v", trips, err)
	}
}
