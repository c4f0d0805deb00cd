package crashtest

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/testing/memapi"
	"karpenter.sh/karpenter/internal/testing/sim"
)

// All loops together: pods come, run and go, and with them the machines.
func TestFromNothingToPodsAndBack(t *testing.T) {
	sim.Bubble(t, sim.Options{}, sim.KarpenterOptions{Provision: true, Disrupt: true}, func(t *testing.T, w *sim.World, _ *sim.Karpenter) {
		const pods = 40
		for i := range pods {
			w.API.Put(sim.Pod(fmt.Sprintf("p-%02d", i), "900m"))
		}
		start := time.Now()
		for running(w) < pods {
			if time.Since(start) > time.Minute {
				t.Fatalf("%d of %d pods run after a minute", running(w), pods)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("the pods ran after %s, machines boot and become ready in 3 s", took)
		}
		claims := len(memapi.All[*v1.NodeClaim](w.API))
		if machines := len(w.Cloud.Machines()); machines != claims || claims == 0 {
			t.Errorf("%d machines for %d claims", machines, claims)
		}
		time.Sleep(10 * time.Minute)
		if running(w) != pods {
			t.Errorf("%d of %d pods run ten minutes later", running(w), pods)
		}
		for _, p := range memapi.All[*corev1.Pod](w.API) {
			sim.Delete(t, w, p)
		}
		time.Sleep(5 * time.Minute)
		sim.WantNothing(t, w)
	})
}

func running(w *sim.World) (n int) {
	for _, p := range memapi.All[*corev1.Pod](w.API) {
		if p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
			n++
		}
	}
	return n
}
