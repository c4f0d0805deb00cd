package crashtest

import (
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"karpenter.sh/karpenter/internal/testing/memapi"
	"karpenter.sh/karpenter/internal/testing/sim"
)

// What loops decide by is watched: rounds that place pods and remove nodes list nothing. Only what could not be undone is asked for again: the
// pods of a node whose machine is about to stop.
func TestRoundsListNothing(t *testing.T) {
	sim.BubbleAlone(t, sim.Options{PodStop: 2 * time.Second}, func(t *testing.T, w *sim.World) {
		w.With(t, sim.KarpenterOptions{Name: "karpenter", Provision: true, Disrupt: true}, func(*sim.Karpenter) {
			time.Sleep(time.Minute)
			var mu sync.Mutex
			lists := map[string]int{}
			w.API.SetFault(func(r memapi.Request) error {
				mu.Lock()
				defer mu.Unlock()
				if r.Verb == "list" && r.Client == "karpenter" {
					lists[r.Kind]++
				}
				return nil
			})
			for round := range 5 {
				for i := range 3 {
					w.API.Put(sim.Pod(fmt.Sprintf("p-%d-%d", round, i), "2500m"))
				}
				time.Sleep(5 * time.Minute)
			}
			if len(lists) > 0 {
				t.Errorf("five rounds listed %v, want nothing", lists)
			}
			launched := w.Cloud.Launches()
			for _, p := range memapi.All[*corev1.Pod](w.API) {
				sim.Delete(t, w, p)
			}
			time.Sleep(30 * time.Minute)
			mu.Lock()
			defer mu.Unlock()
			if lists["Pod"] > launched || len(lists) != 1 || len(w.Cloud.Machines()) > 0 {
				t.Errorf("the end of %d nodes listed %v, want the pods of each once at most; %d machines are left", launched, lists, len(w.Cloud.Machines()))
			}
		})
	})
}
