package static_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/control/pool"
	"karpenter.sh/karpenter/internal/testing/fakecloud"
	"karpenter.sh/karpenter/internal/testing/memapi"
	"karpenter.sh/karpenter/internal/testing/sim"
)

var gated = sim.KarpenterOptions{Provision: true, Disrupt: true, Gates: pool.Gates{StaticCapacity: true}}

// fixed runs a test with a pool of n nodes beside the dynamic one.
func fixed(t *testing.T, n int64, o sim.Options, ko sim.KarpenterOptions, test func(t *testing.T, w *sim.World, k *sim.Karpenter), edits ...func(*v1.NodePool)) {
	t.Helper()
	sim.Bubble(t, o, ko, func(t *testing.T, w *sim.World, k *sim.Karpenter) {
		p := sim.Pool("fixed")
		p.Spec.Replicas = &n
		for _, edit := range edits {
			edit(p)
		}
		w.API.Put(p)
		time.Sleep(time.Minute)
		test(t, w, k)
	})
}

func limited(nodes string) func(*v1.NodePool) {
	return func(p *v1.NodePool) { p.Spec.Limits = v1.Limits{v1.ResourceNodes: resource.MustParse(nodes)} }
}

// alive counts the claims of the pool that stay, and says so.
func alive(w *sim.World) (n int) {
	for _, c := range memapi.All[*v1.NodeClaim](w.API) {
		if c.Labels[v1.NodePoolLabelKey] == "fixed" && c.DeletionTimestamp == nil {
			n++
		}
	}
	return n
}

func wantAlive(t *testing.T, w *sim.World, want int) {
	t.Helper()
	if got := alive(w); got != want {
		t.Errorf("%d nodes, want %d", got, want)
	}
	if machines := len(w.Cloud.Machines()); machines != len(memapi.All[*v1.NodeClaim](w.API)) {
		t.Errorf("%d machines for %d claims", machines, len(memapi.All[*v1.NodeClaim](w.API)))
	}
}

func rescale(w *sim.World, n int64) {
	memapi.Edit(w.API, "", "fixed", func(p *v1.NodePool) { p.Spec.Replicas = &n })
}

func TestAPoolHasItsNodesWhetherOrNotSomebodyNeedsThem(t *testing.T) {
	fixed(t, 3, sim.Options{}, gated, func(t *testing.T, w *sim.World, k *sim.Karpenter) {
		wantAlive(t, w, 3)
		for _, c := range memapi.All[*v1.NodeClaim](w.API) {
			if !condition.IsTrue(c, condition.Ready) || c.Labels["karpenter.sh/nodepool"] != "fixed" || c.Annotations[v1.NodePoolHashAnnotationKey] == "" {
				t.Errorf("claim %s: labels %v, annotations %v, conditions %v", c.Name, c.Labels, c.Annotations, c.Status.Conditions)
			}
			if _, ok := c.Annotations[v1.NodeClaimMinValuesRelaxedAnnotationKey]; ok {
				t.Error("a claim of a static pool says whether minValues were relaxed")
			}
			for _, r := range c.Spec.Requirements {
				if r.Key == corev1.LabelInstanceTypeStable || r.Key == v1.CapacityTypeLabelKey {
					t.Errorf("the claim lists %s, which the pool leaves to the cloud", r.Key)
				}
			}
		}
		if got := testutil.ToFloat64(k.Metrics.NodeClaimsCreated.WithLabelValues("provisioned", "fixed", "false")); got != 3 {
			t.Errorf("counted %v claims", got)
		}
		time.Sleep(3 * time.Hour) // nobody consolidates them
		wantAlive(t, w, 3)
		rescale(w, 5)
		time.Sleep(time.Minute)
		wantAlive(t, w, 5)
		rescale(w, 0)
		time.Sleep(time.Minute)
		wantAlive(t, w, 0)
	})
}

func TestANodeThatGoesIsReplaced(t *testing.T) {
	fixed(t, 2, sim.Options{}, gated, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
		sim.Delete(t, w, memapi.All[*v1.NodeClaim](w.API)[0])
		time.Sleep(time.Minute)
		wantAlive(t, w, 2)
	})
}

func TestPodsUseTheRoomOfStaticNodesAndOpenNone(t *testing.T) {
	only := func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{v1.NodePoolLabelKey: "fixed"} }
	fixed(t, 1, sim.Options{}, gated, func(t *testing.T, w *sim.World, k *sim.Karpenter) {
		sim.Create(t, w, sim.Pod("fits", "500m", only))
		sim.Create(t, w, sim.Pod("does-not", "100", only))
		time.Sleep(time.Minute)
		wantAlive(t, w, 1)
		if sim.Get[*corev1.Pod](t, w, "fits").Spec.NodeName == "" {
			t.Error("the pod does not run")
		}
		sim.WantEvent(t, k, "FailedScheduling", "does-not")
	})
}

