package crashtest

import (
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/testing/memapi"
	"karpenter.sh/karpenter/internal/testing/sim"
)

// stale runs a test in which Karpenter, which knows of so many failed feeds, does not hear that a pod has come to the only node, before the
// last other one went.
func stale(t *testing.T, failed []cluster.FailedFeed, test func(t *testing.T, w *sim.World, k *sim.Karpenter, hear func())) {
	t.Helper()
	var hears atomic.Bool
	ko := sim.KarpenterOptions{Provision: true, Disrupt: true, Deaf: func(e memapi.Event) bool {
		pod, ok := e.Object.(*corev1.Pod)
		return ok && pod.Name == "late" && !hears.Load()
	}}
	sim.Bubble(t, sim.Options{}, ko, func(t *testing.T, w *sim.World, k *sim.Karpenter) {
		w.API.Put(sim.Pod("first", "1"))
		time.Sleep(2 * time.Minute)
		w.API.Put(&policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "held"},
			Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "late"}}},
		})
		k.Store.Update(func(d *cluster.Draft) { d.FailedFeeds(failed) })
		w.API.Put(sim.Pod("late", "500m"))
		time.Sleep(2 * time.Second)
		sim.Delete(t, w, sim.Get[*corev1.Pod](t, w, "first"))
		time.Sleep(2 * time.Second)
		if sim.Get[*corev1.Pod](t, w, "late").Spec.NodeName == "" {
			t.Fatal("the pod is on no node")
		}
		test(t, w, k, func() { hears.Store(true) })
	})
}

func wantRunning(t *testing.T, w *sim.World) {
	t.Helper()
	if p, ok := sim.Find[*corev1.Pod](w, "late"); !ok || p.DeletionTimestamp != nil || len(w.Cloud.Machines()) != 1 {
		t.Errorf("the pod is there: %v, %d machines; want it to run on", ok, len(w.Cloud.Machines()))
	}
}

// Before anybody noticed that pods are not read, the node is taken for empty and its end begins. Its machine is not stopped.
func TestAPodThatNobodySawKeepsItsMachine(t *testing.T) {
	stale(t, nil, func(t *testing.T, w *sim.World, _ *sim.Karpenter, _ func()) {
		time.Sleep(10 * time.Minute)
		if c := memapi.All[*v1.NodeClaim](w.API); len(c) != 1 || c[0].DeletionTimestamp == nil {
			t.Fatal("the node was not taken for empty: the test shows nothing")
		}
		wantRunning(t, w)
	})
}

func TestNothingIsDisruptedWhileAFeedHasFailed(t *testing.T) {
	failed := []cluster.FailedFeed{{Kind: "Pod", Since: time.Now(), Why: "forbidden"}}
	stale(t, failed, func(t *testing.T, w *sim.World, k *sim.Karpenter, hear func()) {
		time.Sleep(30 * time.Minute)
		for _, c := range memapi.All[*v1.NodeClaim](w.API) {
			if c.DeletionTimestamp != nil {
				t.Errorf("%s was deleted by a picture that nobody keeps up to date", c.Name)
			}
		}
		wantRunning(t, w)
		now := condition.Get(sim.Get[*v1.NodePool](t, w, "default"), v1.ConditionTypeClusterStateCurrent)
		if now == nil || now.Status != metav1.ConditionFalse || now.Reason != v1.ReasonFeedFailed {
			t.Errorf("condition = %+v, want the pool to tell", now)
		}
		if !condition.IsTrue(sim.Get[*v1.NodePool](t, w, "default"), condition.Ready) {
			t.Error("the pool is not ready: nodes can still be had")
		}

		hear()
		memapi.Edit(w.API, "default", "late", func(p *corev1.Pod) { p.Labels["seen"] = "true" })
		time.Sleep(time.Second) // a feed is healthy again once it was heard
		k.Store.Update(func(d *cluster.Draft) { d.FailedFeeds(nil) })
		time.Sleep(10 * time.Minute)
		wantRunning(t, w)
		if c := condition.Get(sim.Get[*v1.NodePool](t, w, "default"), v1.ConditionTypeClusterStateCurrent); c != nil {
			t.Errorf("condition = %+v, want none", c)
		}
		w.API.Remove(sim.Get[*corev1.Pod](t, w, "late"))
		time.Sleep(10 * time.Minute)
		sim.WantNothing(t, w)
	})
}
