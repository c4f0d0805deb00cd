package disruption

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/approval"
	"karpenter.sh/karpenter/internal/core/disrupt"
	"karpenter.sh/karpenter/internal/explain/steprecord"
	"karpenter.sh/karpenter/internal/testing/memapi"
)

// manual makes the pool want to be asked, with rules or none.
func (s *stage) manual(rules string) {
	memapi.Edit(s.api, "", "p", func(p *v1.NodePool) {
		p.Annotations = map[string]string{v1.ApprovalAnnotationKey: "manual", v1.AutoApproveAnnotationKey: rules}
	})
}

// plans lists the plans in a phase, by name.
func (s *stage) plans(phase v1alpha1.DisruptionPhase) (out []*v1alpha1.DisruptionPlan) {
	for _, p := range memapi.All[*v1alpha1.DisruptionPlan](s.api) {
		if p.Status.Phase == phase {
			out = append(out, p)
		}
	}
	return out
}

// decide says yes or no to a plan.
func (s *stage) decide(p *v1alpha1.DisruptionPlan, d v1alpha1.DisruptionDecision) {
	memapi.Edit(s.api, "", p.Name, func(p *v1alpha1.DisruptionPlan) { p.Spec.Decision = d })
}

// untouched says what was done to nodes, "" if nothing was.
func (s *stage) done() string {
	out := s.leftovers()
	for _, name := range s.deleted() {
		out = append(out, name+" deleted")
	}
	if s.claim(replacementName) != nil {
		out = append(out, "a replacement")
	}
	return strings.Join(out, ", ")
}

// waited runs a loop until a step waits for approval. It returns the plan and what stops the loop.
func (s *stage) waited(t *testing.T) (*v1alpha1.DisruptionPlan, func()) {
	t.Helper()
	s.manual("")
	stop := s.run(t)
	time.Sleep(disrupt.SecondLook + 5*time.Second)
	open := s.plans(v1alpha1.DisruptionPending)
	if len(open) != 1 || s.done() != "" {
		t.Fatalf("%d plans wait, and done was: %s; want one and nothing", len(open), s.done())
	}
	return open[0], stop
}

func TestAPlanSaysWhatWouldBeDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t.Context())
		plan, stop := s.waited(t)
		defer stop()
		step := plan.Status.Step
		if step.Reason != v1.DisruptionReasonUnderutilized || len(step.Remove) != 1 || step.Remove[0].Node != "a" || step.Remove[0].UID != "claim-a" ||
			len(step.Open) != 1 || step.Open[0].InstanceType != "small" || step.Pods != 3 || step.Saves != "0.8000" || len(step.Evictions) != 3 {
			t.Errorf("step = %+v", step)
		}
		if got := time.Until(plan.Status.ExpiresAt.Time); got > approval.Window || got < approval.Window-time.Minute {
			t.Errorf("it expires in %v", got)
		}
		heard(t, s, "DisruptionAwaitsApproval NodePool p")
		time.Sleep(approval.Window - time.Minute)
		if got := s.plans(v1alpha1.DisruptionPending); len(got) != 1 || got[0].Name != plan.Name || s.done() != "" {
			t.Errorf("hours later %d plans wait, and done was: %s", len(got), s.done())
		}
		s.decide(plan, v1alpha1.DisruptionApproved)
		time.Sleep(5 * time.Second)
		if !s.tainted("a") || len(s.plans(v1alpha1.DisruptionCarriedOut)) != 1 {
			t.Fatal("what was approved is not done")
		}
		s.initialise(replacementName)
		time.Sleep(5 * time.Second)
		if got := s.deleted(); !slices.Equal(got, []string{"claim-a"}) {
			t.Errorf("deleted %v", got)
		}
	})
}

