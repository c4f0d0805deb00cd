package daysim

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/aws/offline"
	catalogs "karpenter.sh/karpenter/internal/control/catalog"
	"karpenter.sh/karpenter/internal/observe"
	"karpenter.sh/karpenter/internal/observe/telemetry"
	"karpenter.sh/karpenter/internal/testing/benchload"
	"karpenter.sh/karpenter/internal/testing/fakecloud"
	"karpenter.sh/karpenter/internal/testing/memapi"
	"karpenter.sh/karpenter/internal/testing/sim"
)

// spent is what this process has used so far.
type spent struct {
	processor time.Duration
	memory    uint64 // bytes allocated
}

func soFar() spent {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return spent{benchload.ProcessorTime(), m.TotalAlloc}
}

// TestAnIdleClusterCostsLittle has 1,000 nodes and 10,000 pods to which nothing happens but heartbeats. What it measures includes the
// API in memory. The guard is on what is allocated, which no other process changes.
func TestAnIdleClusterCostsLittle(t *testing.T) {
	const nodes, pods, minutes = 1000, 10_000, 10
	types, err := offline.Catalog(offline.Options{Zones: []string{"us-east-1a", "us-east-1b", "us-east-1c"}})
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		w, err := sim.New(sim.Options{ReadyAfter: time.Second, Cloud: fakecloud.Options{
			Catalog: func(*v1.NodePool) (*cloud.Catalog, error) { return types, nil },
		}})
		if err != nil {
			t.Fatal(err)
		}
		w.API.Put(sim.ReadyClass("default"))
		w.API.Put(pool(func(p *v1.NodePool) { p.Spec.Disruption.ConsolidateAfter = v1.NillableDuration{} }))
		for i := range nodes {
			w.API.Put(sim.Claim(fmt.Sprintf("claim-%04d", i), func(c *v1.NodeClaim) {
				c.Finalizers = []string{v1.TerminationFinalizer}
				c.Spec.Requirements = []v1.NodeSelectorRequirementWithMinValues{{Key: corev1.LabelInstanceTypeStable, Operator: "In", Values: []string{"m5.xlarge", "m6i.xlarge"}}}
			}))
		}
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		defer running.Wait()
		defer stop()
		k := w.Karpenter(sim.KarpenterOptions{Name: "karpenter", Provision: true, Disrupt: true})
		k.Add(watching(w, k).Run)
		running.Go(func() { k.Run(ctx) })
		time.Sleep(time.Minute)
		names := initialized(k)
		if len(names) != nodes {
			t.Fatalf("%d nodes of %d", len(names), nodes)
		}
		for i := range pods {
			w.API.Put(sim.Pod(fmt.Sprintf("pod-%05d", i), "300m", func(p *corev1.Pod) {
				p.Labels, p.Spec.NodeName, p.Status.Phase = map[string]string{"app": "web"}, names[i%nodes], corev1.PodRunning
				p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}, {Type: corev1.PodReady, Status: corev1.ConditionTrue}}
				owned(p)
			}))
		}
		running.Go(func() { beat(ctx, w, names) })
		time.Sleep(10 * time.Minute)

		before := soFar()
		time.Sleep(minutes * time.Minute)
		after := soFar()
		allocated := float64(after.memory-before.memory) / minutes / (1 << 20)
		t.Logf("a minute takes %v of processor time and %.1f MB of garbage", (after.processor-before.processor)/minutes, allocated)
		if allocated > mostGarbage {
			t.Errorf("%.1f MB are allocated in a minute, want at most %d", allocated, mostGarbage)
		}
		if n := len(initialized(k)); n != nodes {
			t.Errorf("%d nodes are left of %d", n, nodes)
		}
	})
}

// mostGarbage is how many MB an idle minute may allocate.
const mostGarbage = 25

// watching is what reports on the cluster.
func watching(w *sim.World, k *sim.Karpenter) *observe.Observer {
	kinds := telemetry.ConditionKinds("karpenter_k8s_aws_ec2nodeclass")
	return observe.New(observe.Deps{
		Store: k.Store, Metrics: telemetry.NewMetrics(prometheus.NewRegistry(), kinds), Events: k.Sink(), Times: telemetry.NewPodTimes(),
		Catalogs: catalogs.New(w.Cloud), Kinds: kinds, Leading: func() bool { return true }, Detailed: true,
		Missing: func() ([]string, time.Duration) { return nil, 0 },
	})
}

func initialized(k *sim.Karpenter) (names []string) {
	for n := range k.Store.Snapshot().Nodes() {
		if n.Node != nil && n.Claim != nil && n.Initialized() {
			names = append(names, n.Node.Name)
		}
	}
	return names
}

// beat has every kubelet say every five minutes that it is alive, one after the other.
func beat(ctx context.Context, w *sim.World, names []string) {
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-time.After(5 * time.Minute / time.Duration(len(names))):
		}
		memapi.Edit(w.API, "", names[i%len(names)], func(n *corev1.Node) {
			for j := range n.Status.Conditions {
				n.Status.Conditions[j].LastHeartbeatTime = metav1.NewTime(time.Now())
			}
		})
	}
}
