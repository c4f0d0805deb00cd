package gc_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/testing/fakecloud"
	"karpenter.sh/karpenter/internal/testing/memapi"
	"karpenter.sh/karpenter/internal/testing/sim"
)

// heir is a pool that stands in for the Provisioner "web".
func heir(name string) *v1.NodePool {
	p := sim.Pool(name)
	p.Annotations = map[string]string{v1.ProvisionerAnnotationKey: "web"}
	p.Spec.Disruption.ConsolidateAfter = v1.MustParseNillableDuration(v1.Never)
	return p
}

// bequeathed is a cluster with machines of the Provisioner "web" and no claims, before a Karpenter starts. The pool "default" stands in for it.
func bequeathed(t *testing.T, machines int, test func(t *testing.T, w *sim.World)) {
	t.Helper()
	sim.BubbleAlone(t, sim.Options{}, func(t *testing.T, w *sim.World) {
		for i := range machines {
			name := fmt.Sprintf("old-%d", i)
			launch(t, w, sim.Claim(name, func(c *v1.NodeClaim) { c.UID = types.UID(name) }))
		}
		time.Sleep(2 * time.Minute)
		for i, m := range w.Cloud.Machines() {
			w.Cloud.Bequeath(m.ProviderID, "web")
			memapi.Edit(w.API, "", sim.NodeName(m), func(n *corev1.Node) {
				n.Finalizers, n.Spec.Taints = []string{v1.TerminationFinalizer}, nil
				n.Labels = map[string]string{v1.ProvisionerLabelKey: "web", v1.NodeInitializedLabelKey: "true"}
				n.OwnerReferences = []metav1.OwnerReference{{APIVersion: "karpenter.sh/v1alpha5", Kind: "Provisioner", Name: "web", UID: "web"}}
			})
			w.API.Put(sim.Pod(fmt.Sprintf("pod-%d", i), "100m", func(p *corev1.Pod) { p.Spec.NodeName = sim.NodeName(m) }))
		}
		w.API.Put(heir("default"))
		test(t, w)
	})
}

// untouched says what has happened to machines, Nodes and pods.
func untouched(w *sim.World, machines int) string {
	gone := ""
	for _, n := range memapi.All[*corev1.Node](w.API) {
		if n.DeletionTimestamp != nil || len(n.Spec.Taints) > 0 {
			gone += fmt.Sprintf("node %s: deleted %v, taints %v; ", n.Name, n.DeletionTimestamp, n.Spec.Taints)
		}
	}
	running := slices.DeleteFunc(w.Cloud.Machines(), func(m cloud.Machine) bool { return m.Deleting })
	if pods := len(memapi.All[*corev1.Pod](w.API)); len(running) != machines || pods != machines {
		gone += fmt.Sprintf("%d machines and %d pods, want %d", len(running), pods, machines)
	}
	return gone
}

func ready(w *sim.World) (n int) {
	for _, c := range memapi.All[*v1.NodeClaim](w.API) {
		if condition.IsTrue(c, condition.Ready) {
			n++
		}
	}
	return n
}

// first is the machine that sorts first, with its Node's name.
func first(w *sim.World) (cloud.Machine, string) {
	m := w.Cloud.Machines()[0]
	return m, sim.NodeName(m)
}

