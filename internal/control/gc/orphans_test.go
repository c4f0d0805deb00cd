package gc_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
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

// restored is a cluster whose API server has lost the claims of four machines, before a Karpenter starts.
func restored(t *testing.T, test func(t *testing.T, w *sim.World)) {
	t.Helper()
	sim.BubbleAlone(t, sim.Options{}, func(t *testing.T, w *sim.World) {
		for i := range 4 {
			name := fmt.Sprintf("lost-%d", i)
			launch(t, w, sim.Claim(name, func(c *v1.NodeClaim) { c.UID = types.UID(name) }))
		}
		time.Sleep(2 * time.Minute)
		test(t, w)
	})
}

func latched(w *sim.World) (n int) {
	for _, m := range w.Cloud.Machines() {
		if m.Latched {
			n++
		}
	}
	return n
}

func TestMassOrphaningStopsNothing(t *testing.T) {
	restored(t, func(t *testing.T, w *sim.World) {
		w.With(t, sim.KarpenterOptions{}, func(k *sim.Karpenter) {
			time.Sleep(time.Hour)
			if n := len(w.Cloud.Machines()); n != 4 || latched(w) != 4 {
				t.Fatalf("%d machines, %d latched; want four of each", n, latched(w))
			}
			if got := testutil.ToFloat64(k.Metrics.MachinesLatched); got != 4 {
				t.Errorf("metric = %v, want 4", got)
			}
			sim.WantEvent(t, k, "OrphanKept", memapi.All[*corev1.Node](w.API)[0].Name)
			for i := range 10 {
				sim.Create(t, w, sim.Claim(fmt.Sprintf("new-%d", i)))
			}
			time.Sleep(time.Hour)
			if n := len(w.Cloud.Machines()); n != 14 {
				t.Errorf("%d machines when orphans are few among many, want the four and ten", n)
			}
		})
		w.With(t, sim.KarpenterOptions{}, func(*sim.Karpenter) {
			time.Sleep(time.Hour)
			if n := len(w.Cloud.Machines()); n != 14 {
				t.Errorf("%d machines after a restart, want the four and ten", n)
			}
		})
	})
}

// A nameless cloud cannot say which claims machines were launched for, because it was not allowed to write it down.
type nameless struct{ cloud.Provider }

func (n nameless) List(ctx context.Context) ([]cloud.Machine, error) {
	machines, err := n.Provider.List(ctx)
	for i := range machines {
		machines[i].ClaimName = ""
	}
	return machines, err
}

// An awaiting cloud waits for the answer to a launch until some time.
type awaiting struct {
	cloud.Provider
	until time.Time
}

func (a awaiting) List(ctx context.Context) ([]cloud.Machine, error) {
	machines, err := a.Provider.List(ctx)
	for i := range machines {
		machines[i].ClaimName, machines[i].Awaited = "", time.Now().Before(a.until)
	}
	return machines, err
}

func TestAMachineIsStoppedSoonAfterNoLaunchAwaitsIt(t *testing.T) {
	sim.BubbleAlone(t, sim.Options{}, func(t *testing.T, w *sim.World) {
		launch(t, w, sim.Claim("lost"))
		p := awaiting{w.Cloud, time.Now().Add(10*time.Minute + time.Second)}
		w.With(t, sim.KarpenterOptions{Cloud: p}, func(*sim.Karpenter) {
			time.Sleep(10 * time.Minute)
			if n := len(w.Cloud.Machines()); n != 1 {
				t.Fatalf("%d machines while a launch awaits one", n)
			}
			time.Sleep(20 * time.Second)
			sim.WantNothing(t, w)
		})
	})
}

// Machines whose nodes were registered were somebody's, whatever their tags say. Others nobody has ever used.
func TestMassOrphaningOfMachinesWithoutName(t *testing.T) {
	for name, tc := range map[string]struct {
		label string
		want  int // machines that stay
	}{"registered": {"true", 4}, "never registered": {"", 0}} {
		t.Run(name, func(t *testing.T) {
			restored(t, func(t *testing.T, w *sim.World) {
				for _, n := range memapi.All[*corev1.Node](w.API) {
					memapi.Edit(w.API, "", n.Name, func(n *corev1.Node) {
						metav1.SetMetaDataLabel(&n.ObjectMeta, v1.NodeRegisteredLabelKey, tc.label)
						n.Finalizers = nil
					})
				}
				w.With(t, sim.KarpenterOptions{Cloud: nameless{w.Cloud}}, func(*sim.Karpenter) {
					time.Sleep(time.Hour)
					if n := len(w.Cloud.Machines()); n != tc.want {
						t.Errorf("%d machines, want %d", n, tc.want)
					}
				})
			})
		})
	}
}

