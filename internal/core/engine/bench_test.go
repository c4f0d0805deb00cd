package engine_test

import (
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/shape"
	"karpenter.sh/karpenter/internal/core/work"
	"karpenter.sh/karpenter/internal/testing/benchload"
)

// speedRows and priceRows are the workloads with bars on time and on price.
var (
	speedRows = []string{"diverse5000", "preferences4000", "classes20"}
	priceRows = []string{"few3", "few2skew", "few2complement", "few5", "many5000", "zonespread", "hostanti"}
)

// BenchmarkWorkloads runs every workload from Kubernetes objects to the plan, in one configuration.
func BenchmarkWorkloads(b *testing.B) {
	for _, name := range slices.Concat(speedRows, priceRows) {
		b.Run(name+"/on-demand", func(b *testing.B) { run(b, name, benchload.Pool(false, false), engine.Settings{}) })
		b.Run(name+"/spot", func(b *testing.B) { run(b, name, benchload.Pool(true, false), engine.Settings{}) })
	}
}

// narrowBand names few pools: what spot would cost if the cheapest were always there.
var narrowBand = shape.Band{Types: 60, Spot: 60, Fewest: 1, Permille: 10}

// BenchmarkVariants runs the price workloads with every category and generation allowed, with a DaemonSet, with the incumbent
// alone, and with wider bands for what a spot launch sends: what diversity costs. many5000 with spot: no
// fleet costs less than 1.049 of the bound by volume at the cheapest offerings, as the fluid LP proves; ours costs 1.050. What launch pays
// is 0.15 percent more, because it sends c6g.8xlarge for two zones, whose mean price is above the lower one.
func BenchmarkVariants(b *testing.B) {
	for _, name := range priceRows {
		b.Run(name+"/any category", func(b *testing.B) { run(b, name, benchload.Pool(false, true), engine.Settings{}) })
		b.Run(name+"/any category, spot", func(b *testing.B) { run(b, name, benchload.Pool(true, true), engine.Settings{}) })
		b.Run(name+"/with a DaemonSet", func(b *testing.B) { run(b, name, benchload.Pool(false, false), engine.Settings{}, agent()) })
		b.Run(name+"/spot, band of 1 percent", func(b *testing.B) { run(b, name, benchload.Pool(true, false), engine.Settings{Band: narrowBand}) })
		b.Run(name+"/spot, five types", func(b *testing.B) {
			run(b, name, benchload.Pool(true, false), engine.Settings{Band: shape.SpotBand(5)})
		})
		b.Run(name+"/spot, given five seconds", func(b *testing.B) {
			run(b, name, benchload.Pool(true, false), engine.Settings{Search: 5 * work.Second})
		})
		b.Run(name+"/incumbent", func(b *testing.B) { run(b, name, benchload.Pool(false, false), engine.Settings{FirstFit: true}) })
		b.Run(name+"/given five seconds", func(b *testing.B) {
			run(b, name, benchload.Pool(false, false), engine.Settings{Search: 5 * work.Second})
		})
	}
}

// run plans a workload with an engine that has read the catalogue and nothing else.
func run(b *testing.B, name string, pool *v1.NodePool, settings engine.Settings, daemons ...*appsv1.DaemonSet) {
	pods := workload(b, name)
	pools := []engine.Pool{{Pool: pool, Catalog: catalogue(b)}}
	b.ReportAllocs()
	var plan *engine.Plan
	var busy time.Duration
	for b.Loop() {
		b.StopTimer()
		e := prepared(pools, settings)
		before := benchload.ProcessorTime()
		b.StartTimer()
		plan = solveFresh(e, pods, pools, settings, daemons...)
		busy += benchload.ProcessorTime() - before
	}
	b.ReportMetric(float64(busy.Microseconds())/float64(b.N)/1000, "cpu-ms/op")
	report(b, plan)
	spot := slices.Contains(pool.Spec.Template.Spec.Requirements[0].Values, v1.CapacityTypeSpot)
	price, _ := firstFit(b, pods, spot, 0)
	capped, _ := firstFit(b, pods, spot, 64)
	b.ReportMetric(price.Dollars(), "firstfit-$/h")
	b.ReportMetric(capped.Dollars(), "firstfit64-$/h")
}

// report prints what a plan costs and how close it is.
func report(b *testing.B, p *engine.Plan) {
	b.ReportMetric(float64(len(p.Open)), "nodes")
	b.ReportMetric(float64(p.Work)/1e6, "work-ms")
	b.ReportMetric(p.Price.Dollars(), "$/h")
	b.ReportMetric((p.Price - p.Floor).Dollars(), "diversity-$/h")
	if sent := spotClaims(p, func(o *engine.Opening) int { return o.Sent }); len(sent) > 0 {
		few, _ := slices.BinarySearch(sent, 15)
		b.ReportMetric(float64(sent[len(sent)/2]), "types-sent")
		b.ReportMetric(float64(100*few)/float64(len(sent)), "sent<15-%")
		pools := spotClaims(p, func(o *engine.Opening) int { return o.Offers })
		b.ReportMetric(float64(pools[len(pools)/2]), "pools-sent")
	}
	b.ReportMetric(p.VolumeBound.Dollars(), "volume$/h")
	b.ReportMetric(p.ConfigBound.Dollars(), "config$/h")
	b.ReportMetric(100*p.Gap(), "gap%")
	b.ReportMetric(float64(len(p.Refused)), "refused")
}

// spotClaims says something of each spot claim, sorted.
func spotClaims(p *engine.Plan, of func(*engine.Opening) int) []int {
	var out []int
	for i := range p.Open {
		if o := &p.Open[i]; o.CapacityType == v1.CapacityTypeSpot {
			out = append(out, of(o))
		}
	}
	slices.Sort(out)
	return out
}
