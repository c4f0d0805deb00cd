package looptest

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/testing/awsmodel"
	"karpenter.sh/karpenter/internal/testing/memapi"
	"karpenter.sh/karpenter/internal/testing/sim"
)

// evictAfter is when the pods of an interrupted machine go at the latest, counted from EC2's notice.
const evictAfter = 45 * time.Second

func TestSpotInterruption(t *testing.T) {
	for name, tc := range map[string]struct {
		boot    time.Duration // of the replacement
		evicted func(t *testing.T, sinceNotice time.Duration, ready bool)
	}{
		"pods leave once the replacement is initialised": {15 * time.Second, func(t *testing.T, since time.Duration, ready bool) {
			if !ready || since >= evictAfter-5*time.Second {
				t.Errorf("the first pod was evicted %s after the notice, replacement initialised: %t", since, ready)
			}
		}},
		"pods wait for 45 s and no longer if the replacement is late": {80 * time.Second, func(t *testing.T, since time.Duration, ready bool) {
			if ready || since < evictAfter-2*time.Second || since > evictAfter+5*time.Second {
				t.Errorf("the first pod was evicted %s after the notice, replacement initialised: %t", since, ready)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, awsmodel.Config{Seed: 3, Types: []string{"m5.*", "c5.*"}, Timing: awsmodel.Timing{Pending: time.Second, Boot: tc.boot}})
				defer w.start()()
				w.deploy(5, "300m", "1Gi")
				w.eventually("all pods run", 3*time.Minute, w.allRun(5))
				old := memapi.All[*v1.NodeClaim](w.API)
				before := len(w.aws.Machines())
				notice := time.Now()
				for _, m := range w.aws.Alive() {
					if m.CapacityType != v1.CapacityTypeSpot {
						t.Fatalf("machine %s is %s, spot is cheaper", m.ID, m.CapacityType)
					}
					if err := w.aws.Interrupt(m.ID); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(2 * time.Second)
				w.wantTainted(old)
				if n := len(w.others(old)); n == 0 {
					t.Error("two seconds after the notice no replacement is asked for")
				}
				for w.leaving() == 0 {
					if time.Since(notice) > 2*time.Minute {
						t.Fatal("nothing was evicted before the machine was taken away")
					}
					time.Sleep(100 * time.Millisecond)
				}
				tc.evicted(t, time.Since(notice), w.initialized(old))
				w.eventually("all pods run", 2*time.Minute, w.allRun(5))
				if launched := len(w.aws.Machines()) - before; launched != len(old) {
					t.Errorf("%d machines were bought for the pods of %d, want one for each", launched, len(old))
				}
			})
		})
	}
}

func (w *world) wantTainted(claims []*v1.NodeClaim) {
	w.t.Helper()
	for _, c := range claims {
		n := sim.Get[*corev1.Node](w.t, w.World, c.Status.NodeName)
		if !slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
			return t.Key == v1.DisruptedTaintKey && t.Effect == corev1.TaintEffectNoSchedule
		}) {
			w.t.Errorf("two seconds after the notice node %s is not tainted: %v", n.Name, n.Spec.Taints)
		}
	}
}

// others are the claims that are not among these.
func (w *world) others(old []*v1.NodeClaim) []*v1.NodeClaim {
	return slices.DeleteFunc(memapi.All[*v1.NodeClaim](w.API), func(c *v1.NodeClaim) bool {
		return slices.ContainsFunc(old, func(o *v1.NodeClaim) bool { return o.Name == c.Name })
	})
}

// initialized says whether every claim that is not among these is ready for pods.
func (w *world) initialized(old []*v1.NodeClaim) bool {
	fresh := w.others(old)
	for _, c := range fresh {
		if n, ok := sim.Find[*corev1.Node](w.World, c.Status.NodeName); !ok || n.Labels[v1.NodeInitializedLabelKey] != "true" {
			return false
		}
	}
	return len(fresh) > 0
}

// leaving counts the pods that are on their way out.
func (w *world) leaving() (n int) {
	for _, p := range memapi.All[*corev1.Pod](w.API) {
		if p.DeletionTimestamp != nil {
			n++
		}
	}
	return n
}

// A machine that ends while it boots is told of by the interruption queue, and noticed within minutes where there is none.
func TestMachinesThatEndWhileTheyBoot(t *testing.T) {
	for name, tc := range map[string]struct {
		unqueued bool
		within   time.Duration
	}{"with a queue": {false, time.Minute}, "without one": {true, 3 * time.Minute}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const pods = 3
				w := newWorld(t, awsmodel.Config{Seed: 9, Types: []string{"m5.4xlarge"}})
				w.unqueued = tc.unqueued
				defer w.start()()
				time.Sleep(10 * time.Second)
				w.deploy(pods, "13", "20Gi") // one to a machine
				w.until("machines run", func() bool { return len(w.aws.Alive()) > 0 })
				if err := w.aws.Kill(w.aws.Alive()[0].ID); err != nil {
					t.Fatal(err)
				}
				w.eventually("all pods run", tc.within, w.allRun(pods))
				w.eventually("machines, claims and nodes are the same", time.Minute, w.unequal)
			})
		})
	}
}

// What ends every machine while it boots, such as a key that may not be used, is not answered by one machine after the other, however soon the queue tells.
func TestMachinesThatAllEndWhileTheyBoot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, awsmodel.Config{Seed: 9, Types: []string{"m5.4xlarge"}})
		defer w.start()()
		time.Sleep(10 * time.Second)
		w.deploy(1, "13", "20Gi")
		bought := map[string]bool{}
		for begun := time.Now(); time.Since(begun) < 15*time.Minute; time.Sleep(time.Second) {
			for _, m := range w.aws.Alive() {
				if !bought[m.ID] {
					bought[m.ID] = true
					if err := w.aws.Kill(m.ID); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		if len(bought) > 3 {
			t.Errorf("%d machines were bought in a quarter of an hour, and none got ready", len(bought))
		}
	})
}