// TestClaimsThatEndInDoubtAreNoMistake deletes claims whose launches a crash has cut short: their machines are most of all machines, and nobody's.
// Two leaders at once have bought machines for the same claims.
func TestSecondMachinesOfClaimsAreNoMistake(t *testing.T) {
	sim.BubbleAlone(t, sim.Options{}, func(t *testing.T, w *sim.World) {
		claims := []*v1.NodeClaim{sim.Claim("a"), sim.Claim("b")}
		w.With(t, sim.KarpenterOptions{}, func(*sim.Karpenter) {
			for _, c := range claims {
				sim.Create(t, w, c)
			}
			time.Sleep(time.Minute)
		})
		for _, c := range claims {
			for _, which := range []string{"second-", "third-"} {
				c.UID = types.UID(which + c.Name)
				launch(t, w, c)
			}
		}
		time.Sleep(2 * time.Minute)
		w.With(t, sim.KarpenterOptions{}, func(*sim.Karpenter) {
			time.Sleep(time.Minute)
			if n := len(w.Cloud.Machines()); n != 2 {
				t.Errorf("%d machines are left, want one for each claim", n)
			}
		})
	})
}

func TestClaimsThatEndInDoubtAreNoMistake(t *testing.T) {
	sim.BubbleAlone(t, sim.Options{}, func(t *testing.T, w *sim.World) {
		for i := range 4 {
			name := fmt.Sprintf("cut-short-%d", i)
			claim := sim.Claim(name, func(c *v1.NodeClaim) { c.UID, c.Finalizers = types.UID(name), []string{v1.TerminationFinalizer} })
			launch(t, w, claim)
			sim.Create(t, w, claim)
			sim.Delete(t, w, claim)
		}
		time.Sleep(2 * time.Minute)
		w.With(t, sim.KarpenterOptions{}, func(*sim.Karpenter) {
			time.Sleep(time.Minute)
			sim.WantNothing(t, w)
		})
	})
}

// Policies that users have already may not allow the tag.
func TestALatchThatTheCloudRefusesHoldsInMemory(t *testing.T) {
	restored(t, func(t *testing.T, w *sim.World) {
		w.Cloud.SetFault(func(c fakecloud.Call) fakecloud.Fault {
			if c.Method == fakecloud.SetLatch {
				return fakecloud.Fault{Err: errors.New("denied")}
			}
			return fakecloud.Fault{}
		})
		w.With(t, sim.KarpenterOptions{}, func(*sim.Karpenter) {
			time.Sleep(time.Minute)
			for i := range 10 {
				sim.Create(t, w, sim.Claim(fmt.Sprintf("new-%d", i)))
			}
			time.Sleep(time.Hour)
			if n := len(w.Cloud.Machines()); n != 14 || latched(w) != 0 {
				t.Errorf("%d machines, %d latched; want the four and ten, none latched", n, latched(w))
			}
		})
	})
}

func TestALatchEndsWhenTheClaimReturns(t *testing.T) {
	restored(t, func(t *testing.T, w *sim.World) {
		w.With(t, sim.KarpenterOptions{}, func(*sim.Karpenter) {
			time.Sleep(time.Minute)
			back := sim.Claim("lost-0", func(c *v1.NodeClaim) { c.Finalizers = []string{v1.TerminationFinalizer} })
			back.Status.ProviderID = w.Cloud.Machines()[0].ProviderID
			condition.Init(back)
			condition.SetTrue(back, v1.ConditionTypeLaunched, time.Now())
			w.API.Put(back)
			time.Sleep(5 * time.Minute)
			if latched(w) != 3 || len(w.Cloud.Machines()) != 4 {
				t.Fatalf("%d machines, %d latched; want four and three", len(w.Cloud.Machines()), latched(w))
			}
			sim.Delete(t, w, back)
			time.Sleep(5 * time.Minute)
			if latched(w) != 3 || len(w.Cloud.Machines()) != 3 {
				t.Errorf("%d machines, %d latched; want three of each", len(w.Cloud.Machines()), latched(w))
			}
		})
	})
}

// The last latch ends too, when no machine is without a claim any more.
func TestTheLastLatchEndsWhenEveryClaimReturns(t *testing.T) {
	restored(t, func(t *testing.T, w *sim.World) {
		w.With(t, sim.KarpenterOptions{}, func(*sim.Karpenter) {
			time.Sleep(time.Minute)
			for i, m := range w.Cloud.Machines() {
				back := sim.Claim(fmt.Sprintf("lost-%d", i), func(c *v1.NodeClaim) { c.Finalizers = []string{v1.TerminationFinalizer} })
				back.Status.ProviderID = m.ProviderID
				condition.Init(back)
				condition.SetTrue(back, v1.ConditionTypeLaunched, time.Now())
				w.API.Put(back)
			}
			time.Sleep(5 * time.Minute)
			if latched(w) != 0 || len(w.Cloud.Machines()) != 4 {
				t.Errorf("%d machines, %d latched; want four, none latched", len(w.Cloud.Machines()), latched(w))
			}
		})
	})
}