// Whatever is odd about a machine of a Provisioner: it goes on, and so do its pods. The other three get their claims.
func TestOddMachinesOfProvisionersAreLeftAlone(t *testing.T) {
	for name, tc := range map[string]struct {
		edit   func(w *sim.World)
		claims int
	}{
		"no pool stands in for the Provisioner": {func(w *sim.World) {
			memapi.Edit(w.API, "", "default", func(p *v1.NodePool) { p.Annotations = nil })
		}, 0},
		"a pool stands in for another": {func(w *sim.World) {
			memapi.Edit(w.API, "", "default", func(p *v1.NodePool) { p.Annotations[v1.ProvisionerAnnotationKey] = "batch" })
		}, 0},
		"two pools stand in for it": {func(w *sim.World) { w.API.Put(heir("second")) }, 0},
		"the pool is being deleted": {func(w *sim.World) {
			memapi.Edit(w.API, "", "default", func(p *v1.NodePool) {
				p.DeletionTimestamp, p.Finalizers = &metav1.Time{Time: time.Now()}, []string{"somebody/holds-it"}
			})
		}, 0},
		"two Nodes say that they are one machine": {func(w *sim.World) {
			m, _ := first(w)
			twin := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "twin", Labels: map[string]string{v1.ProvisionerLabelKey: "web"}}}
			twin.Spec.ProviderID = m.ProviderID
			w.API.Put(twin)
		}, 3},
		"its Node says nothing of the Provisioner": {func(w *sim.World) {
			_, node := first(w)
			memapi.Edit(w.API, "", node, func(n *corev1.Node) { n.Labels = nil })
		}, 3},
		"its Node is of another pool": {func(w *sim.World) {
			_, node := first(w)
			memapi.Edit(w.API, "", node, func(n *corev1.Node) { n.Labels[v1.NodePoolLabelKey] = "other" })
		}, 3},
		"a claim has the name of its Node": {func(w *sim.World) {
			_, node := first(w)
			w.API.Put(sim.Claim(node, func(c *v1.NodeClaim) {
				c.Spec.NodeClassRef.Group, c.Spec.NodeClassRef.Kind = "example.org", "Other"
			}))
		}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			bequeathed(t, 4, func(t *testing.T, w *sim.World) {
				tc.edit(w)
				w.With(t, sim.KarpenterOptions{}, func(k *sim.Karpenter) {
					time.Sleep(6 * time.Hour)
					if why := untouched(w, 4); why != "" {
						t.Error(why)
					}
					if _, node := first(w); tc.claims == 3 && name != "a claim has the name of its Node" {
						sim.WantEvent(t, k, "OrphanKept", node)
					}
					if got := ready(w); got != tc.claims || w.Cloud.Launches() != 4 {
						t.Errorf("%d claims are ready, %d launches; want %d claims, and no launch but the four", got, w.Cloud.Launches(), tc.claims)
					}
				})
			})
		})
	}
}

// A controller that dies, a cloud that says nothing or no: nothing is lost, and in the end every machine has one claim.
func TestTakingOverGoesOnAfterFaults(t *testing.T) {
	for name, fault := range map[string]func(fakecloud.Call) fakecloud.Fault{
		"the tags are refused":     only(fakecloud.Adopt, fakecloud.Fault{Err: errors.New("denied")}),
		"the answer is lost":       only(fakecloud.Adopt, fakecloud.Fault{Lost: true}),
		"the answer takes a while": only(fakecloud.Adopt, fakecloud.Fault{After: time.Minute}),
		"machines cannot be read":  only(fakecloud.Get, fakecloud.Fault{Err: errors.New("throttled")}),
		"they cannot be listed":    only(fakecloud.Inherited, fakecloud.Fault{Err: errors.New("throttled")}),
	} {
		t.Run(name, func(t *testing.T) {
			bequeathed(t, 4, func(t *testing.T, w *sim.World) {
				w.Cloud.SetFault(fault)
				for range 3 { // processes that die in the middle of it
					w.With(t, sim.KarpenterOptions{}, func(*sim.Karpenter) { time.Sleep(10*time.Second + 200*time.Millisecond) })
				}
				w.With(t, sim.KarpenterOptions{}, func(*sim.Karpenter) {
					time.Sleep(time.Hour)
					if why := untouched(w, 4); why != "" {
						t.Error("while it fails: " + why)
					}
				})
				w.Cloud.SetFault(nil)
				w.With(t, sim.KarpenterOptions{}, func(*sim.Karpenter) {
					time.Sleep(time.Hour)
					if why := untouched(w, 4); why != "" || ready(w) != 4 || len(memapi.All[*v1.NodeClaim](w.API)) != 4 {
						t.Errorf("%d of %d claims are ready; %s", ready(w), len(memapi.All[*v1.NodeClaim](w.API)), why)
					}
				})
			})
		})
	}
}

func only(method fakecloud.Method, f fakecloud.Fault) func(fakecloud.Call) fakecloud.Fault {
	return func(c fakecloud.Call) fakecloud.Fault {
		if c.Method == method {
			return f
		}
		return fakecloud.Fault{}
	}
}

