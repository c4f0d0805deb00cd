package observe

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

type noCatalogs struct{}

func (noCatalogs) Pools(context.Context, *cluster.Snapshot) (map[string]engine.Pool, map[string]bool) {
	return nil, nil
}

func nodeName(i int) string {
	return fmt.Sprintf("ip-10-%d-%d-%d.ec2.internal", i>>16, i>>8&255, i&255)
}

// large returns an observer of a cluster of so many nodes and so many pods.
func large(nodes, pods int) *Observer {
	s := cluster.NewStore()
	s.Update(func(d *cluster.Draft) {
		for i := range nodes {
			putMachine(d, i)
		}
	})
	for base := 0; base < pods; base += 5000 {
		s.Update(func(d *cluster.Draft) {
			for i := base; i < min(pods, base+5000); i++ {
				d.PutPod(runningPod(i, nodeName(i%nodes)))
			}
		})
	}
	s.Update(func(d *cluster.Draft) { d.Synced(true) })
	kinds := telemetry.ConditionKinds("karpenter.k8s.aws/ec2nodeclass")
	m := telemetry.NewMetrics(prometheus.NewRegistry(), kinds)
	events := telemetry.NewEvents(func(context.Context, *corev1.Event) error { return nil }, m)
	return New(Deps{
		Store: s, Metrics: m, Events: events, Kinds: kinds, Times: telemetry.NewPodTimes(), Catalogs: noCatalogs{}, Detailed: true, Historic: true,
		Leading: func() bool { return true }, Missing: func() ([]string, time.Duration) { return nil, 0 },
		NodeLabels: []string{corev1.LabelInstanceTypeStable, corev1.LabelTopologyZone, v1.CapacityTypeLabelKey, corev1.LabelArchStable, corev1.LabelOSStable, v1.NodePoolLabelKey},
	})
}

func putMachine(d *cluster.Draft, i int) {
	name := nodeName(i)
	labels := map[string]string{
		v1.NodePoolLabelKey: "default", corev1.LabelInstanceTypeStable: "m5.2xlarge", corev1.LabelTopologyZone: "us-east-1a", v1.CapacityTypeLabelKey: "spot",
		corev1.LabelArchStable: "amd64", corev1.LabelOSStable: "linux", v1.NodeRegisteredLabelKey: "true", v1.NodeInitializedLabelKey: "true",
		"karpenter.k8s.aws/ec2nodeclass": "default",
	}
	q := resource.MustParse
	capacity := corev1.ResourceList{"cpu": q("8"), "memory": q("32Gi"), "pods": q("58"), "ephemeral-storage": q("20Gi")}
	c := &v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("default-", i), UID: types.UID(fmt.Sprint("c", i)), Labels: labels}}
	c.Spec.NodeClassRef = &v1.NodeClassReference{Group: "karpenter.k8s.aws", Kind: "EC2NodeClass", Name: "default"}
	c.Status.ProviderID, c.Status.NodeName = fmt.Sprint("aws:///us-east-1a/i-", i), name
	for _, kind := range []string{v1.ConditionTypeLaunched, v1.ConditionTypeRegistered, v1.ConditionTypeInitialized, v1.ConditionTypeConsolidatable, v1.ConditionTypeReady} {
		c.Status.Conditions = append(c.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: kind})
	}
	d.PutClaim(c)
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(fmt.Sprint("n", i)), Labels: labels}}
	n.Spec.ProviderID, n.Status.Capacity, n.Status.Allocatable = c.Status.ProviderID, capacity, capacity
	for _, kind := range []corev1.NodeConditionType{corev1.NodeReady, corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure} {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: kind, Status: corev1.ConditionTrue})
	}
	d.PutNode(n)
}

func runningPod(i int, node string) *corev1.Pod {
	yes := true
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: fmt.Sprint("ns-", i%100), Name: fmt.Sprintf("web-%d-6f7d8c9b5-%05d", i%1000, i), UID: types.UID(fmt.Sprintf("7c5d0b1e-0000-4000-8000-%012d", i)),
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: fmt.Sprint("web-", i%1000), UID: types.UID(fmt.Sprint("rs", i%1000)), Controller: &yes}},
	}}
	p.Spec.NodeName = node
	p.Spec.Containers = []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{"cpu": resource.MustParse("250m"), "memory": resource.MustParse("512Mi")},
	}}}
	p.Status.Phase = corev1.PodRunning
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	return p
}

// counting counts what is written.
type counting struct{ n int }

func (c *counting) Write(b []byte) (int, error) { c.n += len(b); return len(b), nil }

// A scrape of 5,000 nodes and 100,000 pods is 70 MB of text, and must not need that much memory: any pod of the cluster may ask for it.
func TestALargeScrapeNeedsLittleMemory(t *testing.T) {
	const most = 40 << 20
	o := large(5000, 100_000)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var text counting
	if err := o.Scrape(&text); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	allocated := after.TotalAlloc - before.TotalAlloc
	t.Logf("%.1f MB of text, %.1f MB allocated", float64(text.n)/1e6, float64(allocated)/1e6)
	if text.n < 50e6 {
		t.Errorf("%d bytes of text: something is missing", text.n)
	}
	if allocated > most {
		t.Errorf("%d bytes were allocated, want at most %d", allocated, most)
	}
}

func BenchmarkScrape(b *testing.B) {
	o := large(1000, 20_000)
	b.ReportAllocs()
	for b.Loop() {
		if err := o.Scrape(io.Discard); err != nil {
			b.Fatal(err)
		}
	}
}
