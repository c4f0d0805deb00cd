package engine_test

import (
	"runtime"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
	"karpenter.sh/karpenter/api/label"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/overlay"
	"karpenter.sh/karpenter/internal/testing/benchload"
)

// besides are what clusters have beside the pods that wait.
var besides = map[string]struct{ matching, other, buffers bool }{
	"overlays that match":        {matching: true},
	"overlays that match nobody": {other: true},
	"buffers":                    {buffers: true},
	"all of them":                {true, true, true},
}

// overlaid returns the catalogue of a pool as overlays leave it. None changes a price, so that the question stays the same.
func overlaid(tb testing.TB, pool *v1.NodePool, matching, other bool) engine.Pool {
	tb.Helper()
	in := engine.Pool{Pool: pool, Catalog: catalogue(tb)}
	var overlays []*v1alpha1.NodeOverlay
	add := func(name, key, value string) {
		o := &v1alpha1.NodeOverlay{ObjectMeta: metav1.ObjectMeta{Name: name}}
		o.Spec.Requirements = []v1alpha1.NodeSelectorRequirement{{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{value}}}
		o.Spec.Capacity = corev1.ResourceList{"example.com/licence": resource.MustParse("4")}
		overlays = append(overlays, o)
	}
	if matching {
		for _, family := range []string{"c5", "c6i", "c7i", "m5", "m6i", "m7i", "r5", "r6i", "r7i"} {
			add("of-"+family, awsv1.LabelInstanceFamily, family)
		}
	}
	if other {
		for _, family := range []string{"x9z", "y9z", "z9z"} {
			add("of-"+family, awsv1.LabelInstanceFamily, family)
		}
	}
	if len(overlays) == 0 {
		return in
	}
	book, verdicts := overlay.Judge(overlays, []overlay.Pool{{Pool: pool, Catalog: in.Catalog}}, label.NewVocabulary(v1.Labels(), awsv1.Labels()))
	for i, v := range verdicts {
		if v.Invalid != nil || v.Conflict != nil {
			tb.Fatalf("overlay %s is not in force: %+v", overlays[i].Name, v)
		}
	}
	changed := book.Apply(pool, in.Catalog, nil).Catalog()
	if (changed != in.Catalog) != matching {
		tb.Fatalf("the catalogue is another one: %v", changed != in.Catalog)
	}
	return engine.Pool{Pool: pool, Catalog: changed}
}

// withBuffers returns a picture of pods that wait, beside ten buffers of a hundred pods each.
func withBuffers(pods []*corev1.Pod) *cluster.Snapshot {
	s := cluster.NewStore()
	s.Update(func(d *cluster.Draft) {
		for _, p := range pods {
			d.PutPod(p)
		}
		for i := range 10 {
			var spares []*corev1.Pod
			for range 100 {
				spares = append(spares, benchload.Pending("spare", int64(100*(i+1)), 512))
			}
			d.PutSpares("default", string(rune('a'+i)), spares)
		}
		d.Synced(true)
	})
	return s.Snapshot()
}

// cost is what one plan took.
type cost struct {
	cpu    time.Duration
	allocs uint64
	plan   *engine.Plan
}

func costOf(e *engine.Engine, q engine.Question) cost {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	cpu := benchload.ProcessorTime()
	plan := e.Plan(q)
	cpu = benchload.ProcessorTime() - cpu
	runtime.ReadMemStats(&after)
	return cost{cpu, after.Mallocs - before.Mallocs, plan}
}

// pair plans the same pods twice in turn, without and with what stands beside them.
func pair(tb testing.TB, pods []*corev1.Pod, beside struct{ matching, other, buffers bool }) (plain, with cost) {
	tb.Helper()
	pool := benchload.Pool(false, false)
	ask := func(in engine.Pool, snap *cluster.Snapshot) cost {
		pools := []engine.Pool{in}
		return costOf(prepared(pools, engine.Settings{}), engine.Question{Snap: snap, Pools: pools, Pods: snap.Provisionable(), Now: now})
	}
	plain = ask(overlaid(tb, pool, false, false), snapshotOf(pods))
	snap := snapshotOf(pods)
	if beside.buffers {
		snap = withBuffers(pods)
	}
	return plain, ask(overlaid(tb, pool, beside.matching, beside.other), snap)
}

// Overlays that change no price and buffers leave a plan as it is, and cost next to nothing: neither work nor memory.
func TestOverlaysAndBuffersCostAPlanNothing(t *testing.T) {
	pods := workload(t, "few5")
	for name, beside := range besides {
		t.Run(name, func(t *testing.T) {
			plain, with := pair(t, pods, beside)
			if plain.plan.Price != with.plan.Price || len(plain.plan.Open) != len(with.plan.Open) {
				t.Errorf("the plan costs %v on %d nodes, without it costs %v on %d", with.plan.Price, len(with.plan.Open), plain.plan.Price, len(plain.plan.Open))
			}
			if float64(with.plan.Work) > 1.05*float64(plain.plan.Work) {
				t.Errorf("%d units of work, without it are %d", with.plan.Work, plain.plan.Work)
			}
			if float64(with.allocs) > 1.05*float64(plain.allocs) {
				t.Errorf("%d allocations, without it are %d", with.allocs, plain.allocs)
			}
		})
	}
}

// BenchmarkBeside plans workloads without and with overlays and buffers in turns, and says by how much the second takes more.
func BenchmarkBeside(b *testing.B) {
	for _, workloadName := range []string{"many5000", "diverse5000", "few5"} {
		pods := workload(b, workloadName)
		for name, beside := range besides {
			b.Run(workloadName+"/"+name, func(b *testing.B) {
				var plain, with cost
				for b.Loop() {
					p, w := pair(b, pods, beside)
					plain.cpu, plain.allocs, plain.plan = plain.cpu+p.cpu, plain.allocs+p.allocs, p.plan
					with.cpu, with.allocs, with.plan = with.cpu+w.cpu, with.allocs+w.allocs, w.plan
				}
				b.ReportMetric(float64(plain.cpu.Microseconds())/float64(b.N)/1000, "plain-cpu-ms")
				b.ReportMetric(float64(with.cpu)/float64(plain.cpu), "cpu-ratio")
				b.ReportMetric(float64(with.allocs)/float64(plain.allocs), "allocs-ratio")
				b.ReportMetric(float64(with.plan.Work)/float64(plain.plan.Work), "work-ratio")
				b.ReportMetric(with.plan.Price.Dollars()/plain.plan.Price.Dollars(), "price-ratio")
			})
		}
	}
}