// Somebody takes the claims away, finalizers and all, or a backup without them is restored: machines with pods are adopted again, not stopped.
func TestAdoptedMachinesWhoseClaimsAreTornAwayAreAdoptedAgain(t *testing.T) {
	bequeathed(t, 4, func(t *testing.T, w *sim.World) {
		w.With(t, sim.KarpenterOptions{}, func(*sim.Karpenter) {
			time.Sleep(time.Minute)
			if ready(w) != 4 {
				t.Fatalf("%d claims are ready, want four", ready(w))
			}
		})
		for _, n := range memapi.All[*corev1.Node](w.API) {
			memapi.Edit(w.API, "", n.Name, func(n *corev1.Node) { n.OwnerReferences = nil })
		}
		gone := memapi.All[*v1.NodeClaim](w.API)[0]
		memapi.Edit(w.API, "", gone.Name, func(c *v1.NodeClaim) { c.Finalizers = nil })
		w.API.Remove(gone)
		w.With(t, sim.KarpenterOptions{}, func(*sim.Karpenter) {
			time.Sleep(time.Hour)
			if why := untouched(w, 4); why != "" || ready(w) != 4 {
				t.Errorf("%d claims are ready; %s", ready(w), why)
			}
		})
	})
}

// What never joined is given the time that a machine of ours has, and then stopped; but not when most have no Node: then the Nodes are missing, not the
// machines.
func TestMachinesOfProvisionersWithoutNode(t *testing.T) {
	for name, tc := range map[string]struct{ alone, want int }{
		"one of four goes":      {1, 3},
		"three of four are all": {3, 4},
	} {
		t.Run(name, func(t *testing.T) {
			bequeathed(t, 4, func(t *testing.T, w *sim.World) {
				for _, m := range w.Cloud.Machines()[:tc.alone] {
					memapi.Edit(w.API, "", sim.NodeName(m), func(n *corev1.Node) { n.Finalizers = nil })
					w.API.Remove(sim.Get[*corev1.Node](t, w, sim.NodeName(m)))
				}
				w.With(t, sim.KarpenterOptions{}, func(*sim.Karpenter) {
					time.Sleep(25 * time.Minute)
					if n := len(w.Cloud.Machines()); n != 4 {
						t.Errorf("%d machines when they have had 25 minutes, want four", n)
					}
					time.Sleep(20 * time.Minute)
					if n := len(w.Cloud.Machines()); n != tc.want {
						t.Errorf("%d machines, want %d", n, tc.want)
					}
				})
			})
		})
	}
}

// A Node that the old controller was about to drain is drained to its end: nobody else would.
func TestANodeThatWasBeingDeletedWhenItWasTakenOver(t *testing.T) {
	bequeathed(t, 4, func(t *testing.T, w *sim.World) {
		_, node := first(w)
		sim.Delete(t, w, sim.Get[*corev1.Node](t, w, node))
		w.With(t, sim.KarpenterOptions{}, func(*sim.Karpenter) {
			time.Sleep(10 * time.Minute)
			if _, ok := sim.Find[*corev1.Node](w, node); ok || len(w.Cloud.Machines()) != 3 || ready(w) != 3 {
				t.Errorf("node there: %v, %d machines, %d claims; want three", ok, len(w.Cloud.Machines()), ready(w))
			}
		})
	})
}

// Deleting a pool that stands in, or a claim, is no accident: the nodes are drained, and their machines stop.
func TestAClaimOfAnAdoptedMachineEndsLikeOthers(t *testing.T) {
	bequeathed(t, 4, func(t *testing.T, w *sim.World) {
		w.With(t, sim.KarpenterOptions{}, func(*sim.Karpenter) {
			time.Sleep(time.Minute)
			sim.Delete(t, w, memapi.All[*v1.NodeClaim](w.API)[0])
			time.Sleep(time.Hour)
			if len(w.Cloud.Machines()) != 3 || ready(w) != 3 || len(memapi.All[*corev1.Node](w.API)) != 3 {
				t.Errorf("%d machines, %d claims; want three", len(w.Cloud.Machines()), ready(w))
			}
		})
	})
}

// Who may write claims may not take a machine of a Provisioner for a pool that does not stand in for it.
func TestNobodyTakesAMachineOfAnotherProvisioner(t *testing.T) {
	bequeathed(t, 4, func(t *testing.T, w *sim.World) {
		memapi.Edit(w.API, "", "default", func(p *v1.NodePool) { p.Annotations[v1.ProvisionerAnnotationKey] = "batch" })
		m, _ := first(w)
		w.With(t, sim.KarpenterOptions{}, func(*sim.Karpenter) {
			sim.Create(t, w, sim.Claim("thief", func(c *v1.NodeClaim) { c.Annotations = map[string]string{v1.AdoptsAnnotationKey: m.ProviderID} }))
			time.Sleep(time.Hour)
			if why := untouched(w, 4); why != "" || ready(w) != 0 {
				t.Errorf("%d claims are ready; %s", ready(w), why)
			}
		})
	})
}
