package disruption

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/disrupt"
	"karpenter.sh/karpenter/internal/explain/steprecord"
	"karpenter.sh/karpenter/internal/testing/memapi"
)

// pausePool does what kubectl annotate does; "" resumes.
func (s *stage) pausePool(value string) {
	memapi.Edit(s.api, "", "p", func(p *v1.NodePool) {
		p.Annotations = map[string]string{v1.PausedAnnotationKey: value}
		if value == "" {
			p.Annotations = nil
		}
	})
}

// pauseCluster is pausePool for all pools.
func (s *stage) pauseCluster(value string) {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1.PausedNamespace}}
	if value != "" {
		ns.Annotations = map[string]string{v1.PausedAnnotationKey: value}
	}
	s.api.Put(ns)
}

func TestNothingBeginsWhilePaused(t *testing.T) {
	for name, pause := range map[string]func(*stage, string){"the pool": (*stage).pausePool, "the cluster": (*stage).pauseCluster} {
		for when, at := range map[string]time.Duration{
			"from the start":            0,
			"while a step waits":        disrupt.SecondLook / 2,
			"in the moment it is begun": disrupt.SecondLook,
		} {
			t.Run(name+" "+when, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newStage(t.Context())
					defer s.run(t)()
					time.Sleep(at)
					pause(s, "true")
					time.Sleep(time.Hour)
					if got := s.leftovers(); len(got) > 0 || len(s.deleted()) > 0 {
						t.Fatalf("while paused: %v, deleted %v", got, s.deleted())
					}
					pause(s, "")
					time.Sleep(time.Minute)
					s.initialise(replacementName)
					time.Sleep(5 * time.Second)
					if got := s.deleted(); !slices.Contains(got, "claim-a") {
						t.Errorf("deleted %v after it was resumed, want claim-a", got)
					}
				})
			})
		}
	}
}

// A step that has begun, and whose replacement gets ready in the moment of the pause, is taken back within a second or two.
func TestAPauseTakesBackWhatDeletedNothing(t *testing.T) {
	for name, ready := range map[string]bool{"its replacement boots": false, "its replacement is ready": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t.Context())
				defer s.run(t)()
				time.Sleep(disrupt.SecondLook + 5*time.Second)
				if !s.tainted("a") {
					t.Fatal("the command did not start")
				}
				s.pausePool(time.Now().Add(2 * time.Hour).Format(time.RFC3339))
				if ready {
					s.initialise(replacementName)
				}
				time.Sleep(2 * time.Second)
				if got := s.deleted(); slices.Contains(got, "claim-a") {
					t.Fatal("the node was deleted though its pool is paused")
				}
				if got := s.leftovers(); len(got) > 0 {
					t.Errorf("left behind: %v", got)
				}
				if s.store.Snapshot().Node("a").MarkedForRemoval {
					t.Error("the node is still marked for removal")
				}
				if r := s.claim(replacementName); r != nil && r.DeletionTimestamp == nil {
					t.Error("the replacement that nobody needs stays")
				}
				if s.heard("DisruptionFailed Node a") {
					t.Error("it is told as a failure")
				}
				time.Sleep(2*time.Hour + time.Minute)
				if !s.tainted("a") {
					t.Error("nothing is done after the pause is over")
				}
			})
		})
	}
}

// Of two nodes one is on its way out when the pause comes. It goes on; the other one stays, and so does the replacement that waits for the pods.
func TestAPauseKeepsWhatHasNotBeenDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t.Context())
		s.pools["p"].Pool.Spec.Disruption.ConsolidateAfter = v1.MustParseNillableDuration(v1.Never)
		s.pools["p"].Pool.Spec.Disruption.Budgets = []v1.Budget{{Nodes: "100%"}}
		s.node("b", "small", true)
		r := begun("claim-a", "claim-b")
		r.Replacements = []string{replacementName}
		s.write("claim-a", r.As(steprecord.Candidate))
		s.write("claim-b", r.As(steprecord.Candidate))
		s.api.Put(&v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: replacementName, UID: "new", Annotations: map[string]string{v1.DisruptionCommandAnnotationKey: r.As(steprecord.Replacement)}}})
		defer s.run(t)()
		time.Sleep(5 * time.Second)
		if got := s.deleted(); len(got) > 0 || !s.store.Snapshot().Node("b").MarkedForRemoval {
			t.Fatalf("deleted %v, or the command was not taken over", got)
		}
		if err := s.api.Client("loop").Delete(t.Context(), s.claim("claim-a")); err != nil {
			t.Fatal(err)
		}
		s.pausePool("true")
		s.initialise(replacementName)
		time.Sleep(3 * time.Second)
		if got := s.deleted(); !slices.Equal(got, []string{"claim-a"}) {
			t.Errorf("deleted %v, want the one that was", got)
		}
		if s.claim(replacementName) == nil {
			t.Error("the replacement is gone, which the pods of the deleted node need")
		}
		if got := s.leftovers(); len(got) > 0 {
			t.Errorf("left behind: %v", got)
		}
		if s.store.Snapshot().Node("b").MarkedForRemoval {
			t.Error("the node that stays is no room for pods")
		}
	})
}

