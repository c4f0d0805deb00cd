package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// newLoops registers the gauges about loops, and returns the list of loops that they read.
func newLoops(t *maker) *loops {
	all := &loops{all: map[*Loop]struct{}{}}
	t.reg.MustRegister(loopGauges{
		loops: all,
		depth: t.scraped("workqueue_depth", Stable,
			"Objects that wait for a step of a loop.", append(workqueued[:2:2], "priority")...),
		busy: t.scraped("controller_runtime_active_workers", Stable,
			"Workers of a loop that are busy.", "controller"),
		most: t.scraped("controller_runtime_max_concurrent_reconciles", Stable,
			"Workers of a loop.", "controller"),
		unfinished: t.scraped("workqueue_unfinished_work_seconds", Stable,
			"How long the steps that are under way have taken, all together.", workqueued...),
		longest: t.scraped("workqueue_longest_running_processor_seconds", Stable,
			"How long the oldest step that is under way has taken.", workqueued...),
		heardOff: t.scraped("karpenter_loop_silent_seconds", Alpha,
			"Since when a loop has neither begun a turn nor waited for one. After ten minutes the program counts as "+
				"hanging.", "controller"),
	})
	return all
}

// loopGauges is a collector that reads the loops when they are scraped, so that a loop that hangs is seen.
type loopGauges struct {
	loops                                            *loops
	depth, busy, most, unfinished, longest, heardOff *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (g loopGauges) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{g.depth, g.busy, g.most, g.unfinished, g.longest, g.heardOff} {
		ch <- d
	}
}

// state has the values of the gauges of one name. Loops with the same name are added up.
type state struct {
	waiting, running, workers   int
	unfinished, longest, silent time.Duration
}

// Collect implements prometheus.Collector.
func (g loopGauges) Collect(ch chan<- prometheus.Metric) {
	states := g.loops.states(time.Now())
	for _, name := range sortedKeys(states) {
		s := states[name]
		gauge := func(d *prometheus.Desc, value float64, labels ...string) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
		}
		gauge(g.depth, float64(s.waiting), name, name, "0")
		gauge(g.busy, float64(s.running), name)
		gauge(g.most, float64(s.workers), name)
		gauge(g.unfinished, s.unfinished.Seconds(), name, name)
		gauge(g.longest, s.longest.Seconds(), name, name)
		gauge(g.heardOff, s.silent.Seconds(), name)
	}
}

// states returns the state of the loops, by name.
func (all *loops) states(now time.Time) map[string]state {
	all.mu.Lock()
	defer all.mu.Unlock()
	out := map[string]state{}
	for l := range all.all {
		l.mu.Lock()
		s := out[l.name]
		s.waiting += l.waiting
		s.running += len(l.running)
		s.workers += l.workers
		s.silent = max(s.silent, now.Sub(l.beat))
		for t := range l.running {
			age := now.Sub(t.began)
			s.unfinished += age
			s.longest = max(s.longest, age)
		}
		l.mu.Unlock()
		out[l.name] = s
	}
	return out
}
