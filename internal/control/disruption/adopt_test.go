package disruption

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/core/disrupt"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/explain/steprecord"
	"karpenter.sh/karpenter/internal/testing/memapi"
)

// begun is the record of a command whose candidates are these claims, as a process wrote it that ended before it removed them.
func begun(claims ...string) steprecord.Record {
	r := steprecord.Record{ID: "underutilized-1", Reason: v1.DisruptionReasonUnderutilized, Method: "multi", Created: time.Now().UTC(), Deadline: time.Now().UTC().Add(time.Hour)}
	for _, name := range claims {
		r.Candidates = append(r.Candidates, steprecord.Member{Name: name, UID: types.UID(name)}) // newStage gives claims their name as UID
	}
	return r
}

// write puts a record on a claim, with what goes with it.
func (s *stage) write(claim, text string) {
	memapi.Edit(s.api, "", claim, func(c *v1.NodeClaim) {
		c.Annotations = map[string]string{v1.DisruptionCommandAnnotationKey: text}
		condition.Set(c, reasonCondition(v1.DisruptionReasonUnderutilized), time.Now())
	})
	memapi.Edit(s.api, "", strings.TrimPrefix(claim, "claim-"), func(n *corev1.Node) { addTaint(n) })
}

// deleted lists the claims that are being deleted.
func (s *stage) deleted() []string {
	out := []string{}
	for _, c := range memapi.All[*v1.NodeClaim](s.api) {
		if c.DeletionTimestamp != nil {
			out = append(out, c.Name)
		}
	}
	slices.Sort(out)
	return out
}

// leftovers lists what is left of records on claims that stay.
func (s *stage) leftovers() (out []string) {
	for _, c := range memapi.All[*v1.NodeClaim](s.api) {
		if c.DeletionTimestamp != nil {
			continue
		}
		if c.Annotations[v1.DisruptionCommandAnnotationKey] != "" {
			out = append(out, "record on "+c.Name)
		}
		if condition.Get(c, v1.ConditionTypeDisruptionReason) != nil {
			out = append(out, "reason on "+c.Name)
		}
		if s.tainted(c.Status.NodeName) {
			out = append(out, "taint on "+c.Status.NodeName)
		}
	}
	return out
}

