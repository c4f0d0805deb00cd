package claim_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/drift"
	"karpenter.sh/karpenter/internal/core/lifecycle"
	"karpenter.sh/karpenter/internal/testing/fakecloud"
	"karpenter.sh/karpenter/internal/testing/memapi"
	"karpenter.sh/karpenter/internal/testing/sim"
)

func TestLaunchTrouble(t *testing.T) {
	t.Run("without capacity the claim is deleted, and an event says why", func(t *testing.T) {
		inWorld(t, sim.Options{}, func(t *testing.T, w *sim.World, k *sim.Karpenter) {
			w.Cloud.SetStock(fakecloud.Where{}, 0)
			sim.Create(t, w, sim.Claim("c"))
			time.Sleep(5 * time.Second)
			sim.WantNothing(t, w)
			sim.WantEvent(t, k, "InsufficientCapacityError", "c")
		})
	})
	t.Run("without capacity the pods that wait for the claim are told, and no others", func(t *testing.T) {
		inWorld(t, sim.Options{}, func(t *testing.T, w *sim.World, k *sim.Karpenter) {
			w.Cloud.SetStock(fakecloud.Where{}, 0)
			at := map[string]string{"a": "c", "ended": "c", "bound": "c", "elsewhere": "other"}
			for _, name := range slices.Sorted(maps.Keys(at)) {
				pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
				sim.Create(t, w, pod)
			}
			time.Sleep(time.Second)
			k.Store.Update(func(d *cluster.Draft) {
				for name, target := range at {
					d.Plan(cluster.PodKey{Namespace: "default", Name: name}, target, time.Now())
				}
			})
			memapi.Edit(w.API, "default", "ended", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
			memapi.Edit(w.API, "default", "bound", func(p *corev1.Pod) { p.Spec.NodeName = "n" })
			time.Sleep(time.Second)
			sim.Create(t, w, sim.Claim("c"))
			time.Sleep(5 * time.Second)
			sim.WantEvent(t, k, "InsufficientCapacityError", "a")
			for _, e := range k.Events() {
				if e.Reason == "InsufficientCapacityError" && e.InvolvedObject.Name != "a" && e.InvolvedObject.Name != "c" {
					t.Errorf("%s is told, which does not wait for the claim", e.InvolvedObject.Name)
				}
			}
		})
	})
	t.Run("a node class that is not there deletes the claim", func(t *testing.T) {
		inWorld(t, sim.Options{}, func(t *testing.T, w *sim.World, k *sim.Karpenter) {
			defer func() { sim.WantEvent(t, k, "NodeClassNotReady", "c") }()
			sim.Create(t, w, sim.Claim("c", func(c *v1.NodeClaim) {
				c.Spec.NodeClassRef = &v1.NodeClassReference{Group: fakecloud.NodeClass.Group, Kind: fakecloud.NodeClass.Kind, Name: "missing"}
			}))
			time.Sleep(5 * time.Second)
			sim.WantNothing(t, w)
		})
	})
	t.Run("a claim of somebody else's node class is never touched", func(t *testing.T) {
		inWorld(t, sim.Options{}, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
			sim.Create(t, w, sim.Claim("c", func(c *v1.NodeClaim) {
				c.Spec.NodeClassRef = &v1.NodeClassReference{Group: "other", Kind: "Class", Name: "default"}
				c.Spec.ExpireAfter = v1.After(time.Minute)
			}))
			time.Sleep(time.Hour)
			if c := sim.Get[*v1.NodeClaim](t, w, "c"); len(c.Finalizers) > 0 || len(c.Status.Conditions) > 0 || c.ResourceVersion == "" || len(w.Cloud.Machines()) > 0 {
				t.Errorf("the claim was touched: %+v", c)
			}
		})
	})
	t.Run("a refused launch is tried again, with its reason on the claim", func(t *testing.T) {
		inWorld(t, sim.Options{}, func(t *testing.T, w *sim.World, k *sim.Karpenter) {
			var mended atomic.Bool
			var calls atomic.Int64
			w.Cloud.SetFault(func(c fakecloud.Call) fakecloud.Fault {
				if c.Method == fakecloud.Launch && !mended.Load() {
					calls.Add(1)
					return fakecloud.Fault{Err: &cloud.LaunchError{Reason: "Denied", Message: "allow it", Err: errors.New("403")}}
				}
				return fakecloud.Fault{}
			})
			sim.Create(t, w, sim.Claim("c"))
			time.Sleep(time.Second)
			sim.WantEvent(t, k, "LaunchFailed", "c")
			time.Sleep(59 * time.Second)
			launched := condition.Get(sim.Get[*v1.NodeClaim](t, w, "c"), v1.ConditionTypeLaunched)
			if launched.Status != "Unknown" || launched.Reason != "Denied" || launched.Message != "allow it" {
				t.Errorf("Launched = %+v", launched)
			}
			if n := calls.Load(); n < 4 || n > 8 {
				t.Errorf("%d launches in a minute, want a few, further and further apart", n)
			}
			mended.Store(true)
			time.Sleep(90 * time.Second)
			if !condition.IsTrue(sim.Get[*v1.NodeClaim](t, w, "c"), condition.Ready) {
				t.Error("the claim did not become ready")
			}
		})
	})
	t.Run("a claim that cannot be launched for five minutes is deleted", func(t *testing.T) {
		inWorld(t, sim.Options{}, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
			w.Cloud.SetFault(func(c fakecloud.Call) fakecloud.Fault { return fakecloud.Fault{Err: errors.New("boom")} })
			sim.Create(t, w, sim.Claim("c"))
			time.Sleep(4*time.Minute + 55*time.Second)
			sim.Get[*v1.NodeClaim](t, w, "c")
			time.Sleep(10 * time.Second)
			sim.WantNothing(t, w)
		})
	})
	t.Run("a lost answer starts one machine", func(t *testing.T) {
		inWorld(t, sim.Options{}, func(t *testing.T, w *sim.World, k *sim.Karpenter) {
			lost := 0
			w.Cloud.SetFault(func(c fakecloud.Call) fakecloud.Fault {
				if c.Method != fakecloud.Launch || lost == 2 {
					return fakecloud.Fault{}
				}
				lost++
				return fakecloud.Fault{Lost: true}
			})
			sim.Create(t, w, sim.Claim("c"))
			time.Sleep(time.Minute)
			if n := len(w.Cloud.Machines()); n != 1 || !condition.IsTrue(sim.Get[*v1.NodeClaim](t, w, "c"), condition.Ready) {
				t.Errorf("%d machines, claim %v", n, sim.Get[*v1.NodeClaim](t, w, "c").Status.Conditions)
			}
			if got := testutil.ToFloat64(k.Metrics.MachinesOrphaned.WithLabelValues("adopted")); got != 1 {
				t.Errorf("%v machines were adopted, want one", got)
			}
		})
	})
	t.Run("a machine whose claim is deleted while the answer is lost is found and stopped", func(t *testing.T) {
		inWorld(t, sim.Options{}, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
			time.Sleep(20 * time.Minute) // garbage collection has become slow
			w.Cloud.SetFault(func(c fakecloud.Call) fakecloud.Fault { return fakecloud.Fault{Lost: c.Method == fakecloud.Launch} })
			sim.Create(t, w, sim.Claim("c"))
			time.Sleep(500 * time.Millisecond)
			sim.Delete(t, w, sim.Get[*v1.NodeClaim](t, w, "c"))
			time.Sleep(time.Minute)
			sim.WantNothing(t, w)
		})
	})
}