// Whatever happens to a plan, nothing is done but what somebody has approved.
func TestNothingIsDoneWithoutApproval(t *testing.T) {
	approve := func(s *stage, p *v1alpha1.DisruptionPlan) { s.decide(p, v1alpha1.DisruptionApproved) }
	for name, tc := range map[string]struct {
		spoil func(*stage, *v1alpha1.DisruptionPlan)
		want  v1alpha1.DisruptionPhase // of the plan, "" if it is gone
		says  string
	}{
		"somebody says no": {func(s *stage, p *v1alpha1.DisruptionPlan) { s.decide(p, v1alpha1.DisruptionDenied) }, v1alpha1.DisruptionRefused, ""},
		"yes, and then no": {func(s *stage, p *v1alpha1.DisruptionPlan) { approve(s, p); s.decide(p, v1alpha1.DisruptionDenied) }, v1alpha1.DisruptionRefused, ""},
		"nobody says anything": {func(s *stage, p *v1alpha1.DisruptionPlan) {
			time.Sleep(time.Until(p.Status.ExpiresAt.Time))
		}, v1alpha1.DisruptionExpired, "in time"},
		"yes, too late": {func(s *stage, p *v1alpha1.DisruptionPlan) {
			time.Sleep(time.Until(p.Status.ExpiresAt.Time) + 2*time.Second)
			approve(s, p)
		}, v1alpha1.DisruptionExpired, "in time"},
		"yes to contents that somebody changed": {func(s *stage, p *v1alpha1.DisruptionPlan) {
			memapi.Edit(s.api, "", p.Name, func(p *v1alpha1.DisruptionPlan) {
				p.Status.Step.Pods = 0
				p.Spec.Decision = v1alpha1.DisruptionApproved
			})
		}, v1alpha1.DisruptionSuperseded, "contents"},
		"yes to a later expiry that somebody wrote": {func(s *stage, p *v1alpha1.DisruptionPlan) {
			memapi.Edit(s.api, "", p.Name, func(p *v1alpha1.DisruptionPlan) {
				p.Status.ExpiresAt = metav1.NewTime(p.Status.ExpiresAt.Add(24 * time.Hour))
				p.Spec.Decision = v1alpha1.DisruptionApproved
			})
		}, v1alpha1.DisruptionSuperseded, "contents"},
		"yes, but a pod has come": {func(s *stage, p *v1alpha1.DisruptionPlan) {
			s.bind()
			approve(s, p)
		}, v1alpha1.DisruptionSuperseded, "pods would move"},
		"yes, but the node is another one of its name": {func(s *stage, p *v1alpha1.DisruptionPlan) {
			c := s.claim("claim-a").DeepCopy()
			memapi.Edit(s.api, "", "claim-a", func(c *v1.NodeClaim) { c.Finalizers = nil })
			s.api.Remove(s.claim("claim-a"))
			c.UID, c.ResourceVersion = types.UID("other"), ""
			s.api.Put(c)
			approve(s, p)
		}, v1alpha1.DisruptionSuperseded, "gone"},
		"yes, but the replacement is dearer": {func(s *stage, p *v1alpha1.DisruptionPlan) {
			s.pools["p"].Catalog.Types[1].Offerings[0].Price *= 2
			approve(s, p)
		}, v1alpha1.DisruptionSuperseded, "does not hold"},
		"nobody says anything while the replacement gets dearer": {func(s *stage, _ *v1alpha1.DisruptionPlan) {
			s.pools["p"].Catalog.Types[1].Offerings[0].Price *= 2
		}, v1alpha1.DisruptionPending, ""},
		"yes, but nobody may go now": {func(s *stage, p *v1alpha1.DisruptionPlan) {
			s.pools["p"].Pool.Spec.Disruption.Budgets = []v1.Budget{{Nodes: "0"}}
			approve(s, p)
		}, v1alpha1.DisruptionPending, ""},
		"yes, but the cluster is paused": {func(s *stage, p *v1alpha1.DisruptionPlan) {
			s.pauseCluster("true")
			time.Sleep(time.Second)
			approve(s, p)
		}, v1alpha1.DisruptionPending, ""},
		"yes to a copy in another name": {func(s *stage, p *v1alpha1.DisruptionPlan) {
			other := p.DeepCopy()
			other.Name, other.UID, other.ResourceVersion, other.Spec.Decision = "underutilized-copy", "copy", "", v1alpha1.DisruptionApproved
			s.api.Put(other)
			time.Sleep(5 * time.Second)
			if got := s.plans(v1alpha1.DisruptionSuperseded); len(got) != 1 || got[0].Name != other.Name {
				panic("the copy is taken for a plan")
			}
		}, v1alpha1.DisruptionPending, ""},
		"yes to one that is deleted and made again": {func(s *stage, p *v1alpha1.DisruptionPlan) {
			approve(s, p)
			s.api.Remove(p)
			s.api.Put(&v1alpha1.DisruptionPlan{ObjectMeta: metav1.ObjectMeta{Name: p.Name, UID: "again"}, Spec: v1alpha1.DisruptionPlanSpec{Decision: v1alpha1.DisruptionApproved}})
		}, "", ""},
		"yes to one that is deleted and kept by a finalizer": {func(s *stage, p *v1alpha1.DisruptionPlan) {
			memapi.Edit(s.api, "", p.Name, func(p *v1alpha1.DisruptionPlan) {
				p.DeletionTimestamp, p.Finalizers, p.Spec.Decision = new(metav1.Now()), []string{"example.com/keep"}, v1alpha1.DisruptionApproved
			})
		}, v1alpha1.DisruptionPending, ""},
		"somebody writes that a rule approves it": {func(s *stage, p *v1alpha1.DisruptionPlan) {
			memapi.Edit(s.api, "", p.Name, func(p *v1alpha1.DisruptionPlan) { p.Status.Rule = "p: reason=Underutilized" })
		}, v1alpha1.DisruptionPending, ""},
		"a rule comes that cannot be read": {func(s *stage, _ *v1alpha1.DisruptionPlan) { s.manual("nodes<=1; podz<=1") }, v1alpha1.DisruptionPending, ""},
		"the plan is deleted":              {func(s *stage, p *v1alpha1.DisruptionPlan) { s.api.Remove(p) }, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t.Context())
				plan, stop := s.waited(t)
				defer stop()
				tc.spoil(s, plan)
				time.Sleep(5 * time.Second)
				var now v1alpha1.DisruptionPlan
				for _, p := range memapi.All[*v1alpha1.DisruptionPlan](s.api) {
					if p.Name == plan.Name {
						now = *p
					}
				}
				if now.Status.Phase != tc.want || !strings.Contains(now.Status.Message, tc.says) {
					t.Errorf("the plan is %q (%s), want %q", now.Status.Phase, now.Status.Message, tc.want)
				}
				s.nothingIsDone(t, 10*time.Minute)
			})
		})
	}
}

