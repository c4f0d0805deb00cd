package gc_test

import (
	"context"
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

func inWorld(t *testing.T, test func(*testing.T, *sim.World, *sim.Karpenter)) {
	t.Helper()
	sim.Bubble(t, sim.Options{}, sim.KarpenterOptions{}, test)
}

// launch starts a machine for a claim behind Karpenter's back.
func launch(t *testing.T, w *sim.World, c *v1.NodeClaim) string {
	t.Helper()
	c = c.DeepCopy()
	c.UID = "another-" + c.UID
	m, err := w.Cloud.Launch(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return m.ProviderID
}

func TestMachinesWithoutClaimAreStopped(t *testing.T) {
	t.Run("within a minute, with the node that it became", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
			launch(t, w, sim.Claim("gone"))
			time.Sleep(25 * time.Second)
			if n := memapi.All[*corev1.Node](w.API); len(n) != 1 || len(w.Cloud.Machines()) != 1 {
				t.Fatalf("%d nodes and %d machines after 25 s: too young to be an orphan", len(n), len(w.Cloud.Machines()))
			}
			w.API.Put(sim.Pod("p", "1"))
			time.Sleep(30 * time.Second)
			sim.WantNothing(t, w)
			if p := sim.Get[*corev1.Pod](t, w, "p"); p.Spec.NodeName != "" {
				t.Error("the orphan ran a pod")
			}
		})
	})
	t.Run("a second machine of a claim goes, the first stays", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
			sim.Create(t, w, sim.Claim("c"))
			time.Sleep(time.Second)
			c := sim.Get[*v1.NodeClaim](t, w, "c")
			launch(t, w, c)
			time.Sleep(time.Minute)
			if left := w.Cloud.Machines(); len(left) != 1 || left[0].ProviderID != c.Status.ProviderID {
				t.Errorf("machines = %v, want only %s", left, c.Status.ProviderID)
			}
		})
	})
	t.Run("a list that fails or is slow stops nothing", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
			w.Cloud.SetFault(func(c fakecloud.Call) fakecloud.Fault {
				if c.Method == fakecloud.List {
					return fakecloud.Fault{Delay: 20 * time.Second, Err: fmt.Errorf("throttled")}
				}
				return fakecloud.Fault{}
			})
			sim.Create(t, w, sim.Claim("c"))
			time.Sleep(20 * time.Minute)
			if n := len(w.Cloud.Machines()); n != 1 {
				t.Errorf("%d machines, want the claim's", n)
			}
		})
	})
}

// A claim whose launch stays in doubt is asked about every few seconds.
func TestClaimsInDoubtPutNothingOff(t *testing.T) {
	var o sim.KarpenterOptions
	o.Claim.Settled = func(context.Context, *v1.NodeClaim) (bool, error) { return false, nil }
	sim.Bubble(t, sim.Options{}, o, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
		w.Cloud.SetFault(func(c fakecloud.Call) fakecloud.Fault {
			if c.Method == fakecloud.Launch && c.Claim == "doubt" {
				return fakecloud.Fault{Err: fmt.Errorf("throttled")}
			}
			return fakecloud.Fault{}
		})
		doubt := sim.Claim("doubt")
		sim.Create(t, w, doubt)
		time.Sleep(time.Second)
		sim.Delete(t, w, doubt)
		launch(t, w, sim.Claim("gone"))
		time.Sleep(time.Minute)
		if n := len(w.Cloud.Machines()); n > 0 {
			t.Errorf("%d machines without a claim are left after a minute", n)
		}
		sim.Get[*v1.NodeClaim](t, w, "doubt") // it is in doubt still
	})
}

func TestARoundThatFailsIsTriedAgainSoon(t *testing.T) {
	inWorld(t, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
		time.Sleep(20 * time.Minute)
		var asked []time.Time
		w.Cloud.SetFault(func(c fakecloud.Call) (f fakecloud.Fault) {
			if c.Method == fakecloud.Terminate {
				if asked = append(asked, time.Now()); len(asked) == 1 {
					f.Err = fmt.Errorf("throttled")
				}
			}
			return f
		})
		launch(t, w, sim.Claim("gone"))
		time.Sleep(5 * time.Minute)
		if len(asked) < 2 || asked[1].Sub(asked[0]) > 30*time.Second {
			t.Errorf("the machine was stopped at %v, want a second try half a minute after the first", asked)
		}
	})
}

