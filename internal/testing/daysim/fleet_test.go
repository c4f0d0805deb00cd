package daysim

import (
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/explain/sentence"
	"karpenter.sh/karpenter/internal/testing/memapi"
	"karpenter.sh/karpenter/internal/testing/sim"
)

// prices of a catalogue's types.
func prices(c *cloud.Catalog) map[string]float64 {
	out := map[string]float64{}
	for _, t := range c.Types {
		out[t.Name] = t.Offerings[0].Price.Dollars()
	}
	return out
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
	for p := range cluster.Pools.All(snap) {
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
