package engine_test

import (
	"fmt"
	"runtime"
	"runtime/metrics"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/testing/benchload"
)

// A blowUp is pods that one user can write and whose terms, multiplied with each other, would keep everybody else waiting.
type blowUp struct {
	pods  func() []*corev1.Pod
	pools int
}

// blowUps are the questions that once took a controller's memory or time.
var blowUps = map[string]blowUp{
	"each of 10,000 pods has a zone and a host spread of its own": {pods: func() []*corev1.Pod {
		return podsLike(10_000, func(i int, p *corev1.Pod) {
			p.Spec.TopologySpreadConstraints = append(benchload.Spread(corev1.LabelTopologyZone, 1, p.Labels), benchload.Spread(corev1.LabelHostname, 1, p.Labels)...)
		})
	}},
	"each of 10,000 pods keeps its like off its host": {pods: func() []*corev1.Pod {
		return podsLike(10_000, func(i int, p *corev1.Pod) { p.Spec.Affinity = benchload.Apart(corev1.LabelHostname, p.Labels) })
	}},
	"each of 10,000 pods keeps its like out of its zone": {pods: func() []*corev1.Pod {
		return podsLike(10_000, func(i int, p *corev1.Pod) { p.Spec.Affinity = benchload.Apart(corev1.LabelTopologyZone, p.Labels) })
	}},
	"each of 10,000 pods keeps the next one off its host": {pods: func() []*corev1.Pod {
		return podsLike(10_000, func(i int, p *corev1.Pod) {
			p.Spec.Affinity = benchload.Apart(corev1.LabelHostname, map[string]string{"app": fmt.Sprintf("app-%d", i+1)})
		})
	}},
	"each of 1,000 pods has 1,000 terms of node affinity": {pods: func() []*corev1.Pod {
		return podsLike(1000, func(i int, p *corev1.Pod) {
			required := &corev1.NodeSelector{}
			for k := range 1000 {
				required.NodeSelectorTerms = append(required.NodeSelectorTerms, corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
					{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpNotIn, Values: []string{fmt.Sprintf("zone-%d-%d", i, k)}}}})
			}
			p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: required}}
		})
	}},
	"each of 500 pods would rather keep 1,000 others away": {pods: func() []*corev1.Pod {
		return podsLike(500, func(i int, p *corev1.Pod) {
			anti := &corev1.PodAntiAffinity{}
			for k := range 1000 {
				anti.PreferredDuringSchedulingIgnoredDuringExecution = append(anti.PreferredDuringSchedulingIgnoredDuringExecution, corev1.WeightedPodAffinityTerm{
					Weight: 1, PodAffinityTerm: benchload.Term(corev1.LabelHostname, map[string]string{"app": fmt.Sprintf("app-%d-%d", i, k)})})
			}
			p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: anti}
		})
	}},
	"each of 10,000 pods selects by what labels are not": {pods: func() []*corev1.Pod {
		return podsLike(10_000, func(i int, p *corev1.Pod) {
			p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.DoNotSchedule,
				LabelSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
					{Key: "app", Operator: metav1.LabelSelectorOpNotIn, Values: []string{fmt.Sprintf("app-%d", i+1)}}}}}}
		})
	}},
	"10,000 plain pods and 100 pools": {pools: 100, pods: func() []*corev1.Pod { return podsLike(10_000, func(int, *corev1.Pod) {}) }},
}

// podsLike returns n pods of 40 sizes, each with a label of its own.
func podsLike(n int, shape func(i int, p *corev1.Pod)) []*corev1.Pod {
	var out []*corev1.Pod
	for i := range n {
		p := benchload.Pending(fmt.Sprintf("pod-%05d", i), int64(100+50*(i%8)), int64(256*(1+i%5)))
		p.Labels = map[string]string{"app": fmt.Sprintf("app-%d", i)}
		shape(i, p)
		out = append(out, p)
	}
	return out
}

// BenchmarkBlowUp measures what such questions cost: at most two seconds of a processor and 400 MB.
func BenchmarkBlowUp(b *testing.B) {
	for name, q := range blowUps {
		b.Run(name, func(b *testing.B) {
			pools := manyPools(b, max(q.pools, 1))
			pods := q.pods()
			b.ReportAllocs()
			var plan *engine.Plan
			var busy time.Duration
			var peak uint64
			for b.Loop() {
				b.StopTimer()
				e := prepared(pools, engine.Settings{})
				snap := snapshotOf(pods)
				runtime.GC()
				top := watchHeap()
				before := benchload.ProcessorTime()
				b.StartTimer()
				plan = e.Plan(engine.Question{Snap: snap, Pools: pools, Pods: snap.Provisionable(), Now: now})
				busy += benchload.ProcessorTime() - before
				peak = max(peak, top())
			}
			b.ReportMetric(float64(busy.Microseconds())/float64(b.N)/1000, "cpu-ms/op")
			b.ReportMetric(float64(peak)/1e6, "peak-MB")
			b.ReportMetric(float64(len(plan.Open)), "nodes")
			b.ReportMetric(float64(len(plan.Refused)), "refused")
		})
	}
}

// watchHeap samples the heap until the returned function is called, which says by how much it was larger at most.
func watchHeap() (most func() uint64) {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	read := func() uint64 {
		metrics.Read(sample)
		return sample[0].Value.Uint64()
	}
	start := read()
	top := start
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for tick := time.NewTicker(2 * time.Millisecond); ; {
			top = max(top, read())
			select {
			case <-stop:
				tick.Stop()
				return
			case <-tick.C:
			}
		}
	}()
	return func() uint64 {
		close(stop)
		<-done
		return top - start
	}
}