// A node of which somebody said no is left alone as long as the plan is there, and then it is asked again.
func TestADeniedPlanHoldsItsNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t.Context())
		plan, stop := s.waited(t)
		defer stop()
		s.decide(plan, v1alpha1.DisruptionDenied)
		time.Sleep(approval.Window - time.Minute)
		if got := s.plans(v1alpha1.DisruptionPending); len(got) > 0 {
			t.Error("it is asked again")
		}
		time.Sleep(2 * time.Minute)
		if got := s.plans(v1alpha1.DisruptionPending); len(got) != 1 || len(s.plans(v1alpha1.DisruptionRefused)) > 0 {
			t.Errorf("%d plans wait after it has expired, want a new one and the old one gone", len(got))
		}
	})
}

// Who deletes a plan that was denied is asked again at once, also where a finalizer keeps it.
func TestADeniedPlanThatIsDeletedHoldsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t.Context())
		plan, stop := s.waited(t)
		defer stop()
		s.decide(plan, v1alpha1.DisruptionDenied)
		time.Sleep(time.Minute)
		memapi.Edit(s.api, "", plan.Name, func(p *v1alpha1.DisruptionPlan) {
			p.DeletionTimestamp, p.Finalizers = new(metav1.Now()), []string{"example.com/keep"}
		})
		time.Sleep(time.Minute)
		if got := s.plans(v1alpha1.DisruptionPending); len(got) != 1 {
			t.Errorf("%d plans wait, want a new one", len(got))
		}
	})
}

