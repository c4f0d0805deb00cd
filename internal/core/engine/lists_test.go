package engine

import (
	"fmt"
	"runtime"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
)

// TestListsOfThousandsOfValues bounds the work that a list of a user causes.
func TestListsOfThousandsOfValues(t *testing.T) {
	values := make([]string, 20_000)
	for i := range values {
		values[i] = fmt.Sprint("v", i)
	}
	long := corev1.NodeSelectorRequirement{Key: "team", Operator: corev1.NodeSelectorOpIn, Values: values}
	spread := []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: "team", WhenUnsatisfiable: corev1.DoNotSchedule,
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}}
	selects := func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{long}}}}}}
	}
	for name, tc := range map[string]struct {
		pool v1.NodeSelectorRequirementWithMinValues
		pod  func(p *corev1.Pod)
	}{
		"pods choose among them":          {v1.NodeSelectorRequirementWithMinValues{Key: "team", Operator: "Exists"}, selects},
		"a pool lists them":               {v1.NodeSelectorRequirementWithMinValues{Key: "team", Operator: "In", Values: values}, func(*corev1.Pod) {}},
		"a spread over what a pool lists": {v1.NodeSelectorRequirementWithMinValues{Key: "team", Operator: "In", Values: values}, func(p *corev1.Pod) { p.Spec.TopologySpreadConstraints = spread }},
		"a spread over what pods choose":  {v1.NodeSelectorRequirementWithMinValues{Key: "team", Operator: "Exists"}, func(p *corev1.Pod) { selects(p); p.Spec.TopologySpreadConstraints = spread }},
		"a selector of pods": {v1.NodeSelectorRequirementWithMinValues{Key: "team", Operator: "Exists"}, func(p *corev1.Pod) {
			p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
				TopologyKey: "zone", LabelSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "In", Values: values}}}}}}}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			in := dice{rng(1)}.small(0, 2)
			for i := range in.Pools {
				in.Pools[i].Pool = in.Pools[i].Pool.DeepCopy()
				in.Pools[i].Pool.Spec.Template.Spec.Requirements = append(in.Pools[i].Pool.Spec.Template.Spec.Requirements, tc.pool)
			}
			store := cluster.NewStore()
			store.Update(func(d *cluster.Draft) {
				for i := range 200 {
					p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("p", i), Labels: map[string]string{"app": "web"}}}
					p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Reason: corev1.PodReasonUnschedulable}}
					tc.pod(p)
					d.PutPod(p)
				}
			})
			in.Snap = store.Snapshot()
			in.Pods = in.Snap.Provisionable()
			e := New()
			b := e.compile(in)
			for _, k := range b.Problem.Keys {
				if len(k.Values) > 2100 {
					t.Errorf("%s has %d domains", k.Name, len(k.Values))
				}
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			if plan := New().Plan(in); len(plan.Refused) > 0 {
				t.Errorf("%d pods are refused: %v", len(plan.Refused), plan.Refused[0].Reasons)
			}
			runtime.ReadMemStats(&after)
			if got := (after.TotalAlloc - before.TotalAlloc) >> 20; got > 400 {
				t.Errorf("the plan took %d MB", got)
			}
		})
	}
}
