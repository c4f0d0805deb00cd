//go:build bars

package daysim

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/aws/offline"
	"karpenter.sh/karpenter/internal/testing/fakecloud"
	"karpenter.sh/karpenter/internal/testing/memapi"
	"karpenter.sh/karpenter/internal/testing/sim"
)

// The bars of a controller at size, beside the API in memory.
const (
	mostFirstPlan = 5 * time.Second // of processor time, from its start with everything listed to its first claims
	mostMemory    = 600 << 20       // bytes beyond what the API in memory takes
	mostSteady    = 0.3             // of a processor
)

// TestAtSize has 5,000 nodes and 100,000 pods: a controller starts there, with pods that wait; then nothing happens for ten minutes.
func TestAtSize(t *testing.T) {
	const nodes, pods, late = 5000, 100_000, 500
	types, err := offline.Catalog(offline.Options{Zones: []string{"us-east-1a", "us-east-1b", "us-east-1c"}})
	if err != nil {
		t.Fatal(err)
	}
	var most peak
	defer most.watch()()
	synctest.Test(t, func(t *testing.T) {
		w, err := sim.New(sim.Options{ReadyAfter: time.Second, PodStart: time.Second, PodStop: time.Second, Cloud: fakecloud.Options{
			Catalog: func(*v1.NodePool) (*cloud.Catalog, error) { return types, nil }, Boot: func(cloud.Machine) time.Duration { return 20 * time.Second }, Shutdown: 10 * time.Second,
		}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var world sync.WaitGroup
		defer world.Wait()
		defer stop()
		world.Go(func() { w.Run(ctx) })
		names := populate(t, w, nodes, pods)
		for i := range late {
			w.API.Put(sim.Pod(fmt.Sprintf("late-%03d", i), "1", sim.OwnedBy("late")))
		}
		time.Sleep(time.Minute)

		base := alive()
		defer debug.SetMemoryLimit(debug.SetMemoryLimit(int64(base) + mostMemory))
		most.reset()
		before := soFar()
		var first time.Duration // until the first claim is asked for: what the cloud in memory takes to launch is its own affair
		w.API.SetFault(func(r memapi.Request) error {
			if first == 0 && r.Verb == "create" && r.Kind == "NodeClaim" {
				first = soFar().processor - before.processor
			}
			return nil
		})
		k := w.Karpenter(sim.KarpenterOptions{Name: "karpenter", Provision: true, Disrupt: true})
		k.Add(watching(w, k).Run)
		world.Go(func() { k.Run(ctx) })
		until(t, 5*time.Minute, "the first plan", func() bool { return claims(w) > nodes })
		w.API.SetFault(nil)
		t.Logf("first claim after %v of processor time", first)
		if first > mostFirstPlan {
			t.Errorf("the first plan took %v of processor time, want at most %v", first, mostFirstPlan)
		}
		bound := func() bool { return waiting(k.Store.Snapshot()) == 0 }
		until(t, 10*time.Minute, "pods that waited run", bound)
		told := func(what string) {
			peak := int64(most.reset()) - int64(base)
			t.Logf("%s: at most %d MB, %d MB alive, beside the API's %d MB; %d claims", what, peak>>20, (int64(alive())-int64(base))>>20, base>>20, claims(w))
			if peak > mostMemory {
				t.Errorf("%s took %d MB, want at most %d", what, peak>>20, mostMemory>>20)
			}
		}
		told("start")

		world.Go(func() { beat(ctx, w, names) })
		time.Sleep(2 * time.Minute)
		before = soFar()
		time.Sleep(10 * time.Minute)
		used := (soFar().processor - before.processor).Seconds() / 600
		t.Logf("steady: %.3f of a processor", used)
		if used > mostSteady {
			t.Errorf("%.3f of a processor while nothing happens, want at most %v", used, mostSteady)
		}
		told("steady state")
	})
}

// populate has a controller launch nodes for claims, puts pods on them, and ends that controller.
func populate(t *testing.T, w *sim.World, nodes, pods int) (names []string) {
	w.API.Put(sim.ReadyClass("default"))
	w.API.Put(pool(func(p *v1.NodePool) { p.Spec.Disruption.ConsolidateAfter = v1.NillableDuration{} }))
	for i := range nodes {
		w.API.Put(sim.Claim(fmt.Sprintf("claim-%04d", i), func(c *v1.NodeClaim) {
			c.Finalizers = []string{v1.TerminationFinalizer}
			c.Spec.Requirements = []v1.NodeSelectorRequirementWithMinValues{
				{Key: corev1.LabelInstanceTypeStable, Operator: "In", Values: []string{"m5.xlarge"}},
				{Key: corev1.LabelTopologyZone, Operator: "In", Values: []string{"us-east-1" + string("abc"[i%3])}}}
		}))
	}
	w.With(t, sim.KarpenterOptions{Name: "first"}, func(k *sim.Karpenter) {
		until(t, 30*time.Minute, "nodes are there", func() bool { names = initialized(k); return len(names) == nodes })
	})
	for i := range pods {
		w.API.Put(sim.Pod(podName(i), "150m", sim.OwnedBy("web"), func(p *corev1.Pod) {
			p.Spec.NodeName, p.Status.Phase = names[i%nodes], corev1.PodRunning
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}, {Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		}))
	}
	return names
}

func podName(i int) string { return fmt.Sprintf("pod-%06d", i) }

func until(t *testing.T, limit time.Duration, what string, done func() bool) {
	t.Helper()
	for start := time.Now(); !done(); time.Sleep(time.Second) {
		if time.Since(start) > limit {
			t.Fatalf("%s: not within %v", what, limit)
		}
	}
}

func claims(w *sim.World) (n int) {
	memapi.Each(w.API, func(*v1.NodeClaim) { n++ })
	return n
}

// alive is what is left of the heap after a collection.
func alive() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// A peak is the largest heap that was seen, garbage and all.
type peak struct{ bytes atomic.Uint64 }

// watch looks until it is told to end, in real time.
func (p *peak) watch() (end func()) {
	over := make(chan struct{})
	var looking sync.WaitGroup
	looking.Go(func() {
		heap := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
		for tick := time.NewTicker(5 * time.Millisecond); ; {
			select {
			case <-over:
				return
			case <-tick.C:
			}
			metrics.Read(heap)
			for now := heap[0].Value.Uint64(); ; {
				if old := p.bytes.Load(); now <= old || p.bytes.CompareAndSwap(old, now) {
					break
				}
			}
		}
	})
	return func() { close(over); looking.Wait() }
}

// reset returns what was seen and begins anew.
func (p *peak) reset() uint64 { return p.bytes.Swap(0) }