// TestNobodysWordIsTakenForAStep has three nodes that nothing is to be done about, one with pods, and records of a command that this
// process knows nothing of.
func TestNobodysWordIsTakenForAStep(t *testing.T) {
	none := []string{}
	for name, tc := range map[string]struct {
		records func(*stage)
		want    []string // claims that are deleted
	}{
		"every candidate carries the record: the command goes on": {func(s *stage) {
			s.write("claim-a", begun("claim-a", "claim-b").As(steprecord.Candidate))
			s.write("claim-b", begun("claim-a", "claim-b").As(steprecord.Candidate))
		}, []string{"claim-a", "claim-b"}},
		"one that is gone is done": {func(s *stage) {
			s.write("claim-a", begun("claim-a", "claim-gone").As(steprecord.Candidate))
		}, []string{"claim-a"}},
		"one that is being deleted is done, and nobody asks whether it may go": {func(s *stage) {
			s.write("claim-a", begun("claim-a", "claim-b").As(steprecord.Candidate))
			s.write("claim-b", begun("claim-a", "claim-b").As(steprecord.Candidate))
			_ = s.api.Client("somebody").Delete(context.Background(), s.claim("claim-b")) // a claim that was not deleted fails the case
		}, []string{"claim-a", "claim-b"}},
		"somebody wrote it on a claim of his own, as a replacement": {func(s *stage) {
			s.write("claim-b", begun("claim-a").As(steprecord.Replacement))
		}, none},
		"somebody wrote it on a claim of his own, as a candidate": {func(s *stage) {
			s.write("claim-b", begun("claim-a", "claim-b").As(steprecord.Candidate))
		}, none},
		"a candidate carries it in another role": {func(s *stage) {
			s.write("claim-a", begun("claim-a", "claim-b").As(steprecord.Candidate))
			s.write("claim-b", begun("claim-a", "claim-b").As(steprecord.Replacement))
		}, none},
		"a candidate carries another record": {func(s *stage) {
			other := begun("claim-a", "claim-b")
			other.ID = "underutilized-2"
			s.write("claim-a", begun("claim-a", "claim-b").As(steprecord.Candidate))
			s.write("claim-b", other.As(steprecord.Candidate))
		}, none},
		"a candidate's record of the command asks for a replacement, which the other one leaves out": {func(s *stage) {
			honest := begun("claim-a")
			honest.Replacements = []string{"p-never"}
			s.write("claim-a", honest.As(steprecord.Candidate))
			s.write("claim-b", begun("claim-a").As(steprecord.Replacement))
		}, none},
		"another claim has the name now": {func(s *stage) {
			old := begun("claim-a", "claim-b")
			old.Candidates[0].UID = "before"
			s.write("claim-a", old.As(steprecord.Candidate))
			s.write("claim-b", old.As(steprecord.Candidate))
		}, []string{"claim-b"}},
		"the budget does not let them go": {func(s *stage) {
			s.pools["p"].Pool.Spec.Disruption.Budgets = []v1.Budget{{Nodes: "1"}}
			s.write("claim-a", begun("claim-a", "claim-b").As(steprecord.Candidate))
			s.write("claim-b", begun("claim-a", "claim-b").As(steprecord.Candidate))
		}, none},
		"the budget lets the older one of two commands go": {func(s *stage) {
			s.pools["p"].Pool.Spec.Disruption.Budgets = []v1.Budget{{Nodes: "1"}}
			younger := begun("claim-a")
			younger.ID, younger.Created = "a-younger", younger.Created.Add(time.Second)
			s.write("claim-a", younger.As(steprecord.Candidate))
			s.write("claim-b", begun("claim-b").As(steprecord.Candidate))
		}, []string{"claim-b"}},
		"the reason is none that budgets know": {func(s *stage) {
			r := begun("claim-a")
			r.Reason = "Whim"
			s.write("claim-a", r.As(steprecord.Candidate))
		}, none},
		"a PodDisruptionBudget holds a pod": {func(s *stage) {
			b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "all"}}
			b.Spec.Selector = &metav1.LabelSelector{}
			s.api.Put(b)
			s.write("claim-a", begun("claim-a").As(steprecord.Candidate))
		}, none},
		"a pod is not to be disrupted": {func(s *stage) {
			memapi.Edit(s.api, "default", "web-0", func(p *corev1.Pod) { p.Annotations = map[string]string{v1.DoNotDisruptAnnotationKey: "true"} })
			s.write("claim-a", begun("claim-a").As(steprecord.Candidate))
		}, none},
		"the node is not to be disrupted": {func(s *stage) {
			memapi.Edit(s.api, "", "a", func(n *corev1.Node) { n.Annotations = map[string]string{v1.DoNotDisruptAnnotationKey: "true"} })
			s.write("claim-a", begun("claim-a").As(steprecord.Candidate))
		}, none},
		"an empty node has pods by now": {func(s *stage) {
			r := begun("claim-a")
			r.Reason = v1.DisruptionReasonEmpty
			s.write("claim-a", r.As(steprecord.Candidate))
		}, none},
		"the replacement does not exist, and others are named in its place": {func(s *stage) {
			r := begun("claim-a")
			r.Replacements = []string{"p-never", "claim-b", "claim-c"}
			s.write("claim-a", r.As(steprecord.Candidate))
			s.write("claim-b", begun("claim-b", "claim-c").As(steprecord.Replacement))
		}, none},
		"the replacement is somebody else's": {func(s *stage) {
			r := begun("claim-a")
			r.Replacements = []string{"claim-b"}
			s.write("claim-a", r.As(steprecord.Candidate))
		}, none},
		"it says nothing": {func(s *stage) { s.write("claim-a", "[]") }, none},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t.Context())
				s.pools["p"].Pool.Spec.Disruption.ConsolidateAfter = v1.MustParseNillableDuration(v1.Never)
				s.pools["p"].Pool.Spec.Disruption.Budgets = []v1.Budget{{Nodes: "100%"}}
				s.node("b", "small", true)
				s.node("c", "small", true)
				tc.records(s)
				defer s.run(t)()
				time.Sleep(5 * time.Second)
				if got := s.deleted(); !slices.Equal(got, tc.want) {
					t.Errorf("deleted %q, want %q", got, tc.want)
				}
				if left := s.leftovers(); len(left) > 0 {
					t.Errorf("left behind: %q", left)
				}
			})
		})
	}
}

// A restart may come before the cloud has said what there is: nothing is known of the pool then, and nothing is decided.
func TestARecordWaitsForItsPool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t.Context())
		s.pools["p"].Pool.Spec.Disruption.ConsolidateAfter = v1.MustParseNillableDuration(v1.Never)
		s.write("claim-a", begun("claim-a").As(steprecord.Candidate))
		time.Sleep(10 * time.Millisecond)
		known := s.pools
		s.pools = map[string]engine.Pool{}
		stop := s.run(t)
		time.Sleep(5 * time.Second)
		stop()
		if s.claim("claim-a").Annotations[v1.DisruptionCommandAnnotationKey] == "" || !s.tainted("a") || len(s.deleted()) > 0 {
			t.Fatalf("deleted %q, left %q; want the record to stand", s.deleted(), s.leftovers())
		}
		s.pools = known
		defer s.run(t)()
		time.Sleep(5 * time.Second)
		if got := s.deleted(); !slices.Equal(got, []string{"claim-a"}) {
			t.Errorf("deleted %q once the pool was known, want claim-a", got)
		}
	})
}

