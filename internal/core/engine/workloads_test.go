package engine_test

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/aws/offline"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/engine"
)

// now is the time of all tests and benchmarks here.
var now = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

// A podGroup is one entry of workloads.json.gz; see README.md beside it.
type podGroup struct {
	Name           string `json:"name"`
	Kind           string `json:"kind"`
	Key            string `json:"key"`
	Spread         string `json:"spread"`
	Anti           string `json:"anti"`
	MaxSkew        int32  `json:"maxSkew"`
	Pods           [][]json.RawMessage
	AntiPreference [][]json.RawMessage `json:"antiPreference"`
}

var readWorkloads = sync.OnceValues(func() (map[string][]podGroup, error) {
	f, err := os.Open("testdata/workloads.json.gz")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	var out map[string][]podGroup
	return out, json.NewDecoder(z).Decode(&out)
})

// workload returns the pods of a named workload as they stand in the API server: pending and unschedulable.
func workload(tb testing.TB, name string) []*corev1.Pod {
	tb.Helper()
	all, err := readWorkloads()
	if err != nil {
		tb.Fatal(err)
	}
	groups, ok := all[name]
	if !ok {
		tb.Fatalf("no workload %q", name)
	}
	var out []*corev1.Pod
	for gi := range groups {
		g := &groups[gi]
		for _, row := range g.Pods {
			p := pendingPod(fmt.Sprintf("pod-%05d", len(out)), number(row[0]), number(row[1]))
			g.shape(p, row)
			out = append(out, p)
		}
	}
	return out
}

func number(raw json.RawMessage) int64 {
	var n int64
	if err := json.Unmarshal(raw, &n); err != nil {
		panic(err)
	}
	return n
}

func text(raw json.RawMessage) string {
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		panic(err)
	}
	return s
}

// shape gives a pod what its group asks for.
func (g *podGroup) shape(p *corev1.Pod, row []json.RawMessage) {
	switch g.Kind {
	case "generic":
		p.Labels = map[string]string{"my-label": text(row[2])}
	case "spread":
		p.Labels = map[string]string{"my-label": text(row[2])}
		p.Spec.TopologySpreadConstraints = spreadOver(g.Key, max(g.MaxSkew, 1), map[string]string{"my-label": text(row[3])})
	case "affinity":
		p.Labels = map[string]string{"my-affinity": text(row[2])}
		p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{podTerm(g.Key, p.Labels)}}}
	case "anti-affinity":
		p.Labels = map[string]string{"app": "nginx"}
		p.Spec.Affinity = antiAffinity(g.Key, p.Labels)
	case "preferences":
		g.prefer(p)
	default:
		p.Labels = map[string]string{"app": g.Name}
		if g.Spread != "" {
			p.Spec.TopologySpreadConstraints = spreadOver(g.Spread, max(g.MaxSkew, 1), p.Labels)
		}
		if g.Anti != "" {
			p.Spec.Affinity = antiAffinity(g.Anti, p.Labels)
		}
	}
}

func (g *podGroup) prefer(p *corev1.Pod) {
	p.Labels = map[string]string{"app": "nginx"}
	p.Spec.Affinity = &corev1.Affinity{
		NodeAffinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{Weight: 1,
			Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: []string{"us-east-1a"}}}}}}},
		PodAntiAffinity: &corev1.PodAntiAffinity{},
	}
	for _, x := range g.AntiPreference {
		p.Spec.Affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution = append(p.Spec.Affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution,
			corev1.WeightedPodAffinityTerm{Weight: int32(number(x[0])), PodAffinityTerm: podTerm(text(x[1]), p.Labels)})
	}
}

func spreadOver(key string, skew int32, labels map[string]string) []corev1.TopologySpreadConstraint {
	return []corev1.TopologySpreadConstraint{{MaxSkew: skew, TopologyKey: key, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: &metav1.LabelSelector{MatchLabels: labels}}}
}

func podTerm(key string, labels map[string]string) corev1.PodAffinityTerm {
	return corev1.PodAffinityTerm{TopologyKey: key, LabelSelector: &metav1.LabelSelector{MatchLabels: labels}}
}

func antiAffinity(key string, labels map[string]string) *corev1.Affinity {
	return &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{podTerm(key, labels)}}}
}

// pendingPod returns a pod that kube-scheduler found no place for.
func pendingPod(name string, cpuMilli, memMiB int64) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(now.Add(-time.Minute))},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU: *resource.NewMilliQuantity(cpuMilli, resource.DecimalSI), corev1.ResourceMemory: *resource.NewQuantity(memMiB<<20, resource.BinarySI),
		}}}}},
		Status: corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}},
	}
}

// benchPool is the pool of all price figures: categories c, m, r, generations above 4.
func benchPool(spot, anyCategory bool) *v1.NodePool {
	capacity := []string{v1.CapacityTypeOnDemand}
	if spot {
		capacity = append(capacity, v1.CapacityTypeSpot)
	}
	p := &v1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "default", UID: "pool"}}
	p.Spec.Template.Spec.NodeClassRef = &v1.NodeClassReference{Group: "karpenter.k8s.aws", Kind: "EC2NodeClass", Name: "default"}
	req := func(key string, op corev1.NodeSelectorOperator, values ...string) {
		p.Spec.Template.Spec.Requirements = append(p.Spec.Template.Spec.Requirements, v1.NodeSelectorRequirementWithMinValues{Key: key, Operator: op, Values: values})
	}
	req(v1.CapacityTypeLabelKey, corev1.NodeSelectorOpIn, capacity...)
	if !anyCategory {
		req("karpenter.k8s.aws/instance-category", corev1.NodeSelectorOpIn, "c", "m", "r")
		req("karpenter.k8s.aws/instance-generation", corev1.NodeSelectorOpGt, "4")
	}
	return p
}

var ec2 = sync.OnceValues(func() (*cloud.Catalog, error) {
	return offline.Catalog(offline.Options{Region: "us-east-1", Zones: []string{"us-east-1a", "us-east-1b", "us-east-1c"}})
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
	set.Spec.Template.Spec = pendingPod("agent", 200, 256).Spec
	return set
}

// snapshotOf puts pods, and DaemonSets, into a fresh store.
func snapshotOf(pods []*corev1.Pod, daemons ...*appsv1.DaemonSet) *cluster.Snapshot {
	s := cluster.NewStore()
	s.Update(func(d *cluster.Draft) {
		for _, set := range daemons {
			d.PutDaemonSet(set)
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
