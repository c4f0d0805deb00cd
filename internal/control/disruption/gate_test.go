package disruption

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	autoscalingv1beta1 "karpenter.sh/karpenter/api/autoscaling/v1beta1"
	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/approval"
	"karpenter.sh/karpenter/internal/core/disrupt"
	"karpenter.sh/karpenter/internal/testing/memapi"
)

// A gate is a loop that stands still, a step that it would begin, and the plan by which it has asked for it.
type gate struct {
	t *testing.T
	*stage
	*Loop
	step *disrupt.Step
	plan *v1alpha1.DisruptionPlan
}

// newGate has a loop find a step and ask for it.
func newGate(t *testing.T, rules string) *gate {
	t.Helper()
	g := &gate{t: t, stage: newStage(t.Context())}
	g.spoil = func(l *Loop) { g.Loop = l }
	stop := g.run(t)
	time.Sleep(disrupt.SecondLook - time.Second)
	stop()
	g.step = g.pending[slices.Collect(maps.Keys(g.pending))[0]].Step
	clear(g.pending)
	g.manual(rules)
	time.Sleep(time.Second)
	if g.permitted(t.Context(), g.step, nil) {
		t.Fatal("a step of a pool that wants to be asked may be begun without a plan")
	}
	g.plan = memapi.All[*v1alpha1.DisruptionPlan](g.api)[0]
	return g
}

// edit changes the plan as nobody may but who writes its status.
func (g *gate) edit(edit func(*v1alpha1.DisruptionPlan)) { memapi.Edit(g.api, "", g.plan.Name, edit) }

// yes approves the plan.
func (g *gate) yes() { g.decide(g.plan, v1alpha1.DisruptionApproved) }

// instead puts another plan for the step in place of the one that was made, as it would have been made if the step had been so.
func (g *gate) instead(so func(*v1alpha1.DisruptionStep), rule string) {
	step := approval.StepOf(g.step)
	so(step)
	g.api.Remove(g.plan)
	g.plan = approval.PlanOf(step, time.Now())
	g.plan.UID, g.plan.Status.Rule = "instead", rule
	g.api.Put(g.plan)
}

// during calls do in the moment in which the status of a plan is written.
func (g *gate) during(do func() error) {
	g.api.SetFault(func(r memapi.Request) error {
		if r.Kind == "DisruptionPlan" && r.Subresource == "status" {
			return do()
		}
		return nil
	})
}

