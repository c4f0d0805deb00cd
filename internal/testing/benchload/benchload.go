// Package benchload holds the workloads that price and speed are measured with, and the pool and region they are planned for. README.md
// beside it describes the file.
package benchload

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
)

// Now is the time at which the workloads are planned.
var Now = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

// Region and Zones say where.
const Region = "us-east-1"

// Zones returns the zones of Region that are sold in.
func Zones() []string { return []string{"us-east-1a", "us-east-1b", "us-east-1c"} }

//go:embed workloads.json.gz
var packed []byte

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

var read = sync.OnceValues(func() (map[string][]podGroup, error) {
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	var out map[string][]podGroup
	return out, json.NewDecoder(z).Decode(&out)
})

// Pods returns the pods of a named workload as they stand in the API server: pending and unschedulable.
func Pods(name string) ([]*corev1.Pod, error) {
	all, err := read()
	if err != nil {
		return nil, fmt.Errorf("read the workloads: %w", err)
	}
	groups, ok := all[name]
	if !ok {
		return nil, fmt.Errorf("there is no workload %q", name)
	}
	var out []*corev1.Pod
	for i := range groups {
		g := &groups[i]
		for _, row := range g.Pods {
			p := Pending(fmt.Sprintf("pod-%05d", len(out)), number(row[0]), number(row[1]))
			g.shape(p, row)
			out = append(out, p)
		}
	}
	return out, nil
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
		p.Spec.TopologySpreadConstraints = Spread(g.Key, max(g.MaxSkew, 1), map[string]string{"my-label": text(row[3])})
	case "affinity":
		p.Labels = map[string]string{"my-affinity": text(row[2])}
		p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{Term(g.Key, p.Labels)}}}
	case "anti-affinity":
		p.Labels = map[string]string{"app": "nginx"}
		p.Spec.Affinity = Apart(g.Key, p.Labels)
	case "preferences":
		g.prefer(p)
	default:
		p.Labels = map[string]string{"app": g.Name}
		if g.Spread != "" {
			p.Spec.TopologySpreadConstraints = Spread(g.Spread, max(g.MaxSkew, 1), p.Labels)
		}
		if g.Anti != "" {
			p.Spec.Affinity = Apart(g.Anti, p.Labels)
		}
	}
}

func (g *podGroup) prefer(p *corev1.Pod) {
	p.Labels = map[string]string{"app": "nginx"}
	p.Spec.Affinity = &corev1.Affinity{
		NodeAffinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{Weight: 1,
			Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
				{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: []string{"us-east-1a"}}}}}}},
		PodAntiAffinity: &corev1.PodAntiAffinity{},
	}
	for _, x := range g.AntiPreference {
		p.Spec.Affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution =
			append(p.Spec.Affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution,
				corev1.WeightedPodAffinityTerm{Weight: int32(number(x[0])), PodAffinityTerm: Term(text(x[1]), p.Labels)})
	}
}

// Spread is a hard spread over a key of the pods with some labels.
func Spread(key string, skew int32, labels map[string]string) []corev1.TopologySpreadConstraint {
	return []corev1.TopologySpreadConstraint{{MaxSkew: skew, TopologyKey: key,
		WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: &metav1.LabelSelector{MatchLabels: labels}}}
}

// Term matches the pods with some labels, in one domain of a key.
func Term(key string, labels map[string]string) corev1.PodAffinityTerm {
	return corev1.PodAffinityTerm{TopologyKey: key, LabelSelector: &metav1.LabelSelector{MatchLabels: labels}}
}

// Apart keeps pods with some labels in different domains of a key.
func Apart(key string, labels map[string]string) *corev1.Affinity {
	return &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{Term(key, labels)}}}
}