// A machine that ends while it boots is not waited for, where the cloud says so. While it says nothing, or may not show the machine yet, the claim stays.
func TestAMachineThatEndsBeforeItsNodeJoins(t *testing.T) {
	never := sim.Options{Joins: func(cloud.Machine) bool { return false }, Cloud: fakecloud.Options{Shutdown: time.Hour}}
	for name, tc := range map[string]struct {
		end   func(w *sim.World, id string)
		fault fakecloud.Fault // of looking for it
		after time.Duration   // when the claim is gone
	}{
		"it is gone":                        {func(w *sim.World, id string) { w.Cloud.Vanish(id) }, fakecloud.Fault{}, 2*time.Minute + 10*time.Second},
		"it is stopping":                    {func(w *sim.World, id string) { _ = w.Cloud.Terminate(context.Background(), id) }, fakecloud.Fault{}, 2*time.Minute + 10*time.Second},
		"it goes on booting":                {func(*sim.World, string) {}, fakecloud.Fault{}, 15*time.Minute + 10*time.Second},
		"the cloud cannot tell that it is":  {func(w *sim.World, id string) { w.Cloud.Vanish(id) }, fakecloud.Fault{Err: errors.New("throttled")}, 15*time.Minute + 10*time.Second},
		"the cloud is silent":               {func(w *sim.World, id string) { w.Cloud.Vanish(id) }, fakecloud.Fault{Delay: time.Hour}, 15*time.Minute + 20*time.Second},
		"it is gone after a minute or more": {func(w *sim.World, id string) { time.AfterFunc(4*time.Minute, func() { w.Cloud.Vanish(id) }) }, fakecloud.Fault{}, 4*time.Minute + 50*time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, never, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
				sim.Create(t, w, sim.Claim("c"))
				time.Sleep(5 * time.Second)
				tc.end(w, sim.Get[*v1.NodeClaim](t, w, "c").Status.ProviderID)
				asked := 0
				w.Cloud.SetFault(func(c fakecloud.Call) fakecloud.Fault {
					if c.Method != fakecloud.Get {
						return fakecloud.Fault{}
					}
					asked++
					return tc.fault
				})
				time.Sleep(tc.after - 45*time.Second)
				if c, ok := sim.Find[*v1.NodeClaim](w, "c"); !ok || c.DeletionTimestamp != nil {
					t.Fatal("the claim was given up too early")
				}
				time.Sleep(40 * time.Second)
				if c, ok := sim.Find[*v1.NodeClaim](w, "c"); ok && c.DeletionTimestamp == nil {
					t.Errorf("the claim is not given up, want it to be after %s", tc.after)
				}
				if most := int(tc.after/(30*time.Second)) + 1; asked > most {
					t.Errorf("the cloud was asked %d times, want at most %d", asked, most)
				}
			})
		})
	}
}

