package engine_test

import (
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/aws/offline"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/testing/benchload"
)

// now is the time of all tests and benchmarks here.
var now = benchload.Now

// workload returns the pods of a named workload as they stand in the API server: pending and unschedulable.
func workload(tb testing.TB, name string) []*corev1.Pod {
	tb.Helper()
	pods, err := benchload.Pods(name)
	if err != nil {
		tb.Fatal(err)
	}
	return pods
}

var ec2 = sync.OnceValues(func() (*cloud.Catalog, error) {
	return offline.Catalog(offline.Options{Region: benchload.Region, Zones: benchload.Zones()})
})

func catalogue(tb testing.TB) *cloud.Catalog {
	tb.Helper()
	c, err := ec2()
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// agent is a DaemonSet of 200m CPU and 256 Mi.
func agent() *appsv1.DaemonSet {
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "agent", UID: "agent"}}
	set.Spec.Template.Spec = benchload.Pending("agent", 200, 256).Spec
	return set
}

// snapshotOf puts pods, and DaemonSets, into a fresh store.
func snapshotOf(pods []*corev1.Pod, daemons ...*appsv1.DaemonSet) *cluster.Snapshot {
	s := cluster.NewStore()
	s.Update(func(d *cluster.Draft) {
		for _, set := range daemons {
			cluster.DaemonSets.Put(d, set)
		}
		for _, p := range pods {
			d.PutPod(p)
		}
		d.Synced(true)
	})
	return s.Snapshot()
}

// solveFresh plans pods with an engine that knows nothing but the catalogue.
func solveFresh(e *engine.Engine, pods []*corev1.Pod, pools []engine.Pool, settings engine.Settings, daemons ...*appsv1.DaemonSet) *engine.Plan {
	snap := snapshotOf(pods, daemons...)
	return e.Plan(engine.Question{Snap: snap, Pools: pools, Pods: snap.Provisionable(), Settings: settings, Now: now})
}

// prepared returns an engine that has read the catalogue.
func prepared(pools []engine.Pool, settings engine.Settings) *engine.Engine {
	e := engine.New()
	e.Plan(engine.Question{Snap: cluster.NewStore().Snapshot(), Pools: pools, Settings: settings, Now: now})
	return e
}