// What a rule has approved and budgets hold back is asked of the rules that there are when the budgets let it go.
func TestRulesThatChangeCountAtOnce(t *testing.T) {
	for name, tc := range map[string]struct {
		before, after string
		want          bool // it is begun
	}{
		"the rule goes":                      {"reason=Underutilized", "", false},
		"the rule becomes stricter":          {"pods<=3", "pods<=2", false},
		"another rule approves it now":       {"pods<=3", "nodes<=1", true},
		"a rule comes that approves it":      {"", "nodes<=1", true},
		"a rule comes that does not":         {"", "nodes<=0", false},
		"a rule comes that cannot be read":   {"nodes<=1", "nodes<=1; nodez<=1", false},
		"the rule is what it was all along":  {"nodes<=1", "nodes<=1", true},
		"there was no rule and there is now": {"nodes<=0", "nodes<=0; pods<=3", true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t.Context())
				s.manual(tc.before)
				stop := s.run(t)
				time.Sleep(disrupt.SecondLook - time.Second)
				// The plan is made, and budgets hold it back from then on.
				s.api.SetFault(func(r memapi.Request) error {
					if r.Kind == "DisruptionPlan" && r.Subresource == "status" {
						s.pools["p"].Pool.Spec.Disruption.Budgets = []v1.Budget{{Nodes: "0"}}
					}
					return nil
				})
				time.Sleep(10 * time.Second)
				plans := s.plans(v1alpha1.DisruptionPending)
				if len(plans) != 1 || (plans[0].Status.Rule != "") != (tc.before != "" && tc.before != "nodes<=0") || s.done() != "" {
					t.Fatalf("plans = %v, done was: %s", plans, s.done())
				}
				stop()
				s.api.SetFault(nil)
				s.manual(tc.after)
				s.pools["p"].Pool.Spec.Disruption.Budgets = nil
				defer s.run(t)()
				time.Sleep(10 * time.Second)
				if got := s.tainted("a"); got != tc.want {
					t.Errorf("it was begun: %v, want %v", got, tc.want)
				}
				for _, p := range append(s.plans(v1alpha1.DisruptionPending), s.plans(v1alpha1.DisruptionCarriedOut)...) {
					if p.Name != plans[0].Name || (p.Status.Rule != "") != tc.want {
						t.Errorf("plan %s is %s by rule %q", p.Name, p.Status.Phase, p.Status.Rule)
					}
				}
			})
		})
	}
}

// What was approved and taken back because somebody paused is not done when they resume: the yes was for that time.
func TestAYesIsGoodForOneBeginning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t.Context())
		plan, stop := s.waited(t)
		defer stop()
		s.decide(plan, v1alpha1.DisruptionApproved)
		time.Sleep(5 * time.Second)
		if !s.tainted("a") {
			t.Fatal("what was approved is not done")
		}
		s.pauseCluster("true")
		s.initialise(replacementName)
		time.Sleep(5 * time.Second)
		if got := s.leftovers(); len(got) > 0 || len(s.deleted()) > 0 && s.deleted()[0] == "claim-a" {
			t.Fatalf("while it is paused: %v, deleted %v", got, s.deleted())
		}
		s.pauseCluster("")
		time.Sleep(10 * time.Minute)
		if got := s.plans(v1alpha1.DisruptionPending); len(got) != 1 || got[0].Name == plan.Name || s.tainted("a") {
			t.Errorf("%d plans wait, and it is begun again: %v; want a new plan", len(got), s.tainted("a"))
		}
	})
}

// A plan that says nothing is given a minute: what it is about is written with a second call.
func TestAPlanThatSaysNothingIsGivenAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t.Context())
		s.api.Put(&v1alpha1.DisruptionPlan{ObjectMeta: metav1.ObjectMeta{Name: "nothing", CreationTimestamp: metav1.Now()}, Spec: v1alpha1.DisruptionPlanSpec{Decision: v1alpha1.DisruptionApproved}})
		_, stop := s.waited(t)
		defer stop()
		time.Sleep(lostWait - disrupt.SecondLook - 10*time.Second)
		if len(s.plans("")) != 1 {
			t.Error("it is gone before its minute is over")
		}
		time.Sleep(20 * time.Second)
		if len(s.plans("")) != 0 {
			t.Error("it stays")
		}
	})
}

// The plan that is dropped is the one that was looked at, not one that has got its name.
func TestThePlanThatGotANameIsNotDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, "")
		again := g.plan.DeepCopy()
		g.api.Remove(g.plan)
		again.UID, again.ResourceVersion = "again", ""
		g.api.Put(again)
		if err := g.dropPlan(t.Context(), g.plan, time.Now(), time.Now()); err == nil {
			t.Error("it is dropped without an error")
		}
		if len(memapi.All[*v1alpha1.DisruptionPlan](g.api)) != 1 {
			t.Error("the other one is gone")
		}
	})
}

func TestPlansThatAreDoneWithGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t.Context())
		s.api.Put(&v1alpha1.DisruptionPlan{ObjectMeta: metav1.ObjectMeta{Name: "nothing", CreationTimestamp: metav1.Now()}, Spec: v1alpha1.DisruptionPlanSpec{Decision: v1alpha1.DisruptionApproved}})
		plan, stop := s.waited(t)
		defer stop()
		time.Sleep(approval.Window + 2*time.Minute)
		if len(s.plans(v1alpha1.DisruptionExpired)) != 1 || len(s.plans("")) > 0 {
			t.Errorf("%d plans have expired, and %d say nothing", len(s.plans(v1alpha1.DisruptionExpired)), len(s.plans("")))
		}
		time.Sleep(approval.Kept)
		for _, p := range memapi.All[*v1alpha1.DisruptionPlan](s.api) {
			if p.Name == plan.Name {
				t.Error("it is kept for ever")
			}
		}
	})
}

func TestARestartKeepsPlans(t *testing.T) {
	for name, before := range map[string]bool{"the yes comes before it": true, "the yes comes after it": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t.Context())
				plan, stop := s.waited(t)
				stop()
				if before {
					s.decide(plan, v1alpha1.DisruptionApproved)
				}
				s.store = cluster.NewStore()
				go s.api.Feed(t.Context(), s.store, feedLag)
				stop = s.run(t)
				time.Sleep(5 * time.Second)
				if !before {
					if got := s.done(); got != "" {
						t.Fatalf("done was: %s", got)
					}
					s.decide(plan, v1alpha1.DisruptionApproved)
					time.Sleep(5 * time.Second)
				}
				if !s.tainted("a") || len(s.plans(v1alpha1.DisruptionPending)) > 0 {
					t.Fatal("what was approved is not done, or asked again")
				}
				// And once more in the middle of the step.
				stop()
				s.store = cluster.NewStore()
				go s.api.Feed(t.Context(), s.store, feedLag)
				defer s.run(t)()
				s.initialise(replacementName)
				time.Sleep(10 * time.Second)
				if got := s.deleted(); !slices.Equal(got, []string{"claim-a"}) {
					t.Errorf("deleted %v", got)
				}
			})
		})
	}
}

func TestOfTwoControllersOneCarriesItOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t.Context())
		plan, stop := s.waited(t)
		defer stop()
		other := cluster.NewStore()
		go s.api.Feed(t.Context(), other, feedLag)
		first := s.store
		s.store = other
		stopOther := s.run(t)
		defer stopOther()
		time.Sleep(2 * time.Second)
		s.decide(plan, v1alpha1.DisruptionApproved)
		time.Sleep(10 * time.Second)
		s.store = first
		if got := len(s.plans(v1alpha1.DisruptionCarriedOut)); got != 1 {
			t.Errorf("%d plans were carried out", got)
		}
		if got := len(memapi.All[*v1.NodeClaim](s.api)); got != 2 {
			t.Errorf("%d claims, want the node and one replacement", got)
		}
	})
}