// What ends every machine while it boots is not answered by one machine after the other.
func TestMachinesThatAllEndWhileTheyBootAreTrouble(t *testing.T) {
	never := sim.Options{Joins: func(cloud.Machine) bool { return false }}
	inWorld(t, never, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
		time.Sleep(time.Second)
		for i, name := range []string{"c1", "c2"} {
			sim.Create(t, w, sim.Claim(name, func(c *v1.NodeClaim) {
				c.Annotations = maps.Clone(sim.Get[*v1.NodePool](t, w, "default").Annotations) // of the pool's template
			}))
			time.Sleep(5 * time.Second)
			w.Cloud.Vanish(sim.Get[*v1.NodeClaim](t, w, name).Status.ProviderID)
			time.Sleep(3 * time.Minute)
			p := sim.Get[*v1.NodePool](t, w, "default")
			if got := lifecycle.TroubleOf(p).Failures; got != i+1 {
				t.Errorf("%d failures, want %d", got, i+1)
			}
			if unhealthy := condition.IsFalse(p, v1.ConditionTypeNodeRegistrationHealthy); unhealthy != (i == 1) {
				t.Errorf("after machine %d registration is unhealthy: %v", i+1, unhealthy)
			}
		}
	})
}

// Who deletes claims because their machines have ended says something about the template, if no node ever joined; who stops machines that boot does not.
func TestClaimsThatAreDeletedBecauseTheirMachinesEnded(t *testing.T) {
	joins, never := sim.Options{}, sim.Options{Joins: func(cloud.Machine) bool { return false }, Cloud: fakecloud.Options{Shutdown: time.Hour}}
	for name, tc := range map[string]struct {
		world   sim.Options
		end     func(w *sim.World, id string)
		failing bool
	}{
		"the machine is gone":           {never, func(w *sim.World, id string) { w.Cloud.Vanish(id) }, true},
		"the machine is stopping":       {never, func(w *sim.World, id string) { _ = w.Cloud.Terminate(context.Background(), id) }, true},
		"the machine runs":              {never, func(*sim.World, string) {}, false},
		"the machine was a node before": {joins, func(w *sim.World, id string) { w.Cloud.Vanish(id) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, tc.world, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
				time.Sleep(time.Second)
				for i, name := range []string{"c1", "c2"} {
					sim.Create(t, w, sim.Claim(name, func(c *v1.NodeClaim) {
						c.Annotations = maps.Clone(sim.Get[*v1.NodePool](t, w, "default").Annotations)
					}))
					time.Sleep(time.Minute)
					c := sim.Get[*v1.NodeClaim](t, w, name)
					tc.end(w, c.Status.ProviderID)
					sim.Delete(t, w, c)
					time.Sleep(5 * time.Minute)
					p := sim.Get[*v1.NodePool](t, w, "default")
					if got := lifecycle.TroubleOf(p).Failures; tc.failing && got != i+1 || !tc.failing && got != 0 {
						t.Errorf("%d failures after machine %d", got, i+1)
					}
					if unhealthy := condition.IsFalse(p, v1.ConditionTypeNodeRegistrationHealthy); unhealthy != (tc.failing && i == 1) {
						t.Errorf("after machine %d registration is unhealthy: %v", i+1, unhealthy)
					}
				}
			})
		})
	}
}

