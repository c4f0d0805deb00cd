package disrupt

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
)

// TestVacancies looks at a node at noon, when it has no pods, then things happen, and a minute later it is looked at again.
func TestVacancies(t *testing.T) {
	drop := func(f *fixture, name string) {
		f.store.Update(func(d *cluster.Draft) { d.DeletePod(cluster.PodKey{Namespace: "default", Name: name}) })
	}
	for name, tc := range map[string]struct {
		before, happens func(*fixture)
		again           bool // vacant anew
	}{
		"nothing":                             {nil, nil, false},
		"a pod came":                          {nil, func(f *fixture) { f.pods("n", "web", 1, "1", "1Gi") }, true},
		"a pod came and went":                 {nil, func(f *fixture) { f.pods("n", "web", 1, "1", "1Gi"); drop(f, "web-n-0") }, true},
		"a pod of a DaemonSet came":           {nil, func(f *fixture) { f.pods("n", "web", 1, "1", "1Gi", ofDaemonSet) }, false},
		"a pod that had ended went":           {func(f *fixture) { f.pods("n", "web", 1, "1", "1Gi", ended) }, func(f *fixture) { drop(f, "web-n-0") }, false},
		"a pod that is stopping went":         {func(f *fixture) { f.pods("n", "web", 1, "1", "1Gi", stopping) }, func(f *fixture) { drop(f, "web-n-0") }, false},
		"a pod that ran has ended":            {func(f *fixture) { f.pods("n", "web", 1, "1", "1Gi") }, func(f *fixture) { f.pods("n", "web", 1, "1", "1Gi", ended) }, true},
		"the node was promised to a pod":      {nil, func(f *fixture) { f.promise("n", noon) }, true},
		"a promise was kept":                  {func(f *fixture) { f.promise("n", noon) }, func(f *fixture) { f.pods("none", "late", 1, "1", "1Gi", func(p *corev1.Pod) { p.Spec.NodeName = "n" }) }, true},
		"a promise of yesterday still stands": {func(f *fixture) { f.promise("n", noon.Add(-24*time.Hour)) }, nil, false},
		"another node has become empty":       {func(f *fixture) { f.node("o", "p", "m", v1.CapacityTypeOnDemand).pods("o", "web", 1, "1", "1Gi") }, func(f *fixture) { drop(f, "web-o-0") }, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(shape("m", 4, 16, 0.2, 0.1)).pool("p").node("n", "p", "m", v1.CapacityTypeOnDemand)
			var v Vacancies
			if tc.before != nil {
				tc.before(f)
			}
			if got := v.Look(f.store.Snapshot(), noon)["claim-n"]; !got.Equal(noon) {
				t.Errorf("at the first look it is vacant since %v, want noon", got)
			}
			if tc.happens != nil {
				tc.happens(f)
			}
			want := noon
			if tc.again {
				want = noon.Add(time.Minute)
			}
			if got := v.Look(f.store.Snapshot(), noon.Add(time.Minute))["claim-n"]; !got.Equal(want) {
				t.Errorf("vacant since %v, want %v", got, want)
			}
		})
	}
}

func TestANodeIsVacantFromWhenItIsInitialised(t *testing.T) {
	f := newFixture(shape("m", 4, 16, 0.2, 0.1)).pool("p")
	boots := func(n *corev1.Node, c *v1.NodeClaim) {
		delete(n.Labels, v1.NodeInitializedLabelKey)
		condition.Clear(c, v1.ConditionTypeInitialized, noon)
	}
	f.node("n", "p", "m", v1.CapacityTypeOnDemand, boots)
	var v Vacancies
	for i := range 3 {
		at := noon.Add(time.Duration(i) * time.Minute)
		if got := v.Look(f.store.Snapshot(), at)["claim-n"]; !got.Equal(at) {
			t.Errorf("while it boots, at %v, it is vacant since %v", at, got)
		}
	}
	f.node("n", "p", "m", v1.CapacityTypeOnDemand)
	if got, want := v.Look(f.store.Snapshot(), noon.Add(3*time.Minute))["claim-n"], noon.Add(3*time.Minute); !got.Equal(want) {
		t.Errorf("it is vacant since %v, want the first look at which it was initialised", got)
	}
}

func ofDaemonSet(p *corev1.Pod) { p.OwnerReferences[0].Kind = "DaemonSet" }

func ended(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }

// TestAnEmptyNodeDoesNotWaitForTheStepsOfOthers has a budget of one, which a step takes that waits to be confirmed.
func TestAnEmptyNodeDoesNotWaitForTheStepsOfOthers(t *testing.T) {
	f := newFixture(small()...).pool("p", allowing("1")).node("a", "p", "mid", onDemand).node("b", "p", "mid", onDemand).pods("b", "web", 3, "1", "1Gi")
	w := f.world()
	w.Promised = map[string]int{"p": 1}
	out := newPlanner(realEngine()).Propose(w)
	if got := say(out); len(got) != 1 || got[0] != "empty a" {
		t.Errorf("proposed %q, want the empty node", got)
	}
}

// TestTheNextLookIsWhenANodeHasBeenVacantForLongEnough keeps an empty node from being forgotten in a cluster in which nothing happens.
func TestTheNextLookIsWhenANodeHasBeenVacantForLongEnough(t *testing.T) {
	for name, edit := range map[string]func(*corev1.Node, *v1.NodeClaim){
		"an empty node": func(*corev1.Node, *v1.NodeClaim) {}, "a drifted one": drift(-time.Hour),
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(small()...).pool("p").node("a", "p", "mid", onDemand, edit)
			f.vacant["claim-a"] = noon.Add(-5 * time.Second)
			out := f.propose(t)
			if len(out.Steps) > 0 || !out.Next.Equal(noon.Add(10*time.Second)) {
				t.Errorf("steps %q, next look at %v, want none before ten seconds later", say(out), out.Next)
			}
		})
	}
}

// TestNobodyIsMovedOntoANodeThatIsAboutToGo looks again at a step after the fifteen seconds in which another node stayed empty.
func TestNobodyIsMovedOntoANodeThatIsAboutToGo(t *testing.T) {
	for name, tc := range map[string]struct {
		vacant  time.Duration
		budgets string
		want    string
	}{
		"one that goes soon":             {14 * time.Second, "100%", "underutilized a -> cheap/on-demand"},
		"one that goes now":              {15 * time.Second, "100%", "underutilized a -> cheap/on-demand"},
		"one that no budget lets go now": {15 * time.Second, "1", "underutilized a"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(small()...).pool("p").node("a", "p", "big", onDemand).pods("a", "web", 1, "1", "1Gi")
			out := f.propose(t)
			f.pool("other", allowing(tc.budgets)).node("b", "other", "cheap", onDemand).node("c", "other", "cheap", onDemand, func(n *corev1.Node, _ *v1.NodeClaim) {
				n.Status.Conditions[0].Status, n.Spec.Unschedulable = corev1.ConditionFalse, true
			})
			f.vacant["claim-b"] = noon.Add(-tc.vacant)
			f.vacant["claim-c"] = noon
			step, refusal := newPlanner(realEngine()).Confirm(f.world(), out.Steps[0])
			if refusal.Code != "" {
				t.Fatal(refusal.Code)
			}
			if got := say(&Proposal{Steps: []*Step{step}}); got[0] != tc.want {
				t.Errorf("confirmed %q, want %q", got, tc.want)
			}
		})
	}
}
