package main

import (
	"fmt"
	"runtime"
	"slices"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/aws/offline"
	"karpenter.sh/karpenter/internal/testing/benchload"
)

const ours, theirs = "ours", "theirs"

// A row is one problem that both sides plan.
type row struct {
	name     string
	workload string
	pods     int  // of workloads that have any size; 0 for the others
	spot     bool // the pool allows spot beside on-demand
	capped   bool // the pool allows machines of up to 64 vCPU only, which is how careful people run the peer
	large    bool // minutes for the peer, or nothing that its neighbours do not tell: measured with FULL=1
}

// rows are the problems: the mixes of the peer's own benchmark at its sizes, and the workloads of this project's price bars.
func rows() []row {
	var out []row
	for _, n := range []int{100, 500, 1000, 2000, 5000, 10_000, 20_000} {
		out = append(out, row{name: fmt.Sprintf("diverse %d", n), workload: "diverse5000", pods: n, large: n > 5000 ||
			n == 1000 || n == 2000})
	}
	out = append(out, row{name: "preferences 4000", workload: "preferences4000", large: true})
	for _, name := range []string{"few3", "few2skew", "few2complement", "few5", "many5000", "zonespread", "hostanti"} {
		like := name == "few5" // few3
		out = append(out,
			row{name: name + ", on-demand", workload: name, large: like},
			row{name: name + ", on-demand, up to 64 vCPU", workload: name, capped: true, large: like},
			row{name: name + ", spot", workload: name, spot: true, large: like || name == "many5000"})
	}
	return out
}

// measured is what one side needed for a row, and what it planned.
type measured struct {
	Took, CPU    time.Duration
	AllocatedMiB float64
	PeakMiB      float64 // of the whole process, catalogue included
	Pods, Failed int
	Bill         bill
	Bound        cloud.NanoUSD // proven, on Bill.Cost; only ours has one
}

func measure(side, name string) (measured, error) {
	all := rows()
	at := slices.IndexFunc(all, func(r row) bool { return r.name == name })
	if at < 0 {
		return measured{}, fmt.Errorf("there is no row %q", name)
	}
	r := all[at]
	pods, err := benchload.Pods(r.workload)
	if err != nil {
		return measured{}, err
	}
	if r.pods > 0 {
		pods = benchload.Resize(pods, r.pods)
	}
	catalog, err := offline.Catalog(offline.Options{Region: benchload.Region, Zones: benchload.Zones()})
	if err != nil {
		return measured{}, err
	}
	pool := benchload.Pool(r.spot, false)
	if r.capped {
		pool.Spec.Template.Spec.Requirements = append(pool.Spec.Template.Spec.Requirements,
			v1.NodeSelectorRequirementWithMinValues{Key: awsv1.LabelInstanceCPU, Operator: corev1.NodeSelectorOpLt,
				Values: []string{"65"}})
	}
	switch side {
	case ours:
		return measureOurs(newPlanner(pool, catalog), pods), nil
	case theirs:
		return measureTheirs(newPeer(pool, catalog), pods)
	}
	return measured{}, fmt.Errorf("there is no side %q", side)
}

func measureOurs(p *planner, pods []*corev1.Pod) measured {
	watch := begin()
	plan := p.plan(pods)
	m := watch.end()
	bins := p.bins(plan)
	m.Bill, m.Pods, m.Failed, m.Bound = billOf(bins), placed(bins), len(plan.Refused), max(plan.VolumeBound, plan.ConfigBound)
	return m
}

func measureTheirs(p *peer, pods []*corev1.Pod) (measured, error) {
	watch := begin()
	results, err := p.plan(pods)
	m := watch.end()
	if err != nil {
		return m, err
	}
	bins := p.bins(results)
	m.Bill, m.Pods, m.Failed = billOf(bins), placed(bins), len(results.PodErrors)
	return m, nil
}

// A stopwatch reads the clock, the processor's time and the heap.
type stopwatch struct {
	at  time.Time
	cpu time.Duration
	mem runtime.MemStats
}

func begin() *stopwatch {
	runtime.GC()
	w := &stopwatch{}
	runtime.ReadMemStats(&w.mem)
	w.cpu, _ = usage()
	w.at = time.Now()
	return w
}

func (w *stopwatch) end() measured {
	m := measured{Took: time.Since(w.at)}
	cpu, peak := usage()
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	m.CPU, m.PeakMiB, m.AllocatedMiB = cpu-w.cpu, peak, float64(mem.TotalAlloc-w.mem.TotalAlloc)/(1<<20)
	return m
}

// usage returns what this process has used of the processors, and its largest size in MiB.
func usage() (cpu time.Duration, peakMiB float64) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), float64(u.Maxrss) / 1024
}