func TestRegistrationTrouble(t *testing.T) {
	t.Run("a machine that never joins is given back after fifteen minutes", func(t *testing.T) {
		never := sim.Options{Joins: func(cloud.Machine) bool { return false }}
		inWorld(t, never, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
			sim.Create(t, w, sim.Claim("c"))
			time.Sleep(14 * time.Minute)
			if len(w.Cloud.Machines()) != 1 {
				t.Error("the machine went too early")
			}
			time.Sleep(2 * time.Minute)
			sim.WantNothing(t, w)
		})
	})
	t.Run("a node that joins without the taint is reported", func(t *testing.T) {
		inWorld(t, sim.Options{NoTaint: true}, func(t *testing.T, w *sim.World, k *sim.Karpenter) {
			sim.Create(t, w, sim.Claim("c"))
			time.Sleep(time.Minute)
			sim.WantEvent(t, k, "UnregisteredTaintMissing", "c")
			if !condition.IsTrue(sim.Get[*v1.NodeClaim](t, w, "c"), condition.Ready) {
				t.Error("the claim is not ready")
			}
		})
	})
	t.Run("two nodes of one provider id stop the registration", func(t *testing.T) {
		inWorld(t, sim.Options{}, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
			sim.Create(t, w, sim.Claim("c"))
			time.Sleep(time.Second)
			c := sim.Get[*v1.NodeClaim](t, w, "c")
			twin := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a-twin"}}
			twin.Spec.ProviderID = c.Status.ProviderID
			twin2 := twin.DeepCopy()
			twin2.Name = "b-twin"
			w.API.Put(twin)
			w.API.Put(twin2)
			time.Sleep(10 * time.Second)
			if got := condition.Get(sim.Get[*v1.NodeClaim](t, w, "c"), v1.ConditionTypeRegistered); got.Status != "True" && got.Message != "2 nodes have the claim's provider id" {
				t.Errorf("Registered = %+v", got)
			}
		})
	})
	t.Run("two failures make the pool's registration unhealthy, and successes heal it", func(t *testing.T) {
		joins := false
		o := sim.Options{Joins: func(cloud.Machine) bool { return joins }}
		inWorld(t, o, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
			healthy := func() string {
				return string(condition.Get(sim.Get[*v1.NodePool](t, w, "default"), v1.ConditionTypeNodeRegistrationHealthy).Status)
			}
			sim.Create(t, w, sim.Claim("c1"))
			time.Sleep(16 * time.Minute)
			first := healthy()
			sim.Create(t, w, sim.Claim("c2"))
			time.Sleep(16 * time.Minute)
			second := healthy()
			joins = true
			var after []string
			for _, name := range []string{"c3", "c4", "c5"} {
				sim.Create(t, w, sim.Claim(name))
				time.Sleep(time.Minute)
				after = append(after, healthy())
			}
			if got, want := strings.Join(append([]string{first, second}, after...), " "), "Unknown False False False True"; got != want {
				t.Errorf("health = %s, want %s", got, want)
			}
		})
	})
}

func TestExpiry(t *testing.T) {
	inWorld(t, sim.Options{}, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
		sim.Create(t, w, sim.Claim("old", func(c *v1.NodeClaim) { c.Spec.ExpireAfter = v1.After(time.Hour) }))
		sim.Create(t, w, sim.Claim("never", func(c *v1.NodeClaim) { c.Spec.ExpireAfter = v1.MustParseNillableDuration("Never") }))
		time.Sleep(59 * time.Minute)
		sim.Get[*v1.NodeClaim](t, w, "old")
		time.Sleep(2 * time.Minute)
		if n := len(memapi.All[*v1.NodeClaim](w.API)); n != 1 || len(w.Cloud.Machines()) != 1 {
			t.Errorf("%d claims and %d machines after an hour, want one of each", n, len(w.Cloud.Machines()))
		}
		sim.Get[*v1.NodeClaim](t, w, "never")
	})
}

func TestExpiryIsForceful(t *testing.T) {
	t.Run("it waits for no pod and no budget, and is counted", func(t *testing.T) {
		inWorld(t, sim.Options{}, func(t *testing.T, w *sim.World, k *sim.Karpenter) {
			memapi.Edit(w.API, "", "default", func(p *v1.NodePool) { p.Spec.Disruption.Budgets = []v1.Budget{{Nodes: "0"}} })
			sim.Create(t, w, sim.Claim("c", func(c *v1.NodeClaim) { c.Spec.ExpireAfter = v1.After(time.Hour) }))
			time.Sleep(30 * time.Second)
			memapi.Edit(w.API, "", sim.Get[*v1.NodeClaim](t, w, "c").Status.NodeName, func(n *corev1.Node) {
				metav1.SetMetaDataAnnotation(&n.ObjectMeta, v1.DoNotDisruptAnnotationKey, "true")
			})
			w.API.Put(sim.Pod("p", "1", func(p *corev1.Pod) { p.Annotations = map[string]string{v1.DoNotDisruptAnnotationKey: "true"} }))
			time.Sleep(time.Hour)
			if sim.Get[*v1.NodeClaim](t, w, "c").DeletionTimestamp == nil {
				t.Error("the claim outlives its time")
			}
			claim := sim.Get[*v1.NodeClaim](t, w, "c")
			labels := []string{"expired", "default", claim.Labels[v1.CapacityTypeLabelKey], "", "graceful"}
			claims, pods := testutil.ToFloat64(k.Metrics.NodeClaimsDisrupted.WithLabelValues(labels...)), testutil.ToFloat64(k.Metrics.PodsDisruptionInitiated.WithLabelValues(labels...))
			if claims != 1 || pods != 1 {
				t.Errorf("%v claims and %v pods are counted as expired, want one of each", claims, pods)
			}
		})
	})
	t.Run("it is the age of the claim that counts, registered or not", func(t *testing.T) {
		inWorld(t, sim.Options{Joins: func(cloud.Machine) bool { return false }}, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
			sim.Create(t, w, sim.Claim("c", func(c *v1.NodeClaim) { c.Spec.ExpireAfter = v1.After(5 * time.Minute) }))
			time.Sleep(4*time.Minute + 50*time.Second)
			sim.Get[*v1.NodeClaim](t, w, "c")
			time.Sleep(time.Minute)
			if n := len(memapi.All[*v1.NodeClaim](w.API)); n != 0 {
				t.Errorf("%d claims, want none", n)
			}
		})
	})
}

