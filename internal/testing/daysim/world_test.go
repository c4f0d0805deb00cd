package daysim

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/work"
	"karpenter.sh/karpenter/internal/testing/sim"
)

// owned makes a pod one of a ReplicaSet, so that it is made anew when it is evicted.
func owned(p *corev1.Pod) {
	sim.OwnedBy(p.Labels["app"])(p)
}

// search is enough for plans nearly as good as those of a real controller, in less time.
const search = work.Second / 10

// waiting are the pods that have no node.
func waiting(snap *cluster.Snapshot) int {
	n := 0
	for p := range snap.Pods() {
		if p.NodeName == "" && p.Deleted.IsZero() {
			n++
		}
	}
	return n
}

// settle waits until no pod waits and nothing has been launched for a while.
func settle(t *testing.T, w *sim.World, k *sim.Karpenter, limit time.Duration) {
	t.Helper()
	quiet := 0
	for start, launches := time.Now(), -1; quiet < 6; time.Sleep(10 * time.Second) {
		if time.Since(start) > limit {
			t.Fatalf("after %v %d pods still wait, %d machines run", limit, waiting(k.Store.Snapshot()), len(w.Cloud.Machines()))
		}
		if waiting(k.Store.Snapshot()) == 0 && w.Cloud.Launches() == launches {
			quiet++
		} else {
			quiet = 0
		}
		launches = w.Cloud.Launches()
	}
}

func pool(edit func(*v1.NodePool)) *v1.NodePool {
	p := sim.Pool("default")
	edit(p)
	return p
}