func TestTheLimitOfNodesIsNeverExceeded(t *testing.T) {
	fixed(t, 5, sim.Options{}, gated, func(t *testing.T, w *sim.World, k *sim.Karpenter) {
		wantAlive(t, w, 3)
		sim.WantEvent(t, k, "ReplicasMissing", "fixed")
		// What is being deleted holds its place until it is gone.
		memapi.Edit(w.API, "", memapi.All[*v1.NodeClaim](w.API)[0].Name, func(c *v1.NodeClaim) { c.Finalizers = append(c.Finalizers, "example.com/hold") })
		sim.Delete(t, w, memapi.All[*v1.NodeClaim](w.API)[0])
		for range 300 {
			time.Sleep(time.Second)
			if n := len(memapi.All[*v1.NodeClaim](w.API)); n > 3 {
				t.Fatalf("%d claims", n)
			}
		}
	}, limited("3"))
}

// A number that somebody mistyped is come near a thousand machines at a time: it neither fills the memory nor floods the cloud.
func TestAnAbsurdNumberOfNodesIsComeNearStepByStep(t *testing.T) {
	fixed(t, 0, sim.Options{}, gated, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
		launched := 0
		w.Cloud.SetFault(func(c fakecloud.Call) fakecloud.Fault {
			if c.Method != fakecloud.Launch {
				return fakecloud.Fault{}
			}
			if launched++; launched > 5 {
				return fakecloud.Fault{Delay: time.Hour}
			}
			return fakecloud.Fault{}
		})
		rescale(w, 1<<50)
		time.Sleep(20 * time.Second)
		if got := alive(w); got != 1005 {
			t.Errorf("%d nodes although the cloud has answered for five, want 1005", got)
		}
	})
}

func TestWithoutItsGateAStaticPoolGetsNothing(t *testing.T) {
	off := gated
	off.Gates = pool.Gates{}
	fixed(t, 3, sim.Options{}, off, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
		wantAlive(t, w, 0)
		if p := sim.Get[*v1.NodePool](t, w, "fixed"); condition.IsTrue(p, v1.ConditionTypeReady) {
			t.Error("the pool is ready")
		}
	})
}

// An answer that is lost, or a controller that dies between its calls, opens no node twice.
func TestNothingIsOpenedTwice(t *testing.T) {
	lose := 0
	ko := gated
	ko.Name = "karpenter"
	fixed(t, 6, sim.Options{}, ko, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
		wantAlive(t, w, 6)
		w.API.SetFault(func(r memapi.Request) error {
			if r.Verb == "create" && lose < 9 {
				lose++
				return errors.New("lost")
			}
			return nil
		})
		rescale(w, 9)
		most := 0
		for range 180 {
			time.Sleep(time.Second)
			most = max(most, alive(w))
		}
		wantAlive(t, w, 9)
		if most > 9 {
			t.Errorf("there were %d nodes", most)
		}
	})
	sim.BubbleAlone(t, sim.Options{}, func(t *testing.T, w *sim.World) {
		p := sim.Pool("fixed")
		p.Spec.Replicas = new(int64(10))
		w.API.Put(p)
		for i := range 20 {
			w.With(t, gated, func(*sim.Karpenter) { time.Sleep(time.Duration(100*i) * time.Millisecond) })
			if n := alive(w); n > 10 {
				t.Fatalf("%d nodes after %d restarts", n, i)
			}
		}
		w.With(t, gated, func(*sim.Karpenter) { time.Sleep(time.Minute) })
		wantAlive(t, w, 10)
	})
}

// Karpenter hears late of what it did itself.
func TestASlowWatchDeletesNoMoreThanAsked(t *testing.T) {
	slow := gated
	slow.Lag = 5 * time.Second
	fixed(t, 8, sim.Options{}, slow, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
		wantAlive(t, w, 8)
		rescale(w, 5)
		least := 8
		for i := range 120 {
			if i < 8 { // others look cheaper to end, before it is heard that some end already
				pod := sim.Pod(fmt.Sprint("p-", i), "100m")
				pod.Spec.NodeName = memapi.All[*v1.NodeClaim](w.API)[i%8].Status.NodeName
				sim.Create(t, w, pod)
				memapi.Edit(w.API, "", "fixed", func(p *v1.NodePool) { p.Labels = map[string]string{"edit": fmt.Sprint(i)} })
			}
			time.Sleep(time.Second)
			least = min(least, alive(w))
		}
		wantAlive(t, w, 5)
		if least < 5 {
			t.Errorf("only %d nodes were left for a while", least)
		}
	})
}