func TestConsolidatable(t *testing.T) {
	inWorld(t, sim.Options{}, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
		memapi.Edit(w.API, "", "default", func(p *v1.NodePool) { p.Spec.Disruption.ConsolidateAfter = v1.After(time.Minute) })
		sim.Create(t, w, sim.Claim("c"))
		is := func() bool {
			return condition.IsTrue(sim.Get[*v1.NodeClaim](t, w, "c"), v1.ConditionTypeConsolidatable)
		}
		time.Sleep(50 * time.Second)
		early := is()
		time.Sleep(30 * time.Second)
		quiet := is()
		w.API.Put(sim.Pod("p", "1"))
		time.Sleep(5 * time.Second)
		bound := is()
		time.Sleep(70 * time.Second)
		later := is()
		memapi.Edit(w.API, "", "default", func(p *v1.NodePool) { p.Spec.Disruption.ConsolidateAfter = v1.MustParseNillableDuration("Never") })
		time.Sleep(time.Second)
		never := is()
		if early || !quiet || bound || !later || never {
			t.Errorf("consolidatable: early %v, quiet %v, just bound %v, quiet again %v, never %v", early, quiet, bound, later, never)
		}
		if sim.Get[*v1.NodeClaim](t, w, "c").Status.LastPodEventTime.IsZero() {
			t.Error("the pod's binding was not written down")
		}
	})
}