// TestTheGate asks for each way in which an approval may be none: what is looked at is the plan as it is in the API at that moment.
func TestTheGate(t *testing.T) {
	const begun, waits, superseded, none = v1alpha1.DisruptionCarriedOut, v1alpha1.DisruptionPending, v1alpha1.DisruptionSuperseded, ""
	for name, tc := range map[string]struct {
		rules string
		spoil func(*gate)
		want  v1alpha1.DisruptionPhase // of the plan; the step is begun where it is CarriedOut by this very look
		says  string
	}{
		"somebody has approved it":                     {"", (*gate).yes, begun, ""},
		"nobody has decided":                           {"", func(*gate) {}, waits, ""},
		"somebody has denied it":                       {"", func(g *gate) { g.decide(g.plan, v1alpha1.DisruptionDenied) }, waits, ""},
		"a rule approves it and somebody denied it":    {"nodes<=1", func(g *gate) { g.decide(g.plan, v1alpha1.DisruptionDenied) }, waits, ""},
		"a rule approves it":                           {"nodes<=1", func(*gate) {}, begun, ""},
		"a rule approved it, which has gone since":     {"nodes<=1", func(g *gate) { g.manual("") }, superseded, "no rule approves what would be done now"},
		"a rule approved it, which is stricter now":    {"pods<=3", func(g *gate) { g.manual("pods<=2") }, superseded, "no rule approves what would be done now"},
		"somebody approved what a rule did":            {"nodes<=1", func(g *gate) { g.yes(); g.manual("") }, begun, ""},
		"somebody wrote that a rule approves it":       {"", func(g *gate) { g.edit(func(p *v1alpha1.DisruptionPlan) { p.Status.Rule = "p: nodes<=1" }) }, superseded, "no rule approves what would be done now"},
		"the rule approves what was planned, not this": {"saves>=0.82", func(g *gate) { g.instead(func(s *v1alpha1.DisruptionStep) { s.Saves = "0.8200" }, "p: saves>=0.82") }, superseded, "no rule approves what would be done now"},
		"somebody approved fewer pods": {"", func(g *gate) {
			g.instead(func(s *v1alpha1.DisruptionStep) { s.Evictions = s.Evictions[:2] }, "")
			g.yes()
		}, superseded, "other pods would move now than it names"},
		"it was carried out":                      {"", func(g *gate) { g.yes(); g.phase(v1alpha1.DisruptionCarriedOut) }, begun + " before", ""},
		"it was superseded":                       {"", func(g *gate) { g.yes(); g.phase(v1alpha1.DisruptionSuperseded) }, superseded, ""},
		"it has expired":                          {"", func(g *gate) { g.yes(); g.phase(v1alpha1.DisruptionExpired) }, v1alpha1.DisruptionExpired, ""},
		"its time is over and nobody has noticed": {"", func(g *gate) { g.yes(); time.Sleep(time.Until(g.plan.Status.ExpiresAt.Time)) }, waits, ""},
		"its time is nearly over":                 {"", func(g *gate) { g.yes(); time.Sleep(time.Until(g.plan.Status.ExpiresAt.Time) - time.Second) }, begun, ""},
		"somebody has changed its contents": {"", func(g *gate) {
			g.yes()
			g.edit(func(p *v1alpha1.DisruptionPlan) { p.Status.Step.Evictions[0].Pods = 100 })
		}, waits, ""},
		"somebody has made its time longer": {"", func(g *gate) {
			g.yes()
			g.edit(func(p *v1alpha1.DisruptionPlan) {
				p.Status.ExpiresAt = metav1.NewTime(p.Status.ExpiresAt.Add(time.Hour))
			})
		}, waits, ""},
		"it says nothing any more": {"", func(g *gate) { g.yes(); g.edit(func(p *v1alpha1.DisruptionPlan) { p.Status.Step = nil }) }, waits, ""},
		"it is deleted":            {"", func(g *gate) { g.yes(); g.api.Remove(g.plan) }, none, ""},
		"it is deleted, and something keeps it": {"", func(g *gate) {
			g.edit(func(p *v1alpha1.DisruptionPlan) { p.Finalizers = []string{"example.com/keep"} })
			g.yes()
			g.remove()
		}, waits, ""},
		"it was deleted and made again, and that one is approved": {"", func(g *gate) {
			again := g.plan.DeepCopy()
			g.api.Remove(g.plan)
			again.UID, again.ResourceVersion, again.Spec.Decision = "again", "", v1alpha1.DisruptionApproved
			g.api.Put(again)
		}, waits, ""},
		"a copy of it in another name": {"", func(g *gate) {
			g.plan = g.plan.DeepCopy()
			g.plan.Name, g.plan.UID, g.plan.ResourceVersion, g.plan.Spec.Decision = "copy", "copy", "", v1alpha1.DisruptionApproved
			g.api.Put(g.plan)
		}, waits, ""},
		"it cannot be read": {"nodes<=1", func(g *gate) {
			g.yes()
			g.api.SetFault(func(r memapi.Request) error {
				if r.Verb == "get" {
					return apierrors.NewInternalError(errors.New("no"))
				}
				return nil
			})
		}, waits, ""},
		"it cannot be marked": {"", func(g *gate) { g.yes(); g.during(func() error { return errors.New("no") }) }, waits, ""},
		"somebody denies it in the moment it is marked": {"", func(g *gate) {
			g.yes()
			g.during(func() error { g.decide(g.plan, v1alpha1.DisruptionDenied); return nil })
		}, waits, ""},
		"somebody deletes it in the moment it is marked":            {"", func(g *gate) { g.yes(); g.during(func() error { g.api.Remove(g.plan); return nil }) }, none, ""},
		"another process carries it out in the moment it is marked": {"", func(g *gate) { g.yes(); g.during(func() error { g.phase(v1alpha1.DisruptionCarriedOut); return nil }) }, begun + " before", ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGate(t, tc.rules)
				tc.spoil(g)
				time.Sleep(2 * time.Millisecond) // the store has heard of it
				got := g.permitted(t.Context(), g.step, g.plan)
				if want := tc.want == begun; got != want {
					t.Errorf("it may be begun: %v, want %v", got, want)
				}
				var phase v1alpha1.DisruptionPhase
				message := ""
				for _, p := range memapi.All[*v1alpha1.DisruptionPlan](g.api) {
					if p.Name == g.plan.Name {
						phase, message = p.Status.Phase, p.Status.Message
					}
				}
				if phase != tc.want && phase+" before" != tc.want || message != tc.says {
					t.Errorf("the plan is %q (%s), want %q (%s)", phase, message, tc.want, tc.says)
				}
				if got && g.permitted(t.Context(), g.step, g.plan) {
					t.Error("it may be begun twice")
				}
			})
		})
	}
}

// phase says what became of the plan, as another process does.
func (g *gate) phase(p v1alpha1.DisruptionPhase) {
	g.edit(func(plan *v1alpha1.DisruptionPlan) { plan.Status.Phase = p })
}

// remove deletes the plan, as kubectl does.
func (g *gate) remove() {
	if err := g.api.Client("somebody").Delete(g.t.Context(), &v1alpha1.DisruptionPlan{ObjectMeta: metav1.ObjectMeta{Name: g.plan.Name}}); err != nil {
		g.t.Fatal(err)
	}
}

// A plan that was approved is in the budgets because it is there. That it is about to be confirmed is not another node.
func TestApprovedPlansCountAgainstBudgetsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, "")
		g.yes()
		time.Sleep(2 * time.Millisecond)
		g.pending[g.plan.Name] = &disrupt.Waiting{Step: g.step, Due: time.Now(), Plan: g.plan}
		w := g.world(t.Context(), g.Loop.store.Snapshot(), time.Now())
		if w.Promised["p"] != 1 || !w.Busy["claim-a"] {
			t.Errorf("promised %v, busy %v; want one node, which is a", w.Promised, w.Busy)
		}
	})
}

// A node that looks empty, or has room, may be what a CapacityBuffer rests on: before that is known nothing is begun.
func TestNothingIsBegunBeforeItIsKnownWhereBuffersRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t.Context())
		s.store.Update(func(d *cluster.Draft) {
			cluster.Buffers.Put(d, &autoscalingv1beta1.CapacityBuffer{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "spare"}})
			d.PutSpares("default", "spare", []*corev1.Pod{ownedPod("spare-0", "", "1")})
		})
		defer s.run(t)()
		time.Sleep(time.Minute)
		if s.tainted("a") {
			t.Fatal("a step was begun")
		}
		s.store.Update(func(d *cluster.Draft) { d.PlaceSpares("default", "spare", []string{""}) })
		time.Sleep(disrupt.SecondLook + 3*time.Second)
		if !s.tainted("a") {
			t.Error("no step was begun once it was known")
		}
	})
}
