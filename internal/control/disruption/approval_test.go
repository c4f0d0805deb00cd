package disruption

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/approval"
	"karpenter.sh/karpenter/internal/memapi"
	"karpenter.sh/karpenter/internal/steprecord"
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
	time.Sleep(validationDelay + 5*time.Second)
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
		"yes, but nobody may go now": {func(s *stage, p *v1alpha1.DisruptionPlan) {
			s.pools["p"].Pool.Spec.Disruption.Budgets = []v1.Budget{{Nodes: "0"}}
			approve(s, p)
		}, v1alpha1.DisruptionPending, ""},
		"yes, but the cluster is paused": {func(s *stage, p *v1alpha1.DisruptionPlan) {
			s.pauseCluster("true")
			time.Sleep(time.Second)
			approve(s, p)
		}, v1alpha1.DisruptionPending, ""},
		"the plan is deleted": {func(s *stage, p *v1alpha1.DisruptionPlan) { s.api.Remove(p) }, "", ""},
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
				time.Sleep(10 * time.Minute)
				if got := s.done(); got != "" {
					t.Errorf("done was: %s", got)
				}
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
				go s.api.Feed(t.Context(), s.store, time.Millisecond)
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
				go s.api.Feed(t.Context(), s.store, time.Millisecond)
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
		go s.api.Feed(t.Context(), other, time.Millisecond)
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
			time.Sleep(validationDelay + 5*time.Second)
			if !s.tainted("a") {
				t.Fatal("the command did not start")
			}
			s.manual("")
			s.initialise(replacementName)
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
				time.Sleep(validationDelay + 10*time.Second)
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
		time.Sleep(20 * time.Minute)
		if got := s.done(); got != "" {
			t.Errorf("done was: %s", got)
		}
	})
}