func TestDrift(t *testing.T) {
	reason := func(t *testing.T, w *sim.World) string {
		c := condition.Get(sim.Get[*v1.NodeClaim](t, w, "c"), v1.ConditionTypeDrifted)
		if c == nil {
			return ""
		}
		return c.Reason
	}
	// start makes a claim that carries the pool's hash, as the provisioner would.
	start := func(t *testing.T, w *sim.World) {
		stamp := drift.PoolStamp(sim.Get[*v1.NodePool](t, w, "default"))
		sim.Create(t, w, sim.Claim("c", func(c *v1.NodeClaim) {
			c.Annotations = map[string]string{v1.NodePoolHashAnnotationKey: stamp.Hash, v1.NodePoolHashVersionAnnotationKey: stamp.Version}
		}))
		time.Sleep(10 * time.Second)
		if got := reason(t, w); got != "" {
			t.Fatalf("a fresh claim has drifted: %s", got)
		}
	}
	edit := func(w *sim.World, change func(*v1.NodePool)) {
		memapi.Edit(w.API, "", "default", func(p *v1.NodePool) { p.Generation++; change(p) })
	}
	for name, tc := range map[string]struct {
		change func(*sim.World)
		wait   time.Duration
		want   string
	}{
		"a new label of the template is static drift": {func(w *sim.World) {
			edit(w, func(p *v1.NodePool) { p.Spec.Template.Labels = map[string]string{"team": "b"} })
		}, time.Second, "NodePoolDrifted"},
		"a requirement that the labels no longer satisfy is drift": {func(w *sim.World) {
			edit(w, func(p *v1.NodePool) {
				p.Spec.Template.Spec.Requirements = []v1.NodeSelectorRequirementWithMinValues{{Key: corev1.LabelInstanceTypeStable, Operator: "In", Values: []string{"large"}}}
			})
		}, time.Second, "RequirementsDrifted"},
		"a requirement that they do satisfy is none": {func(w *sim.World) {
			edit(w, func(p *v1.NodePool) {
				p.Spec.Template.Spec.Requirements = []v1.NodeSelectorRequirementWithMinValues{{Key: corev1.LabelInstanceTypeStable, Operator: "In", Values: []string{"large", "small"}}}
			})
		}, time.Second, ""},
		"behaviour of the pool is none": {func(w *sim.World) {
			edit(w, func(p *v1.NodePool) { p.Spec.Disruption.ConsolidateAfter = v1.After(time.Hour) })
		}, time.Second, ""},
		"what the provider says is drift, within five minutes": {func(w *sim.World) {
			w.Cloud.SetDrift("c", "AMIDrift")
		}, 5*time.Minute + time.Second, "AMIDrift"},
		"what the provider says is asked again when the node class resolves to something else": {func(w *sim.World) {
			w.Cloud.SetDrift("c", "AMIDrift")
			memapi.Edit(w.API, "", "default", func(c *awsv1.EC2NodeClass) { c.Status.AMIs = []awsv1.AMI{{ID: "ami-new"}} })
		}, time.Second, "AMIDrift"},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, sim.Options{}, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
				start(t, w)
				tc.change(w)
				time.Sleep(tc.wait)
				if got := reason(t, w); got != tc.want {
					t.Errorf("drift = %q, want %q", got, tc.want)
				}
			})
		})
	}
	t.Run("the first reason that holds is told, what costs least before what the provider says", func(t *testing.T) {
		inWorld(t, sim.Options{}, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
			start(t, w)
			w.Cloud.SetDrift("c", "AMIDrift")
			edit(w, func(p *v1.NodePool) {
				p.Spec.Template.Spec.Requirements = []v1.NodeSelectorRequirementWithMinValues{{Key: corev1.LabelInstanceTypeStable, Operator: "In", Values: []string{"large"}}}
			})
			time.Sleep(time.Second)
			requirements := reason(t, w)
			edit(w, func(p *v1.NodePool) { p.Spec.Template.Labels = map[string]string{"team": "b"} })
			time.Sleep(time.Second)
			if got := reason(t, w); requirements != "RequirementsDrifted" || got != "NodePoolDrifted" {
				t.Errorf("drift = %q, then %q", requirements, got)
			}
		})
	})
	t.Run("a claim that outlives its pool drifts no more", func(t *testing.T) {
		inWorld(t, sim.Options{}, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
			start(t, w)
			memapi.Edit(w.API, "", "c", func(c *v1.NodeClaim) { c.OwnerReferences = nil })
			w.API.Remove(sim.Get[*v1.NodePool](t, w, "default"))
			w.Cloud.SetDrift("c", "AMIDrift")
			time.Sleep(10 * time.Minute)
			if got := reason(t, w); got != "" {
				t.Errorf("drift = %q of a pool that is gone", got)
			}
		})
	})
	discontinue := func(w *sim.World) {
		memapi.Edit(w.API, "", "c", func(c *v1.NodeClaim) { c.Labels[corev1.LabelInstanceTypeStable] = "discontinued" })
	}
	t.Run("a type that is sold no more is drift once the claim is an hour old", func(t *testing.T) {
		inWorld(t, sim.Options{}, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
			start(t, w)
			discontinue(w)
			time.Sleep(59 * time.Minute)
			young := reason(t, w)
			time.Sleep(7 * time.Minute)
			if old := reason(t, w); young != "" || old != "InstanceTypeNotFound" {
				t.Errorf("drift = %q after an hour, then %q", young, old)
			}
		})
	})
	t.Run("a type that was seen is not looked for again within half an hour", func(t *testing.T) {
		inWorld(t, sim.Options{}, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
			start(t, w)
			time.Sleep(66 * time.Minute)
			discontinue(w)
			time.Sleep(20 * time.Minute)
			soon := reason(t, w)
			time.Sleep(20 * time.Minute)
			if later := reason(t, w); soon != "" || later != "InstanceTypeNotFound" {
				t.Errorf("drift = %q within half an hour, then %q", soon, later)
			}
		})
	})
	t.Run("drift ends when what caused it does", func(t *testing.T) {
		inWorld(t, sim.Options{}, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
			start(t, w)
			edit(w, func(p *v1.NodePool) { p.Spec.Template.Labels = map[string]string{"team": "b"} })
			time.Sleep(time.Second)
			edit(w, func(p *v1.NodePool) { p.Spec.Template.Labels = nil })
			time.Sleep(time.Second)
			if got := reason(t, w); got != "" {
				t.Errorf("drift = %q after the pool was changed back", got)
			}
		})
	})
}

func TestConsistency(t *testing.T) {
	inWorld(t, sim.Options{}, func(t *testing.T, w *sim.World, k *sim.Karpenter) {
		sim.Create(t, w, sim.Claim("c"))
		time.Sleep(11 * time.Minute)
		c := sim.Get[*v1.NodeClaim](t, w, "c")
		if !condition.IsTrue(c, v1.ConditionTypeConsistentStateFound) {
			t.Errorf("conditions = %v, want ConsistentStateFound True", c.Status.Conditions)
		}
		memapi.Edit(w.API, "", c.Status.NodeName, func(n *corev1.Node) {
			n.Status.Capacity[corev1.ResourceCPU] = resource.MustParse("1")
		})
		time.Sleep(10 * time.Minute)
		if !condition.IsFalse(sim.Get[*v1.NodeClaim](t, w, "c"), v1.ConditionTypeConsistentStateFound) {
			t.Error("a node with half of its CPUs is consistent")
		}
		sim.WantEvent(t, k, "FailedConsistencyCheck", "c")
	})
}

