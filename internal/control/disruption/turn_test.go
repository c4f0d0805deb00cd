package disruption

import (
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/core/disrupt"
	"karpenter.sh/karpenter/internal/testing/memapi"
)

// pair has two small nodes whose pods fit onto the large one, which stays, and a budget of one.
func pair(s *stage) {
	s.pools["p"].Pool.Spec.Disruption.Budgets = []v1.Budget{{Nodes: "1"}}
	memapi.Edit(s.api, "", "a", func(n *corev1.Node) { n.Annotations = map[string]string{v1.DoNotDisruptAnnotationKey: "true"} })
	for _, name := range []string{"b", "c"} {
		s.node(name, "small", true)
		s.api.Put(ownedPod("on-"+name, name, "250m"))
	}
}

// leave lets a node that was deleted go, and its pod come again on the large one.
func (s *stage) leave(name string) {
	s.api.Remove(ownedPod("on-"+name, name, "250m"))
	s.api.Put(ownedPod("again-"+name, "a", "250m"))
	claim := s.claim("claim-" + name)
	s.api.Remove(claim)
	s.api.Remove(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
}

// TestAStepIsReadyWhenItsTurnComes: while the budget is used up the next step is found and waits, so that it begins as soon as the node before it has
// gone, and never earlier.
func TestAStepIsReadyWhenItsTurnComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t.Context())
		pair(s)
		time.Sleep(10 * time.Millisecond)
		stop := s.run(t)
		time.Sleep(4 * disrupt.SecondLook)
		first := s.deleted()
		if len(first) == 1 {
			s.leave(first[0][len("claim-"):])
		}
		time.Sleep(disrupt.SecondLook / 3)
		stop()
		if got := s.deleted(); len(first) != 1 || len(got) != 1 || slices.Equal(got, first) {
			t.Errorf("deleted %q after %q had gone, want one node and then the other\n%s", got, first, s.log.String())
		}
	})
}

// TestAStepDoesNotWaitForItsTurnForEver: it is given up for a while where the node before it does not go.
func TestAStepDoesNotWaitForItsTurnForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t.Context())
		pair(s)
		time.Sleep(10 * time.Millisecond)
		var l *Loop
		s.spoil = func(made *Loop) { l = made }
		stop := s.run(t)
		time.Sleep(4*disrupt.SecondLook + disrupt.TurnWithin + 10*time.Second)
		stop()
		if len(l.pending) > 0 || len(s.deleted()) != 1 {
			t.Errorf("%d steps wait, %q are deleted; want none and one\n%s", len(l.pending), s.deleted(), s.log.String())
		}
		if !s.heard("ConsolidationRejected Node b") && !s.heard("ConsolidationRejected Node c") {
			t.Errorf("nobody was told: %v", s.told)
		}
	})
}

// TestStepsBeginInTheirOrder: of two that have had their second look the older one begins, and where budgets have no room for all nodes of the older one
// nothing of its pool overtakes it.
func TestStepsBeginInTheirOrder(t *testing.T) {
	for name, tc := range map[string]struct {
		budget string
		unlike func(*stage, *Loop) // what is other than two steps of a node each
		begun  []string
	}{
		"the older one first": {"1", func(*stage, *Loop) {}, []string{"c"}},
		"there is room for one of the older one's two nodes": {"2", func(s *stage, l *Loop) {
			memapi.Edit(s.api, "", "away", func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionFalse })
			time.Sleep(10 * time.Millisecond)
			of := stepsOf(l)
			of["c"].Step.Remove, of["c"].Step.Place = append(of["c"].Step.Remove, of["d"].Step.Remove...), append(of["c"].Step.Place, of["d"].Step.Place...)
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t.Context())
				pair(s)
				s.budget("100%")
				s.node("d", "small", true)
				s.api.Put(ownedPod("on-d", "d", "250m"))
				s.node("away", "small", true)
				memapi.Edit(s.api, "", "away", func(n *corev1.Node) { n.Annotations = map[string]string{v1.DoNotDisruptAnnotationKey: "true"} })
				var l *Loop
				s.spoil = func(made *Loop) { l = made }
				time.Sleep(10 * time.Millisecond)
				stop := s.run(t)
				time.Sleep(disrupt.SecondLook - time.Second)
				stop()
				of := stepsOf(l)
				if len(of) != 3 {
					t.Fatalf("%d steps wait, want one for each of three nodes", len(of))
				}
				tc.unlike(s, l)
				s.budget(tc.budget)
				of["b"].Due, of["c"].Due = time.Now().Add(-time.Second), time.Now().Add(-2*time.Second)
				for id, p := range l.pending {
					if p == of["d"] {
						delete(l.pending, id)
					}
				}
				l.confirm(t.Context(), l.world(t.Context(), s.store.Snapshot(), time.Now()))
				var begun []string
				for _, name := range []string{"b", "c"} {
					if !slices.Contains(slices.Collect(maps.Values(l.pending)), of[name]) {
						begun = append(begun, name)
					}
				}
				if !slices.Equal(begun, tc.begun) {
					t.Errorf("begun are %q, want %q\n%s", begun, tc.begun, s.log.String())
				}
			})
		})
	}
}

// stepsOf finds the steps that wait, by the first node of each.
func stepsOf(l *Loop) map[string]*disrupt.Waiting {
	out := map[string]*disrupt.Waiting{}
	for _, p := range l.pending {
		out[p.Step.Remove[0].Name()] = p
	}
	return out
}