func TestClaimsAreListedOnSuspicionOnly(t *testing.T) {
	inWorld(t, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
		lists := 0
		w.API.SetFault(func(r memapi.Request) error {
			if r.Verb == "list" {
				lists++
			}
			return nil
		})
		sim.Create(t, w, sim.Claim("c"))
		time.Sleep(20 * time.Minute)
		if lists > 0 {
			t.Errorf("claims were listed %d times, although every machine has one", lists)
		}
		launch(t, w, sim.Claim("gone"))
		time.Sleep(5 * time.Minute)
		if n := len(w.Cloud.Machines()); n != 1 || lists == 0 {
			t.Errorf("%d machines after %d lists, want the claim's", n, lists)
		}
	})
}

// A claim that our picture does not know yet keeps its machine.
func TestAPictureThatLagsCostsNoMachine(t *testing.T) {
	sim.Bubble(t, sim.Options{}, sim.KarpenterOptions{Lag: 10 * time.Minute}, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
		time.Sleep(11 * time.Minute) // its loops have begun
		c := sim.Claim("c")
		id := launch(t, w, c)
		c.Status.ProviderID = id
		w.API.Put(c)
		time.Sleep(8 * time.Minute)
		if n := len(w.Cloud.Machines()); n != 1 {
			t.Errorf("%d machines, want the one of the claim", n)
		}
	})
}

func TestClaimsWithoutMachineGo(t *testing.T) {
	for name, tc := range map[string]struct {
		ready corev1.ConditionStatus
		want  bool
	}{
		"a claim whose node is not ready goes":   {corev1.ConditionUnknown, false},
		"a claim whose node is ready is kept":    {corev1.ConditionTrue, true},
		"a claim whose node says it is not goes": {corev1.ConditionFalse, false},
	} {
		t.Run(name, func(t *testing.T) {
			sim.BubbleAlone(t, sim.Options{}, func(t *testing.T, w *sim.World) {
				w.With(t, sim.KarpenterOptions{Cloud: forgetful{w.Cloud}}, func(*sim.Karpenter) {
					sim.Create(t, w, sim.Claim("c"))
					time.Sleep(30 * time.Second)
					memapi.Edit(w.API, "", sim.Get[*v1.NodeClaim](t, w, "c").Status.NodeName, func(n *corev1.Node) {
						n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: tc.ready}}
					})
					time.Sleep(3 * time.Minute)
					if _, kept := sim.Find[*v1.NodeClaim](w, "c"); kept != tc.want {
						t.Errorf("kept = %v, want %v", kept, tc.want)
					}
				})
			})
		})
	}
	for name, fault := range map[string]fakecloud.Fault{
		"an incomplete list costs nobody a machine":             {},
		"nor does a cloud that does not answer for the machine": {Err: fmt.Errorf("throttled")},
	} {
		t.Run(name, func(t *testing.T) {
			sim.BubbleAlone(t, sim.Options{}, func(t *testing.T, w *sim.World) {
				w.With(t, sim.KarpenterOptions{Cloud: listless{w.Cloud}}, func(*sim.Karpenter) {
					sim.Create(t, w, sim.Claim("c"))
					time.Sleep(30 * time.Second)
					c := sim.Get[*v1.NodeClaim](t, w, "c")
					memapi.Edit(w.API, "", c.Status.NodeName, func(n *corev1.Node) {
						n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse}}
					})
					w.Cloud.SetFault(func(call fakecloud.Call) fakecloud.Fault {
						if call.Method == fakecloud.Get {
							return fault
						}
						return fakecloud.Fault{}
					})
					time.Sleep(time.Hour)
					if c := sim.Get[*v1.NodeClaim](t, w, "c"); c.DeletionTimestamp != nil {
						t.Error("the claim is deleted")
					}
				})
			})
		})
	}
	t.Run("a claim that never registered is left to who looks after its boot", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
			time.Sleep(90 * time.Second)
			c := sim.Claim("c", func(c *v1.NodeClaim) { c.Finalizers = []string{v1.TerminationFinalizer} })
			sim.Create(t, w, c)
			time.Sleep(500 * time.Millisecond)
			w.Cloud.Vanish(sim.Get[*v1.NodeClaim](t, w, "c").Status.ProviderID)
			time.Sleep(45 * time.Second) // the loop has looked at claims
			sim.Get[*v1.NodeClaim](t, w, "c")
			time.Sleep(2 * time.Minute)
			sim.WantNothing(t, w)
		})
	})
}

// listless is a cloud whose lists lack every machine.
type listless struct{ *fakecloud.Cloud }

func (listless) List(context.Context) ([]cloud.Machine, error) { return nil, nil }

// forgetful is a cloud that shows no machine to anybody who looks.
type forgetful struct{ *fakecloud.Cloud }

func (forgetful) List(context.Context) ([]cloud.Machine, error) { return nil, nil }

func (forgetful) Get(context.Context, string) (cloud.Machine, error) {
	return cloud.Machine{}, cloud.ErrNotFound
}
