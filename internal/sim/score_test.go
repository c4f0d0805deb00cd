package sim

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const gib = 1 << 30

// The numbers are worked out by hand from the formulas of kube-scheduler's plugins.
func TestScoresOfNodeResources(t *testing.T) {
	for name, tc := range map[string]struct {
		has, used, pod  request
		least, balanced int64
	}{
		// 75 % of the CPU and 87.5 % of the memory are left: (75+87)/2. Uneven by 12.5 %: 93 after 100, 50+(50-7)/2.
		"an empty node": {request{4000, 8 * gib}, request{}, request{1000, gib}, 81, 71},
		// 25 % and 50 % are left: (25+50)/2. Before 75 % and 50 % were left, now the other way about: 87 and 87, 50+50/2.
		"one that gets no more even": {request{4000, 8 * gib}, request{1000, 4 * gib}, request{2000, 0}, 37, 75},
		// Nothing of the CPU is left, half of the memory: (0+50)/2. Before 50 % and 0 % were used (75), now 100 % and 50 % (75).
		"a full one": {request{2000, 4 * gib}, request{1000, 0}, request{1000, 2 * gib}, 25, 75},
		// 50 % and 50 % are left. Before 50 % and 0 % were used (75), now both 50 % (100): 50+(50+25)/2.
		"one that gets even": {request{2000, 4 * gib}, request{1000, 0}, request{0, 2 * gib}, 50, 87},
		// Only memory is known: all of it counts, and one thing is always even.
		"a node without CPU": {request{0, 4 * gib}, request{}, request{0, gib}, 75, 75},
	} {
		t.Run(name, func(t *testing.T) {
			after := tc.used.plus(tc.pod)
			if got := leastAllocated(after, tc.has); got != tc.least {
				t.Errorf("leastAllocated = %d, want %d", got, tc.least)
			}
			if got := balancedAllocation(tc.used, after, tc.has); got != tc.balanced {
				t.Errorf("balancedAllocation = %d, want %d", got, tc.balanced)
			}
		})
	}
}

func TestScoresOfTaints(t *testing.T) {
	for name, tc := range map[string]struct{ taints, most, want int64 }{
		"nobody has one":        {0, 0, 100},
		"none, others have one": {0, 1, 100},
		"the only one":          {1, 1, 0},
		"one of three":          {1, 3, 67},
		"two of three":          {2, 3, 34},
	} {
		t.Run(name, func(t *testing.T) {
			if got := welcome(tc.taints, tc.most); got != tc.want {
				t.Errorf("welcome = %d, want %d", got, tc.want)
			}
		})
	}
}

func TestSchedulerChooses(t *testing.T) {
	node := func(name string, edits ...func(*corev1.Node)) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		n.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi")}
		for _, edit := range edits {
			edit(n)
		}
		return n
	}
	tainted := func(effect corev1.TaintEffect) func(*corev1.Node) {
		return func(n *corev1.Node) {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "leave", Value: string(effect), Effect: effect})
		}
	}
	small := func(n *corev1.Node) { n.Status.Allocatable[corev1.ResourceCPU] = resource.MustParse("500m") }
	for name, tc := range map[string]struct {
		nodes []*corev1.Node
		runs  map[string][]string // CPUs of pods, by node
		want  string
	}{
		"the emptiest node": {[]*corev1.Node{node("a"), node("b")}, map[string][]string{"a": {"1"}}, "b"},
		"one that has no PreferNoSchedule taint, however full": {
			[]*corev1.Node{node("a", tainted(corev1.TaintEffectPreferNoSchedule)), node("b")}, map[string][]string{"b": {"1", "2"}}, "b"},
		"one with such a taint, if there is no other":            {[]*corev1.Node{node("a", tainted(corev1.TaintEffectPreferNoSchedule)), node("b", small)}, nil, "a"},
		"none with a taint that forbids it":                      {[]*corev1.Node{node("a", tainted(corev1.TaintEffectNoSchedule))}, nil, ""},
		"none that is full":                                      {[]*corev1.Node{node("a")}, map[string][]string{"a": {"3500m"}}, ""},
		"the emptier one, counting pods that say nothing at all": {[]*corev1.Node{node("a"), node("b")}, map[string][]string{"a": {"0", "0", "0"}, "b": {"100m"}}, "b"},
	} {
		t.Run(name, func(t *testing.T) {
			room := map[string]*free{}
			for _, n := range tc.nodes {
				room[n.Name] = newFree(n)
			}
			for name, cpus := range tc.runs {
				for _, cpu := range cpus {
					p := Pod("runs", cpu)
					if cpu == "0" {
						p.Spec.Containers[0].Resources.Requests = nil
					}
					room[name].take(p)
				}
			}
			if got := best(Pod("waits", "1"), room); got != tc.want {
				t.Errorf("best = %q, want %q", got, tc.want)
			}
		})
	}
}
