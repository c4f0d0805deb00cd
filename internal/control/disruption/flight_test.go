package disruption

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/disrupt"
	"karpenter.sh/karpenter/internal/core/engine"
)

// TestPodsInTheAirKeepTheRoomTheyWerePromised follows two pods from the start of their step to the nodes that they go to.
func TestPodsInTheAirKeepTheRoomTheyWerePromised(t *testing.T) {
	store := cluster.NewStore()
	put := func(name, node string, edit func(*corev1.Pod)) *cluster.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}}
		p.Spec.NodeName, p.Status.Phase = node, corev1.PodRunning
		edit(p)
		store.Update(func(d *cluster.Draft) { d.PutPod(p) })
		return store.Snapshot().Pod(cluster.PodKey{Namespace: "default", Name: name})
	}
	drop := func(name string) {
		store.Update(func(d *cluster.Draft) { d.DeletePod(cluster.PodKey{Namespace: "default", Name: name}) })
	}
	running := func(*corev1.Pod) {}
	waiting := func(p *corev1.Pod) {
		p.Status.Phase = corev1.PodPending
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}
	}
	one, two := put("one", "old", running), put("two", "old", running)
	step := &disrupt.Step{Remove: []*disrupt.Candidate{{Pods: []*cluster.Pod{one, two}}}, Place: []engine.Placement{{Pod: one, Node: "there"}, {Pod: two, Node: "there"}}}
	l := &Loop{settings: Settings{Landing: 20 * time.Second}, pending: map[string]*proposal{"x": {step: step}}}
	start := time.Date(2026, 7, 15, 12, 0, 0, 0, time.UTC)
	expect := func(when string, after time.Duration, want bool) {
		t.Helper()
		if got := l.landing(store.Snapshot(), start.Add(after))["there"]; got != want {
			t.Errorf("%s: the room is kept = %v, want %v", when, got, want)
		}
	}
	expect("while the step waits for its second look", 0, true)
	delete(l.pending, "x")
	expect("when it was dropped", 0, false)
	l.depart(step, []string{"new"}, start)
	expect("when it has started", 0, true)
	if !l.landing(store.Snapshot(), start)["new"] {
		t.Error("the replacement is not kept")
	}
	expect("while a slow drain has not begun: plans keep the room of pods that run", 10*time.Second, false)
	drop("one")
	expect("when the first pod has left", time.Minute, true)
	expect("five seconds later nobody waits", time.Minute+quickLanding, false)
	drop("two")
	put("two-again", "", waiting)
	expect("when the second has left", 2*time.Minute, true)
	expect("while the pod that takes its place waits", 2*time.Minute+19*time.Second, true)
	expect("but not for ever", 2*time.Minute+20*time.Second, false)
	if len(l.flights) > 0 {
		t.Error("a flight that is over is still remembered")
	}
}
