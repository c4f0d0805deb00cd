package disruption

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
)

// The nodes of a step that waits for its second look are kept for it, and so is its part of the budgets.
func TestStepsThatWaitCountAgainstBudgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t.Context())
		var l *Loop
		s.spoil = func(made *Loop) { l = made }
		stop := s.run(t)
		time.Sleep(validationDelay - time.Second)
		stop()
		w := l.world(t.Context(), s.store.Snapshot(), time.Now())
		if len(l.pending) != 1 || w.Promised["p"] != 1 || !w.Busy["claim-a"] {
			t.Errorf("%d steps wait, promised %v, busy %v; want one step of node a", len(l.pending), w.Promised, w.Busy)
		}
	})
}

// Where the pods of a step go nothing is planned and nothing removed until they have landed.
func TestPodsInFlightKeepTheirRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t.Context())
		s.node("b", "small", true)
		pod := func(name, node string) *corev1.Pod {
			yes := true
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}}
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "rs", UID: "rs", Controller: &yes}}
			p.Spec.NodeName, p.Status.Phase = node, corev1.PodRunning
			p.Spec.Containers = []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("250m")}}}}
			return p
		}
		s.api.Put(pod("on-b", "b"))
		s.api.Put(pod("on-a", "a"))
		s.api.Put(pod("on-a-too", "a"))
		var l *Loop
		s.spoil = func(made *Loop) { l = made }
		stop := s.run(t)
		time.Sleep(validationDelay + 3*time.Second)
		stop()
		if c := s.claim("claim-a"); c.DeletionTimestamp == nil {
			t.Fatal("the node whose pods fit on the other one was not removed")
		}
		seat, ok := s.store.Snapshot().Planned(cluster.PodKey{Namespace: "default", Name: "on-a"})
		if !ok || seat.Target != "claim-b" {
			t.Errorf("a pod that is still to go has the seat %+v", seat)
		}
		s.api.Remove(pod("on-a", "a"))
		time.Sleep(time.Second)
		if w := l.world(t.Context(), s.store.Snapshot(), time.Now()); !w.Landing["b"] {
			t.Errorf("landing = %v, want the node that the pods go to", w.Landing)
		}
		time.Sleep(20 * time.Second)
		s.api.Remove(pod("on-a-too", "a"))
		time.Sleep(time.Second)
		if w := l.world(t.Context(), s.store.Snapshot(), time.Now()); !w.Landing["b"] {
			t.Error("the second pod's seat is not kept")
		}
		if got := vacant(s.store.Snapshot()); got != 1 {
			t.Errorf("%d seats are vacant, want only that of the pod that has just gone", got)
		}
		time.Sleep(20 * time.Second)
		if w := l.world(t.Context(), s.store.Snapshot(), time.Now()); w.Landing["b"] || vacant(s.store.Snapshot()) > 0 {
			t.Error("seats that nobody takes are kept for ever")
		}
	})
}

func vacant(snap *cluster.Snapshot) (n int) {
	for s := range snap.Seats() {
		if s.Vacant() {
			n++
		}
	}
	return n
}

// tooMuch is what the opener says of a pool at its limit.
type tooMuch struct{}

func (tooMuch) Error() string     { return "pool p would exceed its limit of cpu" }
func (tooMuch) RefusedBy() string { return "p" }

// A step that is refused is told of on its nodes and on the pool that refused, and not announced again at each try.
func TestAStepThatFailsIsToldOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t.Context())
		s.refused = tooMuch{}
		defer s.run(t)()
		time.Sleep(20 * time.Minute)
		heard(t, s, "DisruptionFailed Node a", "DisruptionFailed NodeClaim claim-a", "DisruptionFailed NodePool p")
		if tried, announced := s.times("DisruptionFailed Node a"), s.times("ConsolidationCandidate Node a"); tried < 3 || announced != 1 {
			t.Errorf("told %d times that it failed and announced %d times, want several and once", tried, announced)
		}
		if s.tainted("a") || s.claim("claim-a").Annotations[v1.DisruptionCommandAnnotationKey] != "" {
			t.Error("the node carries what the failed step put on it")
		}
	})
}

func (s *stage) times(event string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, told := range s.told {
		if told == event {
			n++
		}
	}
	return n
}

func TestAStepThatIsNotReadyInTimeIsToldOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t.Context())
		defer s.run(t)()
		time.Sleep(validationDelay + leastTimeout + 10*time.Second)
		heard(t, s, "DisruptionFailed Node a", "DisruptionFailed NodeClaim claim-a")
		if s.heard("DisruptionFailed NodePool p") {
			t.Error("the pool is blamed for it")
		}
	})
}
