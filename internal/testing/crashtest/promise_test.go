package crashtest

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/testing/fakecloud"
	"karpenter.sh/karpenter/internal/testing/memapi"
	"karpenter.sh/karpenter/internal/testing/sim"
)

var everything = sim.KarpenterOptions{Provision: true, Disrupt: true}

// TestAGapBetweenTwoPodsCostsNoNode has pods that follow each other, as those of a Deployment that is recreated or of a chain of jobs, at
// every phase of the loops' clocks.
func TestAGapBetweenTwoPodsCostsNoNode(t *testing.T) {
	for _, gap := range []time.Duration{300 * time.Millisecond, time.Second, 2 * time.Second, 3 * time.Second, 5 * time.Second, 10 * time.Second} {
		t.Run(gap.String(), func(t *testing.T) {
			for phase := range 10 {
				sim.Bubble(t, sim.Options{}, everything, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
					w.API.Put(sim.Pod("pod-0", "1"))
					time.Sleep(2*time.Minute + time.Duration(phase)*570*time.Millisecond)
					first := memapi.All[*v1.NodeClaim](w.API)[0].Name
					for i := range 3 {
						end(t, w, fmt.Sprintf("pod-%d", i))
						time.Sleep(gap)
						w.API.Put(sim.Pod(fmt.Sprintf("pod-%d", i+1), "1"))
						time.Sleep(20 * time.Second)
						if c, ok := sim.Find[*v1.NodeClaim](w, first); !ok || c.DeletionTimestamp != nil {
							t.Fatalf("phase %d: the node was lost in gap %d", phase, i)
						}
					}
				})
			}
		})
	}
}

// end deletes a pod and waits until it is gone.
func end(t *testing.T, w *sim.World, name string) {
	t.Helper()
	sim.Delete(t, w, sim.Get[*corev1.Pod](t, w, name))
	for {
		if _, ok := sim.Find[*corev1.Pod](w, name); !ok {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// TestAnEmptyNodeGoesWithinThirtySeconds measures from the end of the last pod to the deletion of the claim.
func TestAnEmptyNodeGoesWithinThirtySeconds(t *testing.T) {
	for phase := range 10 {
		sim.Bubble(t, sim.Options{}, everything, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
			w.API.Put(sim.Pod("pod", "1"))
			time.Sleep(2*time.Minute + time.Duration(phase)*570*time.Millisecond)
			claim := memapi.All[*v1.NodeClaim](w.API)[0].Name
			end(t, w, "pod")
			began := time.Now()
			for leaving(w, claim) == "" {
				time.Sleep(10 * time.Millisecond)
			}
			if took := time.Since(began); took < 15*time.Second || took > 30*time.Second {
				t.Errorf("phase %d: the node went after %v", phase, took)
			}
		})
	}
}

// leaving says how a claim is on its way out, "" if it is not.
func leaving(w *sim.World, claim string) string {
	switch c, ok := sim.Find[*v1.NodeClaim](w, claim); {
	case !ok:
		return "gone"
	case c.DeletionTimestamp != nil:
		return "being deleted"
	}
	return ""
}

// TestAPromiseOutlivesTheBoot has machines that take far longer to boot than anybody's timers, things that happen meanwhile, and a
// kube-scheduler that takes ten seconds to try again.
func TestAPromiseOutlivesTheBoot(t *testing.T) {
	const boot = 5 * time.Minute
	for name, tc := range map[string]struct {
		meanwhile func(*testing.T, *sim.World) // twenty seconds after the pod came
		keeps     bool                         // the node is kept for the pod
	}{
		"nothing": {func(*testing.T, *sim.World) {}, true},
		"the node drifts": {func(_ *testing.T, w *sim.World) {
			memapi.Edit(w.API, "", "default", func(p *v1.NodePool) {
				p.Spec.Template.Labels = map[string]string{"team": "b"}
				p.Generation++
			})
		}, true},
		"the pod is deleted":           {func(t *testing.T, w *sim.World) { sim.Delete(t, w, sim.Get[*corev1.Pod](t, w, "pod")) }, false},
		"the pod finds room elsewhere": {func(t *testing.T, w *sim.World) { sim.Delete(t, w, sim.Get[*corev1.Pod](t, w, "old")) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			slow := false
			options := sim.Options{Cloud: fakecloud.Options{Boot: func(cloud.Machine) time.Duration {
				if slow {
					return boot
				}
				return 2 * time.Second
			}}, Refuses: func(_ *corev1.Pod, n *corev1.Node) bool { return time.Since(readySince(n)) < 10*time.Second }}
			sim.Bubble(t, options, everything, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
				w.API.Put(sim.Pod("old", "1500m"))
				time.Sleep(time.Minute)
				old := memapi.All[*v1.NodeClaim](w.API)[0].Name
				slow = true
				w.API.Put(sim.Pod("pod", "1500m"))
				time.Sleep(20 * time.Second)
				claim := others(w, old)[0]
				tc.meanwhile(t, w)
				time.Sleep(boot)
				if tc.keeps {
					if p := sim.Get[*corev1.Pod](t, w, "pod"); p.Spec.NodeName == "" || p.Spec.NodeName != sim.Get[*v1.NodeClaim](t, w, claim).Status.NodeName {
						t.Fatalf("the pod is on %q; its node %s is %s", p.Spec.NodeName, claim, leaving(w, claim))
					}
					return
				}
				time.Sleep(20 * time.Second)
				if leaving(w, claim) == "" {
					t.Error("a node that nobody needs any more is kept")
				}
			})
		})
	}
}

// others names the claims but one.
func others(w *sim.World, but string) (names []string) {
	for _, c := range memapi.All[*v1.NodeClaim](w.API) {
		if c.Name != but {
			names = append(names, c.Name)
		}
	}
	return names
}

func readySince(n *corev1.Node) time.Time {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	return time.Now()
}

// TestNoPromiseOutlivesTenMinutesWithoutABinding has a pod that kube-scheduler never binds, for reasons that nobody knows.
func TestNoPromiseOutlivesTenMinutesWithoutABinding(t *testing.T) {
	options := sim.Options{Refuses: func(*corev1.Pod, *corev1.Node) bool { return true }}
	sim.Bubble(t, options, everything, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
		w.API.Put(sim.Pod("pod", "1500m"))
		time.Sleep(10 * time.Second)
		claim := memapi.All[*v1.NodeClaim](w.API)[0].Name
		time.Sleep(11 * time.Minute)
		if leaving(w, claim) == "" {
			t.Error("the node is kept for a pod that does not come")
		}
	})
}