// A pool that wants to be asked from now on gets back what was begun without, and a record of a plan that nobody approved is worth nothing.
func TestCommandsWithoutApprovalAreTakenBack(t *testing.T) {
	for name, begin := range map[string]func(*testing.T, *stage){
		"the pool wants to be asked since": func(t *testing.T, s *stage) {
			t.Cleanup(s.run(t))
			time.Sleep(disrupt.SecondLook + 5*time.Second)
			if !s.tainted("a") {
				t.Fatal("the command did not start")
			}
			s.manual("")
			s.initialise(replacementName)
		},
		"the pool wants to be asked since, says the claim alone": func(t *testing.T, s *stage) {
			t.Cleanup(s.run(t))
			time.Sleep(disrupt.SecondLook + 5*time.Second)
			s.astray()
			s.manual("")
			s.initialise(replacementName)
		},
		"the record names a plan that was denied": func(t *testing.T, s *stage) {
			s.manual("")
			s.record(v1alpha1.DisruptionRefused, func(*v1alpha1.DisruptionPlan) {})
			t.Cleanup(s.run(t))
		},
		"the record names a plan that nobody approved in time": func(t *testing.T, s *stage) {
			s.manual("")
			s.record(v1alpha1.DisruptionExpired, func(*v1alpha1.DisruptionPlan) {})
			t.Cleanup(s.run(t))
		},
		"the record has a node more than the plan": func(t *testing.T, s *stage) {
			plan := approval.PlanOf(&v1alpha1.DisruptionStep{Reason: v1.DisruptionReasonUnderutilized, Remove: []v1alpha1.DisruptedNode{{NodeClaim: "claim-b", UID: "claim-b", NodePool: "p"}}}, time.Now())
			plan.Status.Phase = v1alpha1.DisruptionCarriedOut
			s.api.Put(plan)
			r := begun("claim-a", "claim-b")
			r.Plan = plan.Name
			s.manual("")
			s.write("claim-a", r.As(steprecord.Candidate))
			s.write("claim-b", r.As(steprecord.Candidate))
			t.Cleanup(s.run(t))
		},
		"the record has a node that is there and that the plan does not have": func(t *testing.T, s *stage) {
			s.node("b", "small", true)
			s.budget("100%")
			plan := approval.PlanOf(&v1alpha1.DisruptionStep{Reason: v1.DisruptionReasonUnderutilized, Remove: []v1alpha1.DisruptedNode{{NodeClaim: "claim-a", UID: "claim-a", NodePool: "p"}}}, time.Now())
			plan.Status.Phase = v1alpha1.DisruptionCarriedOut
			s.api.Put(plan)
			r := begun("claim-a", "claim-b")
			r.Plan = plan.Name
			s.manual("")
			s.write("claim-a", r.As(steprecord.Candidate))
			s.write("claim-b", r.As(steprecord.Candidate))
			t.Cleanup(s.run(t))
		},
		"the record names no plan, and the claim says that it is of another pool": func(t *testing.T, s *stage) {
			s.manual("")
			s.write("claim-a", begun("claim-a").As(steprecord.Candidate))
			memapi.Edit(s.api, "", "claim-a", func(c *v1.NodeClaim) {
				c.Labels = maps.Clone(c.Labels)
				c.Labels[v1.NodePoolLabelKey] = "other"
			})
			t.Cleanup(s.run(t))
		},
		"the record names a plan that still waits": func(t *testing.T, s *stage) {
			s.manual("")
			s.record(v1alpha1.DisruptionPending, func(*v1alpha1.DisruptionPlan) {})
			t.Cleanup(s.run(t))
		},
		"the record names a plan that was changed": func(t *testing.T, s *stage) {
			s.manual("")
			s.record(v1alpha1.DisruptionCarriedOut, func(p *v1alpha1.DisruptionPlan) { p.Status.Step.Pods++ })
			t.Cleanup(s.run(t))
		},
		"the record gives another reason than the plan": func(t *testing.T, s *stage) {
			s.manual("")
			s.recordOf(func(p *v1alpha1.DisruptionPlan) { p.Status.Step.Reason = v1.DisruptionReasonDrifted })
			t.Cleanup(s.run(t))
		},
		"the record waits for no replacement, and the plan speaks of one": func(t *testing.T, s *stage) {
			s.manual("")
			s.recordOf(func(p *v1alpha1.DisruptionPlan) { p.Status.Step.Open = []v1alpha1.OpenedNode{{NodePool: "p"}} })
			t.Cleanup(s.run(t))
		},
		"the record has one node of the two of the plan": func(t *testing.T, s *stage) {
			s.manual("")
			s.recordOf(func(p *v1alpha1.DisruptionPlan) {
				p.Status.Step.Remove = append(p.Status.Step.Remove, v1alpha1.DisruptedNode{NodeClaim: "claim-b", UID: "claim-b", NodePool: "p"})
			})
			t.Cleanup(s.run(t))
		},
		"the record names a plan of a node that had the name before": func(t *testing.T, s *stage) {
			s.manual("")
			s.recordOf(func(p *v1alpha1.DisruptionPlan) { p.Status.Step.Remove[0].UID = "before" })
			t.Cleanup(s.run(t))
		},
		"the record names no plan, and the node says that it is of another pool": func(t *testing.T, s *stage) {
			s.manual("")
			s.astray()
			s.write("claim-a", begun("claim-a").As(steprecord.Candidate))
			t.Cleanup(s.run(t))
		},
		"the record names no plan": func(t *testing.T, s *stage) {
			s.manual("")
			s.write("claim-a", begun("claim-a").As(steprecord.Candidate))
			t.Cleanup(s.run(t))
		},
		"the record names a plan that is not there": func(t *testing.T, s *stage) {
			r := begun("claim-a")
			r.Plan = "none"
			s.manual("")
			s.write("claim-a", r.As(steprecord.Candidate))
			t.Cleanup(s.run(t))
		},
		"the record names a plan of another node": func(t *testing.T, s *stage) {
			plan := approval.PlanOf(&v1alpha1.DisruptionStep{Reason: v1.DisruptionReasonUnderutilized, Remove: []v1alpha1.DisruptedNode{{NodeClaim: "claim-b", UID: "claim-b", NodePool: "p"}}}, time.Now())
			plan.Status.Phase = v1alpha1.DisruptionCarriedOut
			s.api.Put(plan)
			r := begun("claim-a")
			r.Plan = plan.Name
			s.manual("")
			s.write("claim-a", r.As(steprecord.Candidate))
			t.Cleanup(s.run(t))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t.Context())
				begin(t, s)
				time.Sleep(10 * time.Second)
				if got := s.deleted(); slices.Contains(got, "claim-a") {
					t.Error("the node was deleted")
				}
				if got := s.leftovers(); len(got) > 0 {
					t.Errorf("left behind: %v", got)
				}
			})
		})
	}
}

