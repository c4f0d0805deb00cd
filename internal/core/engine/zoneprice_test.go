package engine

import (
	"fmt"
	"math/rand/v2"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
)

// zonePriced sells some types as spot in three zones, of which each is cheaper than the one before.
func (r dice) zonePriced(kinds int) *cloud.Catalog {
	cat := &cloud.Catalog{}
	for i := range kinds {
		it := r.instanceType(i)
		price := it.Offerings[0].Price
		it.Labels[corev1.LabelTopologyZone] = []string{"a", "b", "c"}
		it.Labels[v1.CapacityTypeLabelKey] = []string{v1.CapacityTypeSpot}
		it.Offerings = nil
		for zone, percent := range map[string]cloud.NanoUSD{"a": 100, "b": 80, "c": 50} {
			it.Offerings = append(it.Offerings, cloud.Offering{Price: price * percent / 100, Available: true,
				Labels: map[string]string{corev1.LabelTopologyZone: zone, v1.CapacityTypeLabelKey: v1.CapacityTypeSpot}})
		}
		cat.Types = append(cat.Types, it)
	}
	return cat
}

// A plan may tie a node to the cheapest zone, whose spot list costs less than the list of all zones. The bound must hold for it.
func TestNoPlanCostsLessThanItsBoundWhereZonesDifferInPrice(t *testing.T) {
	web := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	term := []corev1.PodAffinityTerm{{TopologyKey: corev1.LabelTopologyZone, LabelSelector: web}}
	rules := map[string]func(p *corev1.Pod){
		"together": func(p *corev1.Pod) {
			p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: term}}
		},
		"apart": func(p *corev1.Pod) {
			p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: term}}
		},
		"spread": func(p *corev1.Pod) {
			p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone,
				WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: web}}
		},
		"plain": func(*corev1.Pod) {},
	}
	for name, rule := range rules {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(60) {
				r := dice{rand.New(rand.NewPCG(seed, 7))}
				tied := 1 + r.IntN(3)
				in := r.small(tied+r.IntN(4), 1, func(i int, p *corev1.Pod) {
					if i < tied {
						p.Labels = map[string]string{"app": "web"}
						rule(p)
					}
				})
				in.Pools[0].Catalog = r.zonePriced(1 + r.IntN(4))
				plan := New().Plan(in)
				if bound := max(plan.VolumeBound, plan.ConfigBound); bound > plan.Cost {
					t.Errorf("seed %d: the plan costs %d and is proven to cost at least %d: %s", seed, plan.Cost, bound, fmt.Sprint(plan.Open))
				}
			}
		})
	}
}
