package disruption

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/disrupt"
	"karpenter.sh/karpenter/internal/testing/memapi"
)

// The nodes of a step that waits for its second look are kept for it, and so is its part of the budgets.
func TestStepsThatWaitCountAgainstBudgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t.Context())
		var l *Loop
		s.spoil = func(made *Loop) { l = made }
		stop := s.run(t)
		time.Sleep(disrupt.SecondLook - time.Second)
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
		s.api.Put(ownedPod("on-b", "b", "250m"))
		s.api.Put(ownedPod("on-a", "a", "250m"))
		s.api.Put(ownedPod("on-a-too", "a", "250m"))
		var l *Loop
		s.spoil = func(made *Loop) { l = made }
		stop := s.run(t)
		time.Sleep(disrupt.SecondLook + 3*time.Second)
		stop()
		if c := s.claim("claim-a"); c.DeletionTimestamp == nil {
			t.Fatal("the node whose pods fit on the other one was not removed")
		}
		seat, ok := s.store.Snapshot().Planned(cluster.PodKey{Namespace: "default", Name: "on-a"})
		if !ok || seat.Target != "claim-b" {
			t.Errorf("a pod that is still to go has the seat %+v", seat)
		}
		s.api.Remove(ownedPod("on-a", "a", "250m"))
		time.Sleep(time.Second)
		if w := l.world(t.Context(), s.store.Snapshot(), time.Now()); !w.Landing["b"] {
			t.Errorf("landing = %v, want the node that the pods go to", w.Landing)
		}
		time.Sleep(20 * time.Second)
		s.api.Remove(ownedPod("on-a-too", "a", "250m"))
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
		time.Sleep(disrupt.SecondLook + leastTimeout + 10*time.Second)
		heard(t, s, "DisruptionFailed Node a", "DisruptionFailed NodeClaim claim-a")
		if s.heard("DisruptionFailed NodePool p") {
			t.Error("the pool is blamed for it")
		}
	})
}

// Steps of one pass may share a node that takes pods of all of them: none stands in the way of another at its second look, as long as there is
// room for all. Of what fell short meanwhile the first ones are refused, and no pod is promised room twice.
func TestStepsThatShareANodeGoTogether(t *testing.T) {
	for name, tc := range map[string]struct {
		late string // what a pod takes that comes to the shared node meanwhile
		want int
	}{
		"the room is still there":               {"", 4},
		"just enough of it":                     {"1", 4},
		"a pod took what one of them counts on": {"2", 3},
		"a pod took most of it":                 {"8", 1},
		"a pod took all of it":                  {"13", 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t.Context())
				s.pools["p"].Pool.Spec.Disruption.Budgets = []v1.Budget{{Nodes: "100%"}}
				memapi.Edit(s.api, "", "a", func(n *corev1.Node) { n.Annotations = map[string]string{v1.DoNotDisruptAnnotationKey: "true"} })
				going := []string{"b", "c", "d", "e"}
				for _, name := range going {
					s.node(name, "small", true)
					s.api.Put(ownedPod("on-"+name, name, "3")) // of 13 that are free on a
				}
				defer s.run(t)()
				time.Sleep(disrupt.SecondLook - time.Second)
				if tc.late != "" {
					s.api.Put(ownedPod("late", "a", tc.late))
				}
				time.Sleep(5 * time.Second)
				gone := 0
				for _, name := range going {
					seat, seated := s.store.Snapshot().Planned(cluster.PodKey{Namespace: "default", Name: "on-" + name})
					if s.claim("claim-"+name).DeletionTimestamp == nil {
						continue
					}
					if gone++; !seated || seat.Target != "claim-a" {
						t.Errorf("node %s goes, and its pod has the seat %+v", name, seat)
					}
				}
				if gone != tc.want {
					t.Errorf("%d of %d nodes go, want %d", gone, len(going), tc.want)
				}
			})
		})
	}
}

// While steps wait for their second look the room that they count on is kept, and their own is free for the one that is looked at.
func TestRoomIsKeptWhileStepsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t.Context())
		s.pools["p"].Pool.Spec.Disruption.Budgets = []v1.Budget{{Nodes: "100%"}}
		memapi.Edit(s.api, "", "a", func(n *corev1.Node) { n.Annotations = map[string]string{v1.DoNotDisruptAnnotationKey: "true"} })
		for _, name := range []string{"b", "c"} {
			s.node(name, "small", true)
			s.api.Put(ownedPod("on-"+name, name, "3"))
		}
		var l *Loop
		s.spoil = func(made *Loop) { l = made }
		stop := s.run(t)
		time.Sleep(disrupt.SecondLook - time.Second)
		stop()
		kept := func() (places []string) {
			for _, p := range l.world(t.Context(), s.store.Snapshot(), time.Now()).Coming {
				places = append(places, p.Pod.Name+" on "+p.Node)
			}
			return places
		}
		if got, want := kept(), []string{"on-b on a", "on-c on a"}; !slices.Equal(got, want) {
			t.Errorf("kept is %q, want %q", got, want)
		}
		delete(l.pending, sortedKeys(l.pending)[0]) // as confirm does
		if got, want := kept(), []string{"on-c on a"}; !slices.Equal(got, want) {
			t.Errorf("while the first is looked at kept is %q, want %q", got, want)
		}
	})
}

// ownedPod is a running pod that its ReplicaSet makes anew elsewhere.
func ownedPod(name, node, cpu string) *corev1.Pod {
	yes := true
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}}
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "rs", UID: "rs", Controller: &yes}}
	p.Spec.NodeName, p.Status.Phase = node, corev1.PodRunning
	p.Spec.Containers = []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}}}}
	return p
}
