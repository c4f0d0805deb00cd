package telemetry

import (
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// Stability says how much a name may be relied on.
type Stability string

// The degrees of stability.
const (
	Stable     Stability = "stable"
	Beta       Stability = "beta"
	Alpha      Stability = "alpha"
	Deprecated Stability = "deprecated"
)

// A Row is one line of the reference of metrics.
type Row struct {
	Name      string
	Kind      string // counter, gauge, histogram, summary
	Stability Stability
	Help      string
	Labels    []string
}

// Buckets, in seconds unless the name says otherwise.
var (
	durations = []float64{
		.005, .01, .025, .05, .1, .15, .2, .25, .3, .35, .4, .45, .5, .6, .7, .8, .9, 1, 1.25, 1.5, 1.75, 2, 2.5, 3, 3.5, 4, 4.5,
		5, 6, 7, 8, 9, 10, 15, 20, 25, 30, 40, 50, 60, 120, 150, 300, 450, 600,
	}
	lifetimes = []float64{
		15 * minute, 30 * minute, 45 * minute, hour, 2 * hour, 4 * hour, 6 * hour, 8 * hour, 10 * hour, 12 * hour, 16 * hour, 20 * hour,
		day, 2 * day, 3 * day, 5 * day, 10 * day, 15 * day, 20 * day, 25 * day, 30 * day,
	}
	reboots    = exponential(10, 2, 8)
	scores     = []float64{.1, .25, .33, .5, 1, 2, 5, 10}
	batchSizes = []float64{1, 2, 4, 5, 10, 15, 20, 25, 30, 40, 50, 75, 100, 125, 150, 175, 200, 225, 250, 275, 300,
		350, 400, 450, 500, 550, 600, 700, 800, 900, 1000}
	quantiles = map[float64]float64{0: .01, .5: .01, .9: .01, .99: .01, 1: .01}
)

// Buckets of histograms that have series for each loop, kind of object or action of AWS. With all of Karpenter's bounds they would be
// most of a scrape. These are some of the same bounds, so that sums over both have a meaning.
var (
	turns   = []float64{.005, .01, .05, .1, .5, 1, 5, 10, 30, 60}
	queues  = exponential(1e-8, 10, 12)[3:10]
	calls   = every(3, exponential(.001, 1.5, 20))
	actions = every(3, exponential(.01, 1.5, 20))
	retries = []float64{0, 1, 2, 3, 5, 10}
)

// every returns the first of a list and each nth after it.
func every(n int, list []float64) (out []float64) {
	for i := 0; i < len(list); i += n {
		out = append(out, list[i])
	}
	return out
}

const (
	minute = 60.0
	hour   = 60 * minute
	day    = 24 * hour
)

var exponential = prometheus.ExponentialBuckets

// maker makes metrics, registers them, and writes down what it made.
type maker struct {
	reg  prometheus.Registerer
	rows []Row
}

func (t *maker) note(name, kind string, s Stability, help string, labels []string) {
	t.rows = append(t.rows, Row{Name: name, Kind: kind, Stability: s, Help: help, Labels: slices.Clone(labels)})
}

func (t *maker) counter(name string, s Stability, help string, labels ...string) *prometheus.CounterVec {
	t.note(name, "counter", s, help, labels)
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	t.reg.MustRegister(v)
	return v
}

// counted is a counter that another package keeps.
func (t *maker) counted(name string, s Stability, help string, read func() float64) {
	t.note(name, "counter", s, help, nil)
	t.reg.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, read))
}

func (t *maker) gauge(name string, s Stability, help string, labels ...string) *prometheus.GaugeVec {
	t.note(name, "gauge", s, help, labels)
	v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	t.reg.MustRegister(v)
	return v
}

// scraped describes a gauge that a collector of its own makes at a scrape: thousands of series that are only read then need
// not be kept up to date, or in memory, in between.
func (t *maker) scraped(name string, s Stability, help string, labels ...string) *prometheus.Desc {
	t.note(name, "gauge", s, help, labels)
	return prometheus.NewDesc(name, help, labels, nil)
}

func (t *maker) histogram(name string, s Stability, buckets []float64, help string, labels ...string) *prometheus.HistogramVec {
	t.note(name, "histogram", s, help, labels)
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	t.reg.MustRegister(v)
	return v
}

func (t *maker) summary(name string, s Stability, help string, labels ...string) *prometheus.SummaryVec {
	t.note(name, "summary", s, help, labels)
	v := prometheus.NewSummaryVec(prometheus.SummaryOpts{Name: name, Help: help, Objectives: quantiles}, labels)
	t.reg.MustRegister(v)
	return v
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