func TestANodeThatLiesAboutItsSizeIsNamed(t *testing.T) {
	inWorld(t, sim.Options{}, func(t *testing.T, w *sim.World, k *sim.Karpenter) {
		sim.Create(t, w, sim.Claim("c"))
		time.Sleep(11 * time.Minute)
		c := sim.Get[*v1.NodeClaim](t, w, "c")
		memapi.Edit(w.API, "", c.Status.NodeName, func(n *corev1.Node) {
			n.Status.Allocatable[corev1.ResourceCPU] = resource.MustParse("2000")
		})
		time.Sleep(10 * time.Minute)
		found := condition.Get(sim.Get[*v1.NodeClaim](t, w, "c"), v1.ConditionTypeConsistentStateFound)
		if found == nil || found.Status != metav1.ConditionFalse || !strings.Contains(found.Message, "2k of resource cpu") {
			t.Errorf("condition %+v, want that it names 2,000 CPUs", found)
		}
		sim.WantEvent(t, k, "FailedConsistencyCheck", "c")
	})
}

func TestGarbage(t *testing.T) {
	t.Run("a claim whose machine is gone goes, unless its node is ready", func(t *testing.T) {
		inWorld(t, sim.Options{}, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
			sim.Create(t, w, sim.Claim("c"))
			time.Sleep(time.Minute)
			w.Cloud.Vanish(sim.Get[*v1.NodeClaim](t, w, "c").Status.ProviderID)
			time.Sleep(3 * time.Minute)
			sim.WantNothing(t, w)
		})
	})
	t.Run("old objects get the label of their node class", func(t *testing.T) {
		inWorld(t, sim.Options{}, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
			sim.Create(t, w, sim.Claim("c", func(c *v1.NodeClaim) { c.Labels = map[string]string{v1.NodePoolLabelKey: "default"} }))
			time.Sleep(time.Minute)
			c := sim.Get[*v1.NodeClaim](t, w, "c")
			key := v1.NodeClassLabelKey(fakecloud.NodeClass.GroupKind())
			if n := sim.Get[*corev1.Node](t, w, c.Status.NodeName); c.Labels[key] != "default" || n.Labels[key] != "default" {
				t.Errorf("claim %v, node %v", c.Labels, n.Labels)
			}
		})
	})
}

func TestANodeIsNotRegisteredBeforeTheProviderIsDone(t *testing.T) {
	sim.BubbleAlone(t, sim.Options{ReadyAfter: time.Second}, func(t *testing.T, w *sim.World) {
		done, asked := false, 0
		o := sim.KarpenterOptions{}
		o.Claim.RegistrationHook = func(_ context.Context, c *v1.NodeClaim) (string, time.Duration) {
			asked++
			if c.Status.ProviderID == "" || c.Labels[corev1.LabelTopologyZone] == "" {
				t.Errorf("the provider is asked about a claim without its machine: %+v", c)
			}
			if done {
				return "", 0
			}
			return "attach the disk", 10 * time.Second
		}
		w.With(t, o, func(*sim.Karpenter) {
			sim.Create(t, w, sim.Claim("c"))
			time.Sleep(time.Minute)
			c := sim.Get[*v1.NodeClaim](t, w, "c")
			is := condition.Get(c, v1.ConditionTypeRegistered)
			if is.Status != "Unknown" || is.Reason != v1.ReasonRegistrationHookPending || !strings.Contains(is.Message, "attach the disk") {
				t.Errorf("Registered = %+v", is)
			}
			for _, n := range memapi.All[*corev1.Node](w.API) {
				if lifecycle.IsRegistered(n) || !slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return v1.IsUnregisteredTaint(&t) }) {
					t.Errorf("the node is open: %+v", n)
				}
			}
			if asked < 5 || asked > 10 {
				t.Errorf("asked %d times in a minute, want every ten seconds", asked)
			}
			done = true
			time.Sleep(15 * time.Second)
			asked = 0
			if !condition.IsTrue(sim.Get[*v1.NodeClaim](t, w, "c"), condition.Ready) {
				t.Error("the claim is not ready although the provider is done")
			}
			time.Sleep(10 * time.Minute)
			if asked > 0 {
				t.Errorf("asked %d times about a node that is registered", asked)
			}
		})
		w.With(t, o, func(*sim.Karpenter) { time.Sleep(time.Minute) })
		if asked > 0 {
			t.Errorf("asked %d times about a node that an earlier process registered", asked)
		}
		done = false
		w.With(t, o, func(*sim.Karpenter) {
			sim.Create(t, w, sim.Claim("never"))
			time.Sleep(16 * time.Minute)
			for _, c := range memapi.All[*v1.NodeClaim](w.API) {
				if c.Name == "never" {
					t.Error("a claim that the provider is never done with is not given up")
				}
			}
		})
	})
}

