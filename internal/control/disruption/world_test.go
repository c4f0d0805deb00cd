package disruption

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
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
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "on-b", UID: "on-b"}}
		p.Spec.NodeName, p.Status.Phase = "b", corev1.PodRunning
		p.Spec.Containers = []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m")}}}}
		s.api.Put(p)
		var l *Loop
		s.spoil = func(made *Loop) { l = made }
		stop := s.run(t)
		time.Sleep(validationDelay + 3*time.Second)
		stop()
		if c := s.claim("claim-a"); c.DeletionTimestamp == nil {
			t.Fatal("the node whose pods fit on the other one was not removed")
		}
		if w := l.world(t.Context(), s.store.Snapshot(), time.Now()); !w.Landing["b"] {
			t.Errorf("landing = %v, want the node that the pods go to", w.Landing)
		}
	})
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
