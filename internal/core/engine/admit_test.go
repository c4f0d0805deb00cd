package engine_test

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/reason"
	"karpenter.sh/karpenter/internal/core/work"
	"karpenter.sh/karpenter/internal/testing/benchload"
)

// TestBlowUpsAreBounded plans what multiplies, by work and by memory, and sees that every plan does something. BenchmarkBlowUp has
// processor time and the heap's peak.
func TestBlowUpsAreBounded(t *testing.T) {
	for name, q := range blowUps {
		t.Run(name, func(t *testing.T) {
			pools := manyPools(t, max(q.pools, 1))
			e, snap := prepared(pools, engine.Settings{}), snapshotOf(q.pods())
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			plan := e.Plan(engine.Question{Snap: snap, Pools: pools, Pods: snap.Provisionable(), Now: now})
			runtime.ReadMemStats(&after)
			if plan.Work > 2*work.Second {
				t.Errorf("%.2f s of work", plan.Work.Seconds())
			}
			if made := (after.TotalAlloc - before.TotalAlloc) / 1e6; made > 600 {
				t.Errorf("%d MB of memory were asked for", made)
			}
			if len(plan.Open) == 0 {
				t.Error("nothing is opened")
			}
			for _, r := range plan.Refused {
				if !postponed(&r) {
					t.Fatalf("%s: %v", r.Pod.Name, r.Reasons)
				}
			}
		})
	}
}

func postponed(r *engine.Refused) bool {
	return len(r.Reasons) == 1 && r.Reasons[0].Code == reason.Postponed
}

// heavy gives a pod n terms of node affinity that no other has.
func heavy(p *corev1.Pod, n int) {
	required := &corev1.NodeSelector{}
	for k := range n {
		required.NodeSelectorTerms = append(required.NodeSelectorTerms, corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpNotIn, Values: []string{fmt.Sprintf("zone-%s-%d", p.Name, k)}}}})
	}
	p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: required}}
}

// crowd is n pods of a namespace, as heavy as said.
func crowd(namespace string, n, terms int) []*corev1.Pod {
	return podsLike(n, func(i int, p *corev1.Pod) {
		p.Namespace, p.Name = namespace, fmt.Sprintf("%s-%03d", namespace, i)
		p.UID = "uid-" + p.UID
		if terms > 0 {
			heavy(p, terms)
		}
	})
}

// fewTerms is enough work for about ten pods of a hundred terms.
const fewTerms = work.Second / 200

// askFew plans pods with little work for their terms and returns how many of each namespace are postponed.
func askFew(t *testing.T, snap *cluster.Snapshot, pods []*cluster.Pod, before map[cluster.PodKey]int) (plan *engine.Plan, later map[string]int) {
	t.Helper()
	pools := manyPools(t, 1)
	plan = prepared(pools, engine.Settings{}).Plan(engine.Question{Snap: snap, Pools: pools, Pods: pods, Now: now, LeftOut: before,
		Settings: engine.Settings{Terms: fewTerms, Search: work.Second / 100}})
	later = map[string]int{}
	for i := range plan.Refused {
		if r := &plan.Refused[i]; postponed(r) {
			later[r.Pod.Namespace]++
		} else {
			t.Errorf("%s: %v", r.Pod.Name, r.Reasons)
		}
	}
	return plan, later
}

