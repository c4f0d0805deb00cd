package crashtest

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/testing/fakecloud"
	"karpenter.sh/karpenter/internal/testing/memapi"
	"karpenter.sh/karpenter/internal/testing/sim"
)

// TestAPodThatIsMadeAnewHasItsSeat deletes the node of a pod of a ReplicaSet. Its successor, of another name, waits for a machine that takes
// twelve minutes to boot, while others want that machine too.
func TestAPodThatIsMadeAnewHasItsSeat(t *testing.T) {
	const boot = 12 * time.Minute
	like := func(name string, edits ...func(*corev1.Pod)) *corev1.Pod {
		return sim.Pod(name, "1500m", append([]func(*corev1.Pod){replica("web")}, edits...)...)
	}
	nobodys := func(p *corev1.Pod) { p.OwnerReferences = nil }
	for name, tc := range map[string]struct {
		between *corev1.Pod // comes when the pod is told to stop, nil for none
		restart bool        // Karpenter is stopped at that moment, and started ten seconds later
		bought  int         // machines, with the first one
	}{
		"nobody comes between": {nil, false, 2},
		"nobody comes between, and Karpenter forgets everything": {nil, true, 2},
		"one that is alike and nobody's takes it":                {like("forged", nobodys), false, 3},
		"one of another namespace does not":                      {like("other", func(p *corev1.Pod) { p.Namespace = "other" }), false, 3},
		"nor does one that asks for more":                        {sim.Pod("more", "1800m", replica("web")), false, 3},
		"nor one that never leaves its gate": {like("gated", func(p *corev1.Pod) {
			p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "never"}}
		}), false, 2},
	} {
		t.Run(name, func(t *testing.T) {
			var slow atomic.Bool
			options := sim.Options{Cloud: fakecloud.Options{Boot: func(cloud.Machine) time.Duration {
				if slow.Load() {
					return boot
				}
				return 2 * time.Second
			}}}
			sim.BubbleAlone(t, options, func(t *testing.T, w *sim.World) {
				bought := watchPurchases(t, w)
				w.With(t, everything, func(k *sim.Karpenter) {
					w.API.Put(like("web-1"))
					time.Sleep(time.Minute)
					slow.Store(true)
					sim.Delete(t, w, memapi.All[*v1.NodeClaim](w.API)[0])
					for sim.Get[*corev1.Pod](t, w, "web-1").DeletionTimestamp == nil {
						time.Sleep(10 * time.Millisecond)
					}
					if tc.between != nil {
						w.API.Put(tc.between.DeepCopy())
					}
					if !tc.restart {
						time.Sleep(time.Minute)
						sim.WantEvent(t, k, "Nominated", "web-again-1") // it is told at once, not when the machine is ready
						time.Sleep(boot)
					}
				})
				if tc.restart {
					time.Sleep(10 * time.Second)
					w.With(t, everything, func(*sim.Karpenter) { time.Sleep(boot + time.Minute) })
				}
				for _, p := range memapi.All[*corev1.Pod](w.API) {
					if p.Spec.NodeName == "" && len(p.Spec.SchedulingGates) == 0 {
						t.Errorf("pod %s/%s still waits", p.Namespace, p.Name)
					}
				}
				if got := bought.count(); got != tc.bought {
					t.Errorf("%d machines were bought, want %d", got, tc.bought)
				}
			})
		})
	}
}

// TestASeatOfAPodThatNeverBindsEnds has a successor that kube-scheduler never binds, on a machine that boots for longer than any promise.
func TestASeatOfAPodThatNeverBindsEnds(t *testing.T) {
	const boot = 12 * time.Minute
	var slow atomic.Bool
	options := sim.Options{
		Cloud: fakecloud.Options{Boot: func(cloud.Machine) time.Duration {
			if slow.Load() {
				return boot
			}
			return 2 * time.Second
		}},
		Refuses: func(p *corev1.Pod, _ *corev1.Node) bool { return strings.Contains(p.Name, "again") },
	}
	sim.Bubble(t, options, everything, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
		w.API.Put(sim.Pod("web-1", "1500m", replica("web")))
		time.Sleep(time.Minute)
		slow.Store(true)
		first := memapi.All[*v1.NodeClaim](w.API)[0]
		sim.Delete(t, w, first)
		time.Sleep(30 * time.Second)
		next := others(w, first.Name)
		if len(next) != 1 {
			t.Fatalf("claims %q, want the one that the successor waits for", next)
		}
		time.Sleep(boot)
		if leaving(w, next[0]) != "" {
			t.Error("the machine was not waited for")
		}
		time.Sleep(11 * time.Minute)
		if leaving(w, next[0]) == "" {
			t.Error("the machine is kept for a pod that never binds")
		}
	})
}