// A step takes nodes of two pools, of which one is paused: neither goes, whichever is looked at last.
func TestAPauseOfOnePoolOfAStep(t *testing.T) {
	for name, order := range map[string][]string{"of the first": {"claim-a", "claim-b"}, "of the last": {"claim-b", "claim-a"}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t.Context())
				s.node("b", "small", true)
				for _, o := range []client.Object{&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "b"}}, &v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "claim-b"}}} {
					if err := s.api.Client("user").Patch(t.Context(), o, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"karpenter.sh/nodepool":"q"}}}`))); err != nil {
						t.Fatal(err)
					}
				}
				var l *Loop
				s.spoil = func(made *Loop) { l = made }
				stop := s.run(t)
				time.Sleep(time.Second)
				stop()
				s.pausePool("true")
				r := begun(order...)
				s.write("claim-a", r.As(steprecord.Candidate))
				s.write("claim-b", r.As(steprecord.Candidate))
				time.Sleep(10 * time.Millisecond)
				if !l.halt(t.Context(), newCommand(r)) || len(s.leftovers()) > 0 {
					t.Errorf("the command goes on, or is not taken back: %v", s.leftovers())
				}
			})
		})
	}
}

// A step that is taken back leaves a replacement that runs something already, as any other node.
func TestAPauseKeepsAReplacementThatIsInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t.Context())
		defer s.run(t)()
		time.Sleep(disrupt.SecondLook + 5*time.Second)
		if !s.tainted("a") {
			t.Fatal("the command did not start")
		}
		memapi.Edit(s.api, "", replacementName, func(c *v1.NodeClaim) { c.Status.ProviderID, c.Status.NodeName = "test:///new", "new" })
		s.api.Put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "new", UID: "new", Labels: map[string]string{v1.NodePoolLabelKey: "p"}}, Spec: corev1.NodeSpec{ProviderID: "test:///new"}})
		s.bind(func(p *corev1.Pod) { p.Name, p.UID, p.Spec.NodeName = "early", "early", "new" })
		time.Sleep(10 * time.Millisecond) // the store has heard of it
		s.pausePool("true")
		time.Sleep(5 * time.Second)
		r := s.claim(replacementName)
		if r == nil || r.DeletionTimestamp != nil || r.Annotations[v1.DisruptionCommandAnnotationKey] != "" {
			t.Errorf("the replacement is %+v, want it there and without the record", r)
		}
	})
}

// Working a step out may take seconds.
func TestAStepOfANodeThatWasPausedMeanwhileIsNotBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t.Context())
		var l *Loop
		s.spoil = func(made *Loop) { l = made }
		stop := s.run(t)
		time.Sleep(disrupt.SecondLook - time.Second)
		stop()
		step := l.pending[slices.Collect(maps.Keys(l.pending))[0]].Step
		s.pausePool("true")
		time.Sleep(time.Second)
		l.start(t.Context(), step, nil)
		if got := s.leftovers(); len(got) > 0 || len(l.commands) > 0 {
			t.Errorf("it was begun: %v", got)
		}
	})
}

// The switch is looked at when everything else has been.
func TestTheLastLookBeforeANodeGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t.Context())
		var l *Loop
		s.spoil = func(made *Loop) { l = made }
		stop := s.run(t)
		time.Sleep(time.Second)
		stop()
		before := s.store.Snapshot().Node("a")
		s.pauseCluster("2h") // which nobody understands
		time.Sleep(time.Second)
		if err := l.letGo(t.Context(), before, &command{}); !errors.Is(err, errHalted) || len(s.deleted()) > 0 {
			t.Errorf("paused: error = %v, deleted %v", err, s.deleted())
		}
		s.pauseCluster("")
		s.manual("")
		time.Sleep(time.Second)
		if err := l.letGo(t.Context(), before, &command{}); !errors.Is(err, errHalted) || len(s.deleted()) > 0 {
			t.Errorf("wants to be asked: error = %v, deleted %v", err, s.deleted())
		}
	})
}

// What a process that ended left behind is taken back by one that starts while the pool is paused.
func TestARestartWhilePausedTakesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t.Context())
		stop := s.run(t)
		time.Sleep(disrupt.SecondLook + 5*time.Second)
		stop()
		s.pauseCluster("true")
		s.initialise(replacementName)
		s.store = cluster.NewStore()
		go s.api.Feed(t.Context(), s.store, feedLag)
		defer s.run(t)()
		time.Sleep(time.Minute)
		if got := s.deleted(); len(got) > 0 {
			t.Errorf("deleted %v", got)
		}
		if got := s.leftovers(); len(got) > 0 {
			t.Errorf("left behind: %v", got)
		}
		if c := condition.Get(s.claim("claim-a"), v1.ConditionTypeDisruptionReason); c != nil {
			t.Errorf("condition %v", c)
		}
	})
}

// What this process has deleted goes, also while its picture does not show it yet: its record and its taint stay.
func TestAPauseTakesNothingBackThatWasDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t.Context())
		s.pools["p"].Pool.Spec.Disruption.ConsolidateAfter = v1.MustParseNillableDuration(v1.Never)
		s.node("b", "small", true)
		var l *Loop
		s.spoil = func(made *Loop) { l = made }
		stop := s.run(t)
		time.Sleep(time.Second)
		stop()
		s.pausePool("true")
		r := begun("claim-a", "claim-b")
		s.write("claim-a", r.As(steprecord.Candidate))
		s.write("claim-b", r.As(steprecord.Candidate))
		time.Sleep(10 * time.Millisecond)
		c := newCommand(r)
		c.removed["claim-a"] = true
		if !l.halt(t.Context(), c) {
			t.Fatal("the command goes on")
		}
		if got := s.leftovers(); !slices.Equal(got, []string{"record on claim-a", "reason on claim-a", "taint on a"}) {
			t.Errorf("what is left: %v", got)
		}
	})
}
