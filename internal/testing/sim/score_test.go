package sim

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

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
			room := &room{of: map[string]*free{}}
			for _, n := range tc.nodes {
				room.add(newFree(n))
			}
			for name, cpus := range tc.runs {
				for _, cpu := range cpus {
					p := Pod("runs", cpu)
					if cpu == "0" {
						p.Spec.Containers[0].Resources.Requests = nil
					}
					room.of[name].take(p)
				}
			}
			if got := best(Pod("waits", "1"), room); got != tc.want {
				t.Errorf("best = %q, want %q", got, tc.want)
			}
		})
	}
}