func TestADeletedClaimStaysWhileAMachineMayBeLeft(t *testing.T) {
	sim.BubbleAlone(t, sim.Options{}, func(t *testing.T, w *sim.World) {
		w.Cloud.SetFault(func(fakecloud.Call) fakecloud.Fault { return fakecloud.Fault{Err: errors.New("boom")} })
		var settled atomic.Bool
		o := sim.KarpenterOptions{}
		o.Claim.Settled = func(_ context.Context, c *v1.NodeClaim) (bool, error) { return settled.Load() && c.Name == "c", nil }
		w.With(t, o, func(*sim.Karpenter) {
			c := sim.Claim("c")
			sim.Create(t, w, c)
			time.Sleep(10 * time.Second)
			sim.Delete(t, w, c)
			time.Sleep(time.Minute)
			sim.Get[*v1.NodeClaim](t, w, "c")
			settled.Store(true)
			time.Sleep(10 * time.Second)
			sim.WantNothing(t, w)
		})
	})
}

func TestHintComesJustBeforePodsMayBind(t *testing.T) {
	tainted := func(w *sim.World) bool {
		nodes := memapi.All[*corev1.Node](w.API)
		return len(nodes) == 1 && len(nodes[0].Spec.Taints) == 1 && nodes[0].Spec.Taints[0].Key == v1.UnregisteredTaintKey
	}
	sim.BubbleAlone(t, sim.Options{}, func(t *testing.T, w *sim.World) {
		var hints []bool
		o := sim.KarpenterOptions{Hint: func(context.Context, string) { hints = append(hints, tainted(w)) }}
		o.Claim.HoldTaint = time.Minute
		w.With(t, o, func(*sim.Karpenter) {
			sim.Create(t, w, sim.Claim("c"))
			time.Sleep(20 * time.Second)
		})
		if len(hints) != 1 || !hints[0] {
			t.Errorf("hints %v, want one, while ours is the only taint left", hints)
		}
		if !condition.IsTrue(sim.Get[*v1.NodeClaim](t, w, "c"), condition.Ready) {
			t.Error("the claim is not ready")
		}
	})
}

// On a busy API server the hints of a large plan take seconds.
func TestANodeIsOpenFromWhenItsHintsAreWritten(t *testing.T) {
	sim.BubbleAlone(t, sim.Options{}, func(t *testing.T, w *sim.World) {
		var opened time.Time
		o := sim.KarpenterOptions{Hint: func(context.Context, string) { time.Sleep(7 * time.Second); opened = time.Now() }}
		o.Claim.HoldTaint = time.Minute
		w.With(t, o, func(*sim.Karpenter) {
			sim.Create(t, w, sim.Claim("c"))
			time.Sleep(30 * time.Second)
		})
		c := condition.Get(sim.Get[*v1.NodeClaim](t, w, "c"), v1.ConditionTypeInitialized)
		if c == nil || opened.IsZero() || c.LastTransitionTime.Before(&metav1.Time{Time: opened.Truncate(time.Second)}) {
			t.Errorf("initialized %v, opened at %v", c, opened)
		}
	})
}

func TestTheTaintIsNotHeldWhereTheNetworkMayWaitForIt(t *testing.T) {
	network := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "network", UID: "network"}}
	network.Spec.Template.Spec.HostNetwork = true
	sim.BubbleAlone(t, sim.Options{ReadyAfter: 5 * time.Second}, func(t *testing.T, w *sim.World) {
		w.API.Put(network)
		var ready []bool
		o := sim.KarpenterOptions{Hint: func(context.Context, string) {
			ready = append(ready, lifecycle.ReadyStatus(memapi.All[*corev1.Node](w.API)[0]) == corev1.ConditionTrue)
		}}
		o.Claim.HoldTaint = time.Minute
		w.With(t, o, func(*sim.Karpenter) {
			sim.Create(t, w, sim.Claim("c"))
			time.Sleep(20 * time.Second)
		})
		if len(ready) != 1 || ready[0] {
			t.Errorf("opened with the node ready: %v, want once, before it is", ready)
		}
	})
}

func TestAClaimWrittenByHandIsLaunchedAndEnded(t *testing.T) {
	inWorld(t, sim.Options{}, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
		c := &v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "mine"}}
		c.Spec.NodeClassRef = sim.Ref("default")
		sim.Create(t, w, c)
		time.Sleep(20 * time.Second)
		got := sim.Get[*v1.NodeClaim](t, w, "mine")
		if !condition.IsTrue(got, condition.Ready) || condition.Get(got, v1.ConditionTypeDrifted) != nil || condition.Get(got, v1.ConditionTypeConsolidatable) != nil {
			t.Errorf("conditions = %v, want Ready, and none about a pool that it has not got", got.Status.Conditions)
		}
		sim.Delete(t, w, got)
		time.Sleep(30 * time.Second)
		sim.WantNothing(t, w)
	})
}