// Once the time of a command is over nobody waits for its pool any more: it is taken back.
func TestARecordWaitsForItsPoolUntilItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t.Context())
		s.pools["p"].Pool.Spec.Disruption.ConsolidateAfter = v1.MustParseNillableDuration(v1.Never)
		r := begun("claim-a")
		r.Deadline = time.Now().UTC().Add(time.Minute)
		s.write("claim-a", r.As(steprecord.Candidate))
		time.Sleep(10 * time.Millisecond)
		s.pools = map[string]engine.Pool{}
		defer s.run(t)()
		time.Sleep(55 * time.Second)
		if len(s.leftovers()) != 3 {
			t.Fatalf("before the deadline there is %q, want the record, its reason and its taint", s.leftovers())
		}
		time.Sleep(10 * time.Second)
		if len(s.leftovers()) > 0 || len(s.deleted()) > 0 {
			t.Errorf("after it there is %q, and %q is deleted", s.leftovers(), s.deleted())
		}
	})
}

// A step that is taken back deletes its replacement, which may take long to go and carries the record until then.
func TestACommandThatWasGivenUpIsNotResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t.Context())
		stop := s.run(t)
		time.Sleep(disrupt.SecondLook + 5*time.Second)
		memapi.Edit(s.api, "", replacementName, func(c *v1.NodeClaim) { c.Finalizers = []string{v1.TerminationFinalizer} })
		time.Sleep(leastTimeout + 5*time.Second)
		if c := s.claim(replacementName); c == nil || c.DeletionTimestamp == nil {
			t.Fatal("the replacement that was not ready in time is not being deleted")
		}
		time.Sleep(30 * time.Second)
		stop()
		if text := s.log.String(); strings.Contains(text, "resuming a disruption command") || strings.Contains(text, "is gone") {
			t.Errorf("the command was resumed:\n%s", text)
		}
		if n := s.store.Snapshot().Node("a"); n.MarkedForRemoval || len(s.leftovers()) > 0 {
			t.Errorf("marked %v, left behind %q", n.MarkedForRemoval, s.leftovers())
		}
	})
}

// What somebody takes the record off while its replacement boots stays.
func TestACandidateWithoutItsRecordStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t.Context())
		defer s.run(t)()
		time.Sleep(disrupt.SecondLook + 5*time.Second)
		memapi.Edit(s.api, "", "claim-a", func(c *v1.NodeClaim) { dropRecord(c) })
		s.initialise(replacementName)
		time.Sleep(5 * time.Second)
		if got := s.deleted(); slices.Contains(got, "claim-a") || len(s.leftovers()) > 0 {
			t.Errorf("deleted %q, left behind %q", got, s.leftovers())
		}
	})
}

// Between the look and the delete a claim may have been replaced by another of its name, or been changed by somebody.
func TestOnlyWhatWasLookedAtIsDeleted(t *testing.T) {
	for name, change := range map[string]func(*v1.NodeClaim){
		"not another claim of the same name": func(c *v1.NodeClaim) { c.UID = "before" },
		"not one that was changed since":     func(c *v1.NodeClaim) { c.ResourceVersion = "1" },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t.Context())
				l := New(s.store, s.api.Client("disruption"), s, s, Telling{}, Settings{})
				seen := s.claim("claim-a").DeepCopy()
				change(seen)
				if err := l.delete(t.Context(), seen); err == nil || len(s.deleted()) > 0 {
					t.Errorf("err %v, deleted %q", err, s.deleted())
				}
				if err := l.delete(t.Context(), s.claim("claim-a")); err != nil || !slices.Equal(s.deleted(), []string{"claim-a"}) {
					t.Errorf("err %v, deleted %q; want claim-a", err, s.deleted())
				}
			})
		})
	}
}

// Two processes that act at once, as if the lease had failed, do not take part in each other's commands.
func TestAClaimTakesPartInOneCommandOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t.Context())
		time.Sleep(10 * time.Millisecond)
		l := New(s.store, s.api.Client("disruption"), s, s, Telling{}, Settings{})
		theirs := begun("claim-a").As(steprecord.Candidate)
		s.write("claim-a", theirs)
		mine := newCommand(begun("claim-a"))
		mine.ID = "underutilized-2"
		if err := l.mark(t.Context(), mine); err == nil {
			t.Error("the claim was marked for a second command")
		}
		time.Sleep(10 * time.Millisecond)
		if err := l.release(t.Context(), l.store.Snapshot(), mine.Candidates[0], mine.ID); err != nil {
			t.Fatal(err)
		}
		if got := s.claim("claim-a").Annotations[v1.DisruptionCommandAnnotationKey]; got != theirs || !s.tainted("a") {
			t.Errorf("record %s, tainted %v; want the other command's", got, s.tainted("a"))
		}
	})
}