func TestPeopleDecideAboutOrphans(t *testing.T) {
	decide := func(w *sim.World, wish string, finalizers ...string) cloud.Machine {
		m := w.Cloud.Machines()[0]
		memapi.Edit(w.API, "", sim.NodeName(m), func(n *corev1.Node) {
			n.Finalizers = finalizers
			n.Labels = map[string]string{v1.NodeClassLabelKey(fakecloud.NodeClass.GroupKind()): "default", v1.NodePoolLabelKey: "default"}
			n.Spec.Taints = nil
			metav1.SetMetaDataAnnotation(&n.ObjectMeta, v1.OrphanAnnotationKey, wish)
		})
		return m
	}
	t.Run("a machine that is to go is drained and stopped", func(t *testing.T) {
		restored(t, func(t *testing.T, w *sim.World) {
			w.With(t, sim.KarpenterOptions{}, func(*sim.Karpenter) {
				time.Sleep(time.Minute)
				held := sim.Pod("held", "1", func(p *corev1.Pod) {
					p.Annotations = map[string]string{v1.DoNotDisruptAnnotationKey: "true"}
					p.Spec.NodeName = sim.NodeName(w.Cloud.Machines()[0])
				})
				w.API.Put(held)
				m := decide(w, v1.OrphanTerminate, v1.TerminationFinalizer)
				time.Sleep(10 * time.Minute)
				if len(w.Cloud.Machines()) != 4 {
					t.Fatal("the machine was stopped under a pod")
				}
				w.API.Remove(held)
				time.Sleep(time.Minute)
				if _, ok := sim.Find[*corev1.Node](w, sim.NodeName(m)); ok || len(w.Cloud.Machines()) != 3 || latched(w) != 3 {
					t.Errorf("node there: %v, %d machines, %d latched; want the other three", ok, len(w.Cloud.Machines()), latched(w))
				}
			})
		})
	})
	t.Run("one that never registered is stopped at once", func(t *testing.T) {
		restored(t, func(t *testing.T, w *sim.World) {
			w.With(t, sim.KarpenterOptions{}, func(*sim.Karpenter) {
				time.Sleep(time.Minute)
				decide(w, v1.OrphanTerminate)
				time.Sleep(2 * time.Minute)
				if len(w.Cloud.Machines()) != 3 || latched(w) != 3 {
					t.Errorf("%d machines, %d latched; want the other three", len(w.Cloud.Machines()), latched(w))
				}
			})
		})
	})
	t.Run("one that is adopted has a claim again", func(t *testing.T) {
		restored(t, func(t *testing.T, w *sim.World) {
			w.With(t, sim.KarpenterOptions{}, func(*sim.Karpenter) {
				time.Sleep(time.Minute)
				m := decide(w, v1.OrphanAdopt, v1.TerminationFinalizer)
				time.Sleep(5 * time.Minute)
				claims := memapi.All[*v1.NodeClaim](w.API)
				if len(claims) != 1 || claims[0].Status.ProviderID != m.ProviderID || !condition.IsTrue(claims[0], condition.Ready) {
					t.Fatalf("claims = %+v, want one that is ready and has the machine", claims)
				}
				if n := w.Cloud.Launches(); n != 4 || latched(w) != 3 {
					t.Errorf("%d launches, %d latched; want no new machine, and the latch taken off", n, latched(w))
				}
				sim.Delete(t, w, claims[0])
				time.Sleep(5 * time.Minute)
				if len(w.Cloud.Machines()) != 3 {
					t.Errorf("%d machines, want the other three", len(w.Cloud.Machines()))
				}
			})
		})
	})
}

// Who may write a claim may not take another claim's machine by it.
func TestNobodyAdoptsTheMachineOfAnother(t *testing.T) {
	inWorld(t, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
		sim.Create(t, w, sim.Claim("c"))
		time.Sleep(30 * time.Second)
		sim.Create(t, w, sim.Claim("thief", func(c *v1.NodeClaim) {
			c.Annotations = map[string]string{v1.AdoptsAnnotationKey: sim.Get[*v1.NodeClaim](t, w, "c").Status.ProviderID}
		}))
		time.Sleep(time.Minute)
		if c := sim.Get[*v1.NodeClaim](t, w, "thief"); c.Status.ProviderID != "" {
			t.Error("the claim has the other's machine")
		}
		time.Sleep(10 * time.Minute)
		if c := sim.Get[*v1.NodeClaim](t, w, "c"); len(w.Cloud.Machines()) != 1 || !condition.IsTrue(c, condition.Ready) {
			t.Errorf("%d machines; want the first", len(w.Cloud.Machines()))
		}
	})
}