// astray has Node a say that it is of another pool than its claim.
func (s *stage) astray() {
	memapi.Edit(s.api, "", "a", func(n *corev1.Node) {
		n.Labels = maps.Clone(n.Labels)
		n.Labels[v1.NodePoolLabelKey] = "other"
	})
}

// recordOf has claim a carry the record of a step by a plan that was carried out, and says something else.
func (s *stage) recordOf(other func(*v1alpha1.DisruptionPlan)) {
	s.record(v1alpha1.DisruptionCarriedOut, func(p *v1alpha1.DisruptionPlan) {
		other(p)
		*p = *approval.PlanOf(p.Status.Step, time.Now())
		p.Status.Phase = v1alpha1.DisruptionCarriedOut
	})
}

// record has claim a carry the record of a step by a plan in a phase.
func (s *stage) record(phase v1alpha1.DisruptionPhase, spoil func(*v1alpha1.DisruptionPlan)) {
	plan := approval.PlanOf(&v1alpha1.DisruptionStep{Reason: v1.DisruptionReasonUnderutilized, Remove: []v1alpha1.DisruptedNode{{NodeClaim: "claim-a", UID: "claim-a", NodePool: "p"}}}, time.Now())
	plan.Status.Phase = phase
	spoil(plan)
	s.api.Put(plan)
	r := begun("claim-a")
	r.Plan = plan.Name
	s.write("claim-a", r.As(steprecord.Candidate))
	time.Sleep(10 * time.Millisecond) // the store has heard of it
}

// A step whose plan was carried out is gone on with: the same records, and nothing spoilt.
func TestARecordOfAnApprovedPlanCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t.Context())
		s.manual("")
		s.record(v1alpha1.DisruptionCarriedOut, func(*v1alpha1.DisruptionPlan) {})
		defer s.run(t)()
		time.Sleep(10 * time.Second)
		if got := s.deleted(); !slices.Equal(got, []string{"claim-a"}) {
			t.Errorf("deleted %v, want claim-a", got)
		}
	})
}

