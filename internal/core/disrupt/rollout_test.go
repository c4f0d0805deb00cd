package disrupt

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/lifecycle"
	"karpenter.sh/karpenter/internal/core/rollout"
)

// twoPools has a pool with a cheap type and a pool with a dear one, so that a node of the dear pool pays to be replaced in the other.
func twoPools() *fixture {
	cheap, dear := shape("cheap", 4, 16, 0.1, 0), shape("dear", 4, 16, 0.3, 0)
	f := newFixture(cheap, dear).pool("a").pool("b")
	for name, it := range map[string]*cloud.InstanceType{"a": cheap, "b": dear} {
		p := f.pools[name]
		p.Catalog = &cloud.Catalog{Types: []*cloud.InstanceType{it}}
		f.pools[name] = p
	}
	return f
}

// While a rollout of a pool is under way or stopped, its machines may be bad. So no step opens one but to replace a drifted node of it.
func TestAPoolThatStandsStillGetsNoMachinesOfOtherPools(t *testing.T) {
	still := map[string]rollout.Allowance{"a": {Policy: "p", Still: true, More: 1}}
	drifted := drift(-time.Hour)
	for name, tc := range map[string]struct {
		world    *fixture
		rollouts map[string]rollout.Allowance
		want     []string
	}{
		"consolidation opens in a pool without a rollout": {twoPools().node("n", "b", "dear", onDemand).pods("n", "web", 3, "1", "1Gi"),
			map[string]rollout.Allowance{"a": {Policy: "p"}}, []string{"underutilized n -> cheap/on-demand"}},
		"but not in one that stands still": {twoPools().node("n", "b", "dear", onDemand).pods("n", "web", 3, "1", "1Gi"), still, nil},
		"its nodes take pods":              {twoPools().node("n", "b", "dear", onDemand).pods("n", "web", 1, "1", "1Gi").node("o", "a", "cheap", onDemand).pods("o", "web", 2, "1", "1Gi"), still, []string{"underutilized n"}},
		"drift opens in a pool without a rollout": {twoPools().node("n", "b", "dear", onDemand, drifted).pods("n", "web", 3, "1", "1Gi"),
			nil, []string{"drifted n -> cheap/on-demand"}},
		"but not in one that stands still for nodes of another": {twoPools().node("n", "b", "dear", onDemand, drifted).pods("n", "web", 3, "1", "1Gi"), still,
			[]string{"drifted n -> dear/on-demand"}},
		"each pool's drifted nodes are replaced by their own": {twoPools().node("n", "b", "dear", onDemand, drifted).pods("n", "web", 4, "1", "1Gi").
			node("o", "a", "cheap", onDemand, drifted).pods("o", "web", 4, "1", "1Gi"), still, []string{"drifted n -> dear/on-demand", "drifted o -> cheap/on-demand"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := tc.world.world()
			w.Rollouts = tc.rollouts
			if got := say(newPlanner(engine.New()).Propose(w)); !slices.Equal(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// What is broken goes although the only pool with room stands still: its pods get what waiting pods would get.
func TestBrokenNodesGoToAPoolThatStandsStill(t *testing.T) {
	f := twoPools().node("n", "b", "dear", onDemand, func(n *corev1.Node, _ *v1.NodeClaim) {
		n.Status.Conditions[0].Status, n.Status.Conditions[0].LastTransitionTime = corev1.ConditionFalse, metav1.NewTime(noon.Add(-time.Hour))
	}).pods("n", "web", 3, "1", "1Gi")
	w := f.world()
	w.Repairs = lifecycle.NewRepairs([]cloud.RepairPolicy{{ConditionType: corev1.NodeReady, Status: corev1.ConditionFalse}})
	w.Rollouts = map[string]rollout.Allowance{"a": {Policy: "p", Still: true}}
	if got, want := say(newPlanner(engine.New()).Propose(w)), []string{"unhealthy n -> cheap/on-demand"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A step that was found before the rollout stopped is refused when it is looked at again, and found again when the rollout goes on.
func TestAPoolThatStandsStillIsAskedAgain(t *testing.T) {
	f := twoPools().node("n", "b", "dear", onDemand).pods("n", "web", 3, "1", "1Gi")
	planner := newPlanner(engine.New())
	at := func(d time.Duration, still bool) *World {
		w := f.world()
		w.Rollouts, w.Now = map[string]rollout.Allowance{"a": {Policy: "p", Still: still}}, noon.Add(d)
		return w
	}
	found := planner.Propose(at(0, false)).Steps
	if len(found) != 1 {
		t.Fatalf("%d steps", len(found))
	}
	if step, why := planner.Confirm(at(time.Second, true), found[0]); step != nil || why.Code == "" {
		t.Errorf("the step is carried out although the rollout has stopped: %v, %v", step, why)
	}
	if out := planner.Propose(at(time.Minute, true)); len(out.Steps) != 0 {
		t.Errorf("%q", say(out))
	}
	f.pods("n", "web", 3, "1", "1Gi", func(p *corev1.Pod) { p.Status.Message = "fine" }) // the store has news, as when the status of a policy changes
	if out := planner.Propose(at(2*time.Minute, false)); len(out.Steps) != 1 {
		t.Error("the last answer counts although the pool gets machines again")
	}
}

func TestWhyNamesNoPlaceInAPoolThatStandsStill(t *testing.T) {
	f := twoPools().node("n", "b", "dear", onDemand, drift(-time.Hour)).pods("n", "web", 3, "1", "1Gi")
	f.notReady = map[string]bool{"b": true}
	w := f.world()
	w.Engine = engine.New()
	w.Rollouts = map[string]rollout.Allowance{"a": {Policy: "p", Still: true}}
	why := WhyStays(w, Memory{}, "n")
	if !slices.ContainsFunc(why, func(r Refusal) bool { return r.Code == NoPlace && r.Reason == v1.DisruptionReasonDrifted }) {
		t.Errorf("%+v", why)
	}
}

// A machine that was made from the state that passed last drifts as soon as its pool is resumed. What replaces it does not, so the nodes of
// its class do not wait for each other.
func TestAMachineThatWentBackMakesNoDriftRecur(t *testing.T) {
	for name, back := range map[string]bool{"it is of the present template": false, "it went back": true} {
		t.Run(name, func(t *testing.T) {
			born := func(_ *corev1.Node, c *v1.NodeClaim) {
				c.CreationTimestamp = metav1.NewTime(noon.Add(-3 * time.Minute))
				condition.Clear(c, v1.ConditionTypeLaunched, noon)
				condition.SetTrue(c, v1.ConditionTypeLaunched, noon.Add(-2*time.Minute))
				if back {
					c.Annotations = map[string]string{v1.LastGoodImagesAnnotationKey: "ami-1"}
				}
			}
			w := twoPools().node("old", "b", "dear", onDemand, drift(-time.Hour)).node("young", "b", "dear", onDemand, drift(-time.Minute), born).world()
			if recurring, _ := recurringOf(surveyOf(w), nil); len(recurring) > 0 == back {
				t.Errorf("recurring: %v", recurring)
			}
		})
	}
}