// Pending returns a pod that kube-scheduler found no place for.
func Pending(name string, cpuMilli, memMiB int64) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name),
			CreationTimestamp: metav1.NewTime(Now.Add(-time.Minute))},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main",
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU:    *resource.NewMilliQuantity(cpuMilli, resource.DecimalSI),
				corev1.ResourceMemory: *resource.NewQuantity(memMiB<<20, resource.BinarySI),
			}}}}},
		Status: corev1.PodStatus{Phase: corev1.PodPending,
			Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
				Reason: corev1.PodReasonUnschedulable}}},
	}
}

// Pool is the pool of all price figures: categories c, m, r, generations above 4.
func Pool(spot, anyCategory bool) *v1.NodePool {
	capacity := []string{v1.CapacityTypeOnDemand}
	if spot {
		capacity = append(capacity, v1.CapacityTypeSpot)
	}
	p := &v1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "default", UID: "pool"}}
	p.Spec.Template.Spec.NodeClassRef = &v1.NodeClassReference{Group: awsv1.Group, Kind: "EC2NodeClass", Name: "default"}
	req := func(key string, op corev1.NodeSelectorOperator, values ...string) {
		p.Spec.Template.Spec.Requirements = append(p.Spec.Template.Spec.Requirements,
			v1.NodeSelectorRequirementWithMinValues{Key: key, Operator: op, Values: values})
	}
	req(v1.CapacityTypeLabelKey, corev1.NodeSelectorOpIn, capacity...)
	if !anyCategory {
		req(awsv1.LabelInstanceCategory, corev1.NodeSelectorOpIn, "c", "m", "r")
		req(awsv1.LabelInstanceGeneration, corev1.NodeSelectorOpGt, "4")
	}
	return p
}

// Resize returns n pods of the same mix: some of each group of equal length, or more of the same under other names. It is for mixes whose
// pods stand group by group, such as diverse5000.
func Resize(pods []*corev1.Pod, n int) []*corev1.Pod {
	const groups = 5
	size := len(pods) / groups
	var out []*corev1.Pod
	for i := range n {
		p := pods[i%groups*size+i/groups%size].DeepCopy()
		p.Name = fmt.Sprintf("pod-%05d", i)
		p.UID = types.UID(p.Name)
		out = append(out, p)
	}
	return out
}

// GPU is what pods ask for that use one.
const GPU = "nvidia.com/gpu"

// GPUCluster returns 8,152 pods as a cluster of GPUs has them, drawn with a seed: a hundred shapes, of which a few
// hold most pods (Zipf); of seven shapes six ask for a GPU, of those few for 2, 4 or 8; 1–64 cores and 2–500 GiB.
func GPUCluster(seed uint64) []*corev1.Pod {
	const pods, shapes = 8152, 100
	rng := rand.New(rand.NewPCG(seed, shapes))
	type need struct{ cpu, mem, gpus int64 }
	cpus := []int64{1, 2, 4, 6, 8, 10, 12, 16, 24, 32, 48, 64}
	perCore := []int64{2, 3, 4, 6, 8}
	var needs []need
	for i := range shapes {
		n := need{cpu: cpus[min(rng.IntN(len(cpus)), rng.IntN(len(cpus)))]}
		n.mem = min(n.cpu*perCore[rng.IntN(len(perCore))], 500)
		switch {
		case i%7 == 3: // none
		case i%20 == 19:
			n.gpus = 2 << rng.IntN(3)
			n.cpu, n.mem = min(n.cpu, n.gpus*8), min(n.mem, n.gpus*32)
		default:
			n.gpus = 1
		}
		needs = append(needs, n)
	}
	zipf := rand.NewZipf(rng, 1.2, 2, shapes-1)
	var out []*corev1.Pod
	for i := range pods {
		n := needs[zipf.Uint64()]
		p := Pending(fmt.Sprintf("pod-%05d", i), n.cpu*1000, n.mem<<10)
		if n.gpus > 0 {
			p.Spec.Containers[0].Resources.Requests[GPU] = *resource.NewQuantity(n.gpus, resource.DecimalSI)
		}
		out = append(out, p)
	}
	return out
}

// ProcessorTime is what this process has used of all processors: on a busy machine it says more than the clock.
func ProcessorTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // cannot fail for oneself
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
