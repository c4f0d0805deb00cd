package engine_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/aws/offline"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/testing/benchload"
)

// largeCluster is a store with many nodes, all nearly full, and pending pods of many classes.
func largeCluster(tb testing.TB, nodes, podsPerNode, pending, classes int) *cluster.Store {
	tb.Helper()
	s := cluster.NewStore()
	s.Update(func(d *cluster.Draft) {
		for n := range nodes {
			name := fmt.Sprintf("node-%05d", n)
			d.PutClaim(runningClaim(name))
			d.PutNode(runningNode(name, n))
			for i := range podsPerNode {
				p := benchload.Pending(fmt.Sprintf("%s-%02d", name, i), 200, 800)
				p.Labels = map[string]string{"app": fmt.Sprintf("app-%03d", (n*podsPerNode+i)%500)}
				p.Spec.NodeName = name
				p.Status = corev1.PodStatus{Phase: corev1.PodRunning}
				d.PutPod(p)
			}
		}
		for i := range pending {
			d.PutPod(pendingOf(i, classes))
		}
		d.Synced(true)
	})
	return s
}

// pendingOf returns the i-th pending pod; every third class is spread over zones.
func pendingOf(i, classes int) *corev1.Pod {
	k := i % classes
	p := benchload.Pending(fmt.Sprintf("new-%05d", i), int64(100+50*(k%20)), int64(256*(1+k%13)))
	p.Labels = map[string]string{"app": fmt.Sprintf("new-%03d", k)}
	if k%3 == 0 {
		p.Spec.TopologySpreadConstraints = benchload.Spread(corev1.LabelTopologyZone, 1, p.Labels)
	}
	return p
}

func runningClaim(name string) *v1.NodeClaim {
	c := &v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "claim-" + name, UID: types.UID("claim-" + name)}}
	c.Status.ProviderID, c.Status.NodeName = "test://"+name, name
	return c
}

func runningNode(name string, i int) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{
		corev1.LabelHostname: name, corev1.LabelTopologyZone: "us-east-1" + string(rune('a'+i%3)), corev1.LabelArchStable: "amd64", corev1.LabelOSStable: "linux",
		corev1.LabelInstanceTypeStable: "m5.xlarge", v1.CapacityTypeLabelKey: v1.CapacityTypeOnDemand, v1.NodePoolLabelKey: "pool-00",
		v1.NodeRegisteredLabelKey: "true", v1.NodeInitializedLabelKey: "true",
	}}}
	n.Spec.ProviderID = "test://" + name
	n.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("3920m"), corev1.ResourceMemory: resource.MustParse("15Gi"), corev1.ResourcePods: resource.MustParse("58")}
	n.Status.Capacity = n.Status.Allocatable
	return n
}

func manyPools(tb testing.TB, n int) []engine.Pool {
	tb.Helper()
	full, err := offline.Catalog(offline.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	var out []engine.Pool
	for i := range n {
		p := benchload.Pool(true, true)
		p.Name, p.UID = fmt.Sprintf("pool-%02d", i), types.UID(fmt.Sprint(i))
		p.Spec.Template.Labels = map[string]string{"team": fmt.Sprint(i)}
		out = append(out, engine.Pool{Pool: p, Catalog: &cloud.Catalog{Types: full.Types}})
	}
	return out
}

// BenchmarkLargeCluster plans 5,000 pending pods of 200 classes beside 95,000 running ones on 5,000 nodes, with 50 pools of
// about 1,300 types each: cold, and again after one more pod came.
func BenchmarkLargeCluster(b *testing.B) {
	store := largeCluster(b, 5000, 19, 5000, 200)
	pools := manyPools(b, 50)
	ask := func(e *engine.Engine) *engine.Plan {
		snap := store.Snapshot()
		return e.Plan(engine.Question{Snap: snap, Pools: pools, Pods: snap.Provisionable(), Now: now})
	}
	b.Run("cold", func(b *testing.B) {
		var plan *engine.Plan
		b.ReportAllocs()
		for b.Loop() {
			plan = ask(engine.New())
		}
		report(b, plan)
	})
	b.Run("after one change", func(b *testing.B) {
		e := engine.New()
		plan := ask(e)
		b.ReportAllocs()
		i := 0
		var busy time.Duration
		for b.Loop() {
			b.StopTimer()
			i++
			store.Update(func(d *cluster.Draft) { d.PutPod(pendingOf(5000+i, 200)) })
			before := benchload.ProcessorTime()
			b.StartTimer()
			plan = ask(e)
			busy += benchload.ProcessorTime() - before
		}
		b.ReportMetric(float64(busy.Microseconds())/float64(b.N)/1000, "cpu-ms/op")
		report(b, plan)
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		b.ReportMetric(float64(m.HeapAlloc)/1e6, "live-MB")
		runtime.KeepAlive(e)
	})
}

// BenchmarkImpossible asks about 10,000 pods that cannot run, reasons included.
func BenchmarkImpossible(b *testing.B) {
	var pods []*corev1.Pod
	for i := range 10_000 {
		p := benchload.Pending(fmt.Sprintf("pod-%05d", i), int64(1_000_000+i%5000), 1024)
		if i%2 == 0 {
			p.Spec.NodeSelector = map[string]string{"nobody": "has-this"}
		}
		pods = append(pods, p)
	}
	pools := []engine.Pool{{Pool: benchload.Pool(false, false), Catalog: catalogue(b)}}
	benchmarkFresh(b, pods, pools)
}

// benchmarkFresh plans pods as an engine does that has read its catalogues and nothing else.
func benchmarkFresh(b *testing.B, pods []*corev1.Pod, pools []engine.Pool) {
	b.ReportAllocs()
	var plan *engine.Plan
	for b.Loop() {
		b.StopTimer()
		e := prepared(pools, engine.Settings{})
		b.StartTimer()
		plan = solveFresh(e, pods, pools, engine.Settings{})
	}
	report(b, plan)
}
