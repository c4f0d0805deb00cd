package crashtest

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"karpenter.sh/karpenter/internal/testing/fakecloud"
	"karpenter.sh/karpenter/internal/testing/sim"
)

// While a cloud takes its time to launch a machine, nobody knows yet which one it will be; but what all that it may become have in common
// is known. Pods that ask for that wait for it, those that it was made for and those that come meanwhile.
func TestASlowLaunchIsWaitedForByPodsThatAskForWhatItWillBe(t *testing.T) {
	for name, ask := range map[string]func(*corev1.Pod){
		"for nothing": func(*corev1.Pod) {},
		"for the system": func(p *corev1.Pod) {
			p.Spec.NodeSelector = map[string]string{corev1.LabelOSStable: "linux"}
		},
		"for a zone": func(p *corev1.Pod) {
			p.Spec.NodeSelector = map[string]string{corev1.LabelTopologyZone: "a"}
		},
		"for one of two zones": func(p *corev1.Pod) {
			p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
					{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: []string{"a", "b"}},
				}}},
			}}}
		},
		"to be in one zone": func(p *corev1.Pod) {
			p.Labels["app"] = "together"
			p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
				{TopologyKey: corev1.LabelTopologyZone, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "together"}}},
			}}}
		},
		"for a pool": func(p *corev1.Pod) {
			p.Spec.NodeSelector = map[string]string{"karpenter.sh/nodepool": "default"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			sim.Bubble(t, sim.Options{}, sim.KarpenterOptions{Provision: true}, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
				w.Cloud.SetFault(func(c fakecloud.Call) fakecloud.Fault {
					if c.Method == fakecloud.Launch {
						return fakecloud.Fault{Delay: 20 * time.Second}
					}
					return fakecloud.Fault{}
				})
				w.API.Put(sim.Pod("first", "1", sim.OwnedBy("web"), ask))
				time.Sleep(5 * time.Second)
				w.API.Put(sim.Pod("second", "100m", sim.OwnedBy("web"), ask))
				time.Sleep(2 * time.Minute)
				if n := w.Cloud.Launches(); n != 1 || running(w) != 2 {
					t.Errorf("%d machines were launched and %d of two pods run", n, running(w))
				}
			})
		})
	}
}