func TestRulesApproveByThemselves(t *testing.T) {
	for rules, want := range map[string]bool{
		"":                                    false,
		"reason=Empty":                        false,
		"reason=Empty; reason=Underutilized":  true,
		"reason=Underutilized,pods<=2":        false,
		"reason=Underutilized, pods<=3":       true,
		"saves>=0.81":                         false,
		"saves>=0.8,nodes<=1":                 true,
		"nodes<=0":                            false,
		"reason=Underutilized; podz<=1":       false, // a rule that cannot be read spoils them all
		"reason=Underutilised":                false,
		"saves>=much; reason=Underutilized":   false,
		"saves>=NaN; reason=Underutilized":    false,
		"pods<=-1; reason=Underutilized":      false,
		"reason=Drifted; nodes<=1,pods<=1000": true,
	} {
		t.Run(rules, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t.Context())
				s.manual(rules)
				defer s.run(t)()
				time.Sleep(disrupt.SecondLook + 10*time.Second)
				if got := s.tainted("a"); got != want {
					t.Errorf("it was begun: %v, want %v", got, want)
				}
				plans := append(s.plans(v1alpha1.DisruptionCarriedOut), s.plans(v1alpha1.DisruptionPending)...)
				if len(plans) != 1 || (plans[0].Status.Rule != "") != want || want && plans[0].Status.Phase != v1alpha1.DisruptionCarriedOut {
					t.Errorf("plans = %+v", plans)
				}
				if s.heard("DisruptionAwaitsApproval NodePool p") == want {
					t.Error("the pool says that it waits exactly when it does not")
				}
			})
		})
	}
}

// Who says yes to a plan that does not say yet what it is about has said yes to nothing.
func TestADecisionBeforeTheContentsIsNotHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t.Context())
		s.manual("")
		var once sync.Once
		s.api.SetFault(func(r memapi.Request) error {
			if r.Kind == "DisruptionPlan" && r.Subresource == "status" {
				once.Do(func() {
					s.decide(&v1alpha1.DisruptionPlan{ObjectMeta: metav1.ObjectMeta{Name: r.Name.Name}}, v1alpha1.DisruptionApproved)
				})
			}
			return nil
		})
		defer s.run(t)()
		s.nothingIsDone(t, 20*time.Minute)
	})
}

// nothingIsDone looks for some time, and often enough that a step that is taken back again is seen.
func (s *stage) nothingIsDone(t *testing.T, during time.Duration) {
	t.Helper()
	for end := time.Now().Add(during); time.Now().Before(end); time.Sleep(5 * time.Second) {
		if got := s.done(); got != "" {
			t.Fatalf("done was: %s", got)
		}
	}
}

// A step for which nobody could be asked is not begun, and is not asked for again and again.
func TestAStepThatCannotBeAskedForIsNotBegun(t *testing.T) {
	for name, fails := range map[string]func(memapi.Request) bool{
		"there is no definition of plans":           func(r memapi.Request) bool { return r.Verb == "create" },
		"what the plan is about cannot be written":  func(r memapi.Request) bool { return r.Subresource == "status" },
		"the answer to what was written is no good": func(r memapi.Request) bool { return r.Verb != "get" && r.Verb != "list" },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t.Context())
				s.manual("reason=Underutilized")
				var asked atomic.Int64
				s.api.SetFault(func(r memapi.Request) error {
					if r.Kind != "DisruptionPlan" || !fails(r) {
						return nil
					}
					asked.Add(1)
					return apierrors.NewInternalError(errors.New("no"))
				})
				stop := s.run(t)
				s.nothingIsDone(t, 20*time.Minute)
				if n := asked.Load(); n < 2 || n > 30 {
					t.Errorf("it was tried %d times in twenty minutes", n)
				}
				stop()
				s.api.SetFault(nil)
				defer s.run(t)()
				time.Sleep(10 * time.Minute)
				if len(s.plans(v1alpha1.DisruptionCarriedOut)) == 0 {
					t.Error("it is not tried any more")
				}
			})
		})
	}
}

// Who takes the annotation off wants nobody to be asked: what waits is done without a yes.
func TestAPoolThatNoLongerWantsToBeAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t.Context())
		plan, stop := s.waited(t)
		defer stop()
		memapi.Edit(s.api, "", "p", func(p *v1.NodePool) { p.Annotations = nil })
		time.Sleep(disrupt.SecondLook + 10*time.Second)
		if got := s.plans(v1alpha1.DisruptionSuperseded); len(got) != 1 || got[0].Name != plan.Name || got[0].Status.Message != "its pools no longer want to be asked" {
			t.Errorf("plans = %v", got)
		}
		if !s.tainted("a") {
			t.Error("what waited is not done")
		}
	})
}