func TestNamespacesShareWhatTermsMayCost(t *testing.T) {
	spread := podsLike(3, func(i int, p *corev1.Pod) {
		p.Namespace = "spread"
		p.Spec.TopologySpreadConstraints = benchload.Spread(corev1.LabelTopologyZone, 1, p.Labels)
	})
	tooMuch := crowd("a", 2, 500)
	for _, p := range tooMuch {
		p.Spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution = []corev1.PreferredSchedulingTerm{{Weight: 1}}
	}
	for name, tc := range map[string]struct {
		pods        []*corev1.Pod
		least, most map[string]int // postponed
	}{
		"pods within the budget all get their place":   {crowd("a", 5, 100), nil, nil},
		"a namespace that is alone gets all there is":  {crowd("a", 60, 100), map[string]int{"a": 45}, map[string]int{"a": 55}},
		"two that ask for too much get half each":      {slices.Concat(crowd("a", 60, 100), crowd("b", 60, 100)), map[string]int{"a": 52, "b": 52}, map[string]int{"a": 58, "b": 58}},
		"who asks for little is not kept waiting":      {slices.Concat(crowd("a", 60, 100), crowd("b", 1, 100), spread), map[string]int{"a": 45}, map[string]int{"a": 58}},
		"plain pods have nothing to do with it":        {slices.Concat(crowd("a", 60, 100), crowd("c", 300, 0)), map[string]int{"a": 45}, map[string]int{"a": 55}},
		"plain pods of the same namespace neither":     {slices.Concat(crowd("a", 60, 100), podsLike(50, func(_ int, p *corev1.Pod) { p.Namespace = "a" })), map[string]int{"a": 45}, map[string]int{"a": 55}},
		"a pod that alone is too much is planned, too": {tooMuch, map[string]int{"a": 1}, map[string]int{"a": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			snap := snapshotOf(tc.pods)
			plan, later := askFew(t, snap, snap.Provisionable(), nil)
			for _, ns := range []string{"a", "b", "c", "spread"} {
				if later[ns] < tc.least[ns] || later[ns] > tc.most[ns] {
					t.Errorf("%d of namespace %s are postponed, want %d to %d", later[ns], ns, tc.least[ns], tc.most[ns])
				}
			}
			placed := len(plan.Refused)
			for _, o := range plan.Open {
				placed += len(o.Pods)
			}
			if placed != len(tc.pods) {
				t.Errorf("something was said of %d pods of %d", placed, len(tc.pods))
			}
		})
	}
}

// TestWhoIsPostponedComesNext asks again and again for pods that do not get any place: the first to come never keep out the others.
func TestWhoIsPostponedComesNext(t *testing.T) {
	snap := snapshotOf(crowd("a", 60, 100))
	reached := map[string]bool{}
	leftOut := map[cluster.PodKey]int{}
	for turns := 0; len(reached) < 60; turns++ {
		if turns == 12 {
			t.Fatalf("%d of 60 pods were reached in %d plans", len(reached), turns)
		}
		plan, _ := askFew(t, snap, snap.Provisionable(), leftOut)
		for _, r := range plan.Refused {
			leftOut[r.Pod.PodKey]++
		}
		for _, o := range plan.Open {
			for _, p := range o.Pods {
				reached[p.Name] = true
				delete(leftOut, p.PodKey)
			}
		}
	}
}

// TestWhoHasAPlaceKeepsItWhenPostponed has pods that were planned onto a node before. They come last, are not refused, and nobody is
// sent to their node meanwhile.
func TestWhoHasAPlaceKeepsItWhenPostponed(t *testing.T) {
	store := largeCluster(t, 2, 0, 0, 1)
	store.Update(func(d *cluster.Draft) {
		for _, p := range crowd("a", 60, 100) {
			d.PutPod(p)
		}
		for i := range 5 {
			d.Plan(cluster.PodKey{Namespace: "a", Name: fmt.Sprintf("a-%03d", i)}, "node-00000", now)
		}
		d.PutPod(benchload.Pending("plain", 1000, 1000))
	})
	snap := store.Snapshot()
	plan, later := askFew(t, snap, snap.Provisionable(), nil)
	if later["a"] < 40 || later["a"] > 50 {
		t.Errorf("%d are postponed", later["a"])
	}
	for _, r := range plan.Refused {
		if r.Pod.Name < "a-005" && strings.HasPrefix(r.Pod.Name, "a-") {
			t.Errorf("%s has a place and is refused: %v", r.Pod.Name, r.Reasons)
		}
	}
	for _, at := range plan.Place {
		if at.Node == "node-00000" {
			t.Errorf("%s is sent to the node of pods that were left out", at.Pod.Name)
		}
	}
	if !slices.ContainsFunc(plan.Place, func(at engine.Placement) bool { return at.Node == "node-00001" }) {
		t.Error("nobody is sent to the other node")
	}
}

// TestAnEndedQuestionIsNotSpelledOut gives up when nobody waits for the answer any more.
func TestAnEndedQuestionIsNotSpelledOut(t *testing.T) {
	pools := manyPools(t, 1)
	snap := snapshotOf(crowd("a", 20, 100))
	plan := engine.New().Plan(engine.Question{Snap: snap, Pools: pools, Pods: snap.Provisionable(), Now: now, Ended: func() bool { return true }})
	if len(plan.Open) > 0 || len(plan.Refused) != 20 || plan.Work > work.Second/1000 {
		t.Errorf("%d opened, %d refused, %d units of work", len(plan.Open), len(plan.Refused), plan.Work)
	}
}