func TestNothingIsDeletedWhileTheClusterCannotBeRead(t *testing.T) {
	fixed(t, 3, sim.Options{}, gated, func(t *testing.T, w *sim.World, k *sim.Karpenter) {
		k.Store.Update(func(d *cluster.Draft) { d.FailedFeeds([]cluster.FailedFeed{{Kind: "Pod", Since: time.Now()}}) })
		rescale(w, 1)
		time.Sleep(time.Minute)
		wantAlive(t, w, 3)
		k.Store.Update(func(d *cluster.Draft) { d.FailedFeeds(nil) })
		time.Sleep(time.Minute)
		wantAlive(t, w, 1)
	})
}

func TestDriftReplacesNodesOneForOneWithinBudgetAndLimit(t *testing.T) {
	for name, c := range map[string]struct {
		budget, limit string
		most          int // nodes at once
		rolls         bool
	}{
		"one at a time":             {"1", "", 5, true},
		"two at a time":             {"50%", "", 6, true},
		"as many as the limit lets": {"100%", "5", 5, true},
		"no room for another":       {"100%", "4", 4, false},
		"no budget":                 {"0", "", 4, false},
	} {
		t.Run(name, func(t *testing.T) {
			edit := func(p *v1.NodePool) {
				p.Spec.Disruption.Budgets = []v1.Budget{{Nodes: c.budget}}
				if c.limit != "" {
					limited(c.limit)(p)
				}
			}
			fixed(t, 4, sim.Options{}, gated, func(t *testing.T, w *sim.World, k *sim.Karpenter) {
				wantAlive(t, w, 4)
				memapi.Edit(w.API, "", "fixed", func(p *v1.NodePool) {
					p.Spec.Template.Labels = map[string]string{"release": "two"}
				})
				most, least := 0, 99
				for range 900 {
					time.Sleep(time.Second)
					most = max(most, len(memapi.All[*v1.NodeClaim](w.API)))
					ready := 0
					for _, n := range memapi.All[*corev1.Node](w.API) {
						if n.DeletionTimestamp == nil && n.Labels[v1.NodePoolLabelKey] == "fixed" {
							ready++
						}
					}
					least = min(least, ready)
				}
				wantAlive(t, w, 4)
				fresh := 0
				for _, claim := range memapi.All[*v1.NodeClaim](w.API) {
					if claim.Labels["release"] == "two" {
						fresh++
					}
				}
				if fresh != 4 && c.rolls || fresh != 0 && !c.rolls {
					t.Errorf("%d of 4 nodes are new", fresh)
				}
				if least < 4 {
					t.Errorf("there were %d nodes for a while", least)
				}
				if over := most - c.most; over > 0 && c.limit != "" {
					t.Errorf("there were %d claims at once, want %d at most", most, c.most)
				}
			}, edit)
		})
	}
}

func TestWithoutCapacityTheRestComesLater(t *testing.T) {
	fixed(t, 2, sim.Options{}, gated, func(t *testing.T, w *sim.World, k *sim.Karpenter) {
		w.Cloud.SetStock(fakecloud.Where{}, 0)
		rescale(w, 4)
		time.Sleep(10 * time.Minute)
		wantAlive(t, w, 2)
		w.Cloud.SetStock(fakecloud.Where{}, 100)
		time.Sleep(10 * time.Minute)
		wantAlive(t, w, 4)
	})
}

// A template that never gets ready costs two machines an hour once that is known, not one for each node every quarter of an hour.
func TestABrokenTemplateIsTriedOneByOne(t *testing.T) {
	never := sim.Options{Cloud: fakecloud.Options{Boot: func(cloud.Machine) time.Duration { return 100 * time.Hour }}}
	launched := 0
	fixed(t, 3, never, gated, func(t *testing.T, w *sim.World, k *sim.Karpenter) {
		seen := map[string]bool{}
		count := func(d time.Duration) int {
			before := len(seen)
			for range int(d / (10 * time.Second)) {
				time.Sleep(10 * time.Second)
				for _, c := range memapi.All[*v1.NodeClaim](w.API) {
					seen[string(c.UID)] = true
				}
			}
			return len(seen) - before
		}
		count(2 * time.Hour)
		if launched = count(10 * time.Hour); launched > 20 {
			t.Errorf("%d machines in ten hours", launched)
		}
		sim.WantEvent(t, k, "ReplicasMissing", "fixed")
	})
	if launched == 0 {
		t.Error("it was never tried again")
	}
}
