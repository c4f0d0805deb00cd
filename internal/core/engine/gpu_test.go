package engine_test

import (
	"os"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/work"
	"karpenter.sh/karpenter/internal/testing/benchload"
)

// gpuPools are a general pool and one of machines with GPUs, on demand.
func gpuPools(tb testing.TB) []engine.Pool {
	gpus := benchload.Pool(false, true)
	gpus.Name, gpus.UID = "gpus", "gpus"
	gpus.Spec.Template.Spec.Requirements = append(gpus.Spec.Template.Spec.Requirements,
		v1.NodeSelectorRequirementWithMinValues{Key: awsv1.LabelInstanceGPUManufacturer, Operator: corev1.NodeSelectorOpIn, Values: []string{"nvidia"}})
	return []engine.Pool{{Pool: benchload.Pool(false, false), Catalog: catalogue(tb)}, {Pool: gpus, Catalog: catalogue(tb)}}
}

// gpuParts are the pods of a cluster of GPUs, and each kind of them alone.
var gpuParts = []struct {
	name string
	has  func(gpus int64) bool
	gap  float64 // at most
}{
	{"without GPUs", func(n int64) bool { return n == 0 }, 0.005},
	{"one GPU", func(n int64) bool { return n == 1 }, 0.005},
	{"several GPUs", func(n int64) bool { return n > 1 }, 0.005},
	{"all", func(int64) bool { return true }, 0.01},
}

// gpuPods are the pods of a cluster of GPUs that ask for so many.
func gpuPods(seed uint64, has func(gpus int64) bool) []*corev1.Pod {
	return slices.DeleteFunc(benchload.GPUCluster(seed), func(p *corev1.Pod) bool {
		gpus := p.Spec.Containers[0].Resources.Requests[benchload.GPU]
		return !has(gpus.Value())
	})
}

// Mixes as clusters of GPUs have them are planned within a percent of their bound, and pods without GPUs use the cores that those with GPUs
// leave: together they cost less than each kind alone. In the fourth most pods share machines of eight GPUs. With KARPENTER_SOAK ten clusters are
// planned.
func TestGPUClusters(t *testing.T) {
	clusters := []uint64{0, 3}
	if os.Getenv("KARPENTER_SOAK") != "" {
		clusters = []uint64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}
	}
	for _, seed := range clusters {
		if !planGPUCluster(t, seed) {
			t.Errorf("cluster %d missed it", seed)
		}
	}
}

// planGPUCluster plans each kind of pods of a cluster and all of them, and reports whether gaps and price are as they should be.
func planGPUCluster(t *testing.T, seed uint64) (near bool) {
	t.Helper()
	pools := gpuPools(t)
	near = true
	var alone float64
	for _, part := range gpuParts {
		p := solveFresh(prepared(pools, engine.Settings{}), gpuPods(seed, part.has), pools, engine.Settings{})
		t.Logf("cluster %d, %s: %.2f $/h on %d nodes, a gap of %.3f %%, %.0f ms of work", seed, part.name, p.Price.Dollars(), len(p.Open), 100*p.Gap(), 1000*p.Work.Seconds())
		if p.Gap() < 0 || len(p.Refused) > 0 || p.Work > 2*work.Second {
			t.Errorf("cluster %d, %s: a gap of %.3f %%, %d refused, %.0f ms of work", seed, part.name, 100*p.Gap(), len(p.Refused), 1000*p.Work.Seconds())
		}
		near = near && p.Gap() <= part.gap
		if part.name != "all" {
			alone += p.Cost.Dollars()
		} else {
			near = near && p.Cost.Dollars() <= 0.985*alone
		}
	}
	return near
}

// BenchmarkGPUClusters plans them.
func BenchmarkGPUClusters(b *testing.B) {
	pools := gpuPools(b)
	for _, part := range gpuParts {
		b.Run(part.name, func(b *testing.B) {
			benchmarkFresh(b, gpuPods(1, part.has), pools)
		})
	}
}
