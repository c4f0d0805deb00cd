package daysim

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/memapi"
	"karpenter.sh/karpenter/internal/sentence"
	"karpenter.sh/karpenter/internal/sim"
)

// instance is a machine type, on demand in two zones.
func instance(name string, cpus, gib int64, dollars float64) *cloud.InstanceType {
	t := sim.Kind(name, cpus, dollars)
	t.Capacity[corev1.ResourceMemory] = *resource.NewQuantity(gib<<30, resource.BinarySI)
	return t
}

// catalog sells three families, for computing, for both and for memory, each in four sizes whose prices are in proportion.
func catalog() *cloud.Catalog {
	c := &cloud.Catalog{}
	for _, family := range []struct {
		name    string
		gib     int64 // per CPU
		dollars float64
	}{{"c", 2, 0.0425}, {"m", 4, 0.048}, {"r", 8, 0.063}} {
		for _, cpus := range []int64{2, 4, 8, 16} {
			c.Types = append(c.Types, instance(fmt.Sprintf("%s%02d", family.name, cpus), cpus, cpus*family.gib, float64(cpus)*family.dollars))
		}
	}
	return c
}

// prices of a catalogue's types.
func prices(c *cloud.Catalog) map[string]float64 {
	out := map[string]float64{}
	for _, t := range c.Types {
		out[t.Name] = t.Offerings[0].Price.Dollars()
	}
	return out
}

// workload makes pods of ever the same mix of sizes.
type workload struct {
	random *rand.Rand
	made   int
}

func (l *workload) pod() *corev1.Pod {
	l.made++
	cpu := []string{"250m", "500m", "1", "1500m", "2"}[l.random.IntN(5)]
	memory := []string{"512Mi", "1Gi", "2Gi", "4Gi", "6Gi"}[l.random.IntN(5)]
	p := sim.Pod(fmt.Sprintf("app-%04d", l.made), cpu, owned)
	p.Spec.Containers[0].Resources.Requests[corev1.ResourceMemory] = resource.MustParse(memory)
	return p
}

// evictions counts the evictions that the API server was asked for.
type evictions struct {
	mu  sync.Mutex
	all map[types.NamespacedName]int
}

func watchEvictions(w *sim.World) *evictions {
	e := &evictions{all: map[types.NamespacedName]int{}}
	w.API.SetFault(func(r memapi.Request) error {
		if r.Subresource == "eviction" {
			e.mu.Lock()
			e.all[r.Name]++
			e.mu.Unlock()
		}
		return nil
	})
	return e
}

// pods is the number of different pods that were evicted.
func (e *evictions) pods() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.all)
}

// bound is a proven lower bound on what machines for the present pods cost per hour, if they could be bought all anew.
func bound(t *testing.T, k *sim.Karpenter, c *cloud.Catalog) float64 {
	t.Helper()
	snap := k.Store.Snapshot()
	in := engine.Question{Snap: snap, Gone: map[string]bool{}, Now: time.Now(), Settings: engine.Settings{ReservedCapacity: true, Search: search}}
	for p := range snap.Pools() {
		in.Pools = append(in.Pools, engine.Pool{Pool: p, Catalog: c})
	}
	for n := range snap.Nodes() {
		in.Gone[n.Name] = true
	}
	for p := range snap.Pods() {
		if p.Deleted.IsZero() {
			in.Pods = append(in.Pods, p)
		}
	}
	plan := engine.New().Plan(in)
	if len(plan.Refused) > 0 {
		t.Fatalf("%d pods have no place in a plan from scratch: %s", len(plan.Refused), sentence.Explanation(plan.Refused[0].Reasons))
	}
	return max(plan.ConfigBound, plan.VolumeBound).Dollars()
}

// spending is what all machines cost per hour.
func spending(w *sim.World, price map[string]float64) float64 {
	sum := 0.0
	for _, m := range w.Cloud.Machines() {
		sum += price[m.InstanceType]
	}
	return sum
}
