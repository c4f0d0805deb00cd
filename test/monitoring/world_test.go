package monitoring

import (
	"bytes"
	"context"
	"maps"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
	corev1 "k8s.io/api/core/v1"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/observe"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// every is the time between two scrapes.
const every = time.Minute

// A world is one replica of Karpenter as its metrics show it, scraped once a minute of simulated time.
type world struct {
	ctx     context.Context
	metrics *telemetry.Metrics
	store   *cluster.Store
	times   *telemetry.PodTimes
	// missing is since when the picture of the cluster is incomplete.
	missing time.Time
	// loop is one of its loops.
	loop *telemetry.Loop
	// silent replicas are not scraped.
	silent bool

	registry *prometheus.Registry
	observer *observe.Observer
	// foreign are metrics of others, at the next scrape.
	foreign []foreign
	memory  *memory
}

// A foreign metric is of somebody else.
type foreign struct {
	labels labels.Labels
	number float64
}

// newWorld must be called in a bubble.
func newWorld(t *testing.T) *world {
	w := &world{ctx: t.Context(), store: cluster.NewStore(), times: telemetry.NewPodTimes(), registry: prometheus.NewRegistry(), memory: &memory{}}
	kinds := telemetry.ConditionKinds(awsv1.LabelNodeClass)
	w.metrics = telemetry.NewMetrics(w.registry, kinds)
	w.registry.MustRegister(collectors.NewGoCollector())
	w.observer = observe.New(observe.Deps{
		Store: w.store, Metrics: w.metrics, Events: telemetry.NewEvents(nil, w.metrics), Times: w.times, Catalogs: noPrices{}, Kinds: kinds, Detailed: true,
		NodeLabels: []string{corev1.LabelTopologyZone, corev1.LabelInstanceTypeStable, v1.CapacityTypeLabelKey, v1.NodePoolLabelKey, corev1.LabelArchStable, corev1.LabelOSStable},
		Leading:    func() bool { return true },
		Missing: func() ([]string, time.Duration) {
			if w.missing.IsZero() {
				return nil, 0
			}
			return []string{"Pod"}, time.Since(w.missing)
		},
	})
	w.metrics.LeaderStatus.WithLabelValues("karpenter-leader-election").Set(1)
	w.metrics.BuildInfo.WithLabelValues("1", "go", "amd64", "c").Set(1)
	return w
}

// noPrices is a catalogue in which nothing has a price.
type noPrices struct{}

func (noPrices) Pools(_ context.Context, snap *cluster.Snapshot) (map[string]engine.Pool, map[string]bool) {
	pools := map[string]engine.Pool{}
	for p := range cluster.Pools.All(snap) {
		pools[p.Name] = engine.Pool{Pool: p, Catalog: &cloud.Catalog{}}
	}
	return pools, nil
}

// A script is what happens in a minute of a world.
type script func(w *world, minute int)

// record plays a script for some minutes and returns what Prometheus has then, and when it began.
func record(t *testing.T, minutes int, play script) (*memory, time.Time) {
	t.Helper()
	var got *memory
	var begin time.Time
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		begin = time.Now()
		for minute := range minutes {
			play(w, minute)
			if !w.silent {
				w.scrape(t)
			}
			w.memory.end(time.Now().UnixMilli())
			time.Sleep(every)
		}
		got = w.memory
	})
	return got, begin
}

func (w *world) scrape(t *testing.T) {
	t.Helper()
	families, err := w.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := w.observer.Scrape(&text); err != nil {
		t.Fatal(err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	more, err := parser.TextToMetricFamilies(&text)
	if err != nil {
		t.Fatal(err)
	}
	now := model.TimeFromUnixNano(time.Now().UnixNano())
	samples, err := expfmt.ExtractSamples(&expfmt.DecodeOptions{Timestamp: now}, slices.Concat(families, slices.Collect(maps.Values(more)))...)
	if err != nil {
		t.Fatal(err)
	}
	target := map[string]string{"job": "karpenter", "namespace": "karpenter", "pod": "karpenter-0", "instance": "10.0.0.1:8080"}
	for _, s := range samples {
		all := maps.Clone(target)
		for name, text := range s.Metric {
			all[string(name)] = string(text)
		}
		w.memory.add(labels.FromMap(all), int64(now), float64(s.Value))
	}
	for _, f := range w.foreign {
		w.memory.add(f.labels, int64(now), f.number)
	}
	w.foreign = nil
}

// A memory is a Prometheus' storage. It knows series by their labels.
type memory struct{ series []*line }

// end marks series that were there at one scrape and not at the next, as Prometheus does.
func (m *memory) end(at int64) {
	for _, l := range m.series {
		if last := l.samples[len(l.samples)-1]; last.T() < at && !value.IsStaleNaN(last.F()) {
			l.samples = append(l.samples, sample{at, math.Float64frombits(value.StaleNaN)})
		}
	}
}

type line struct {
	labels  labels.Labels
	samples []chunks.Sample
}

func (m *memory) add(l labels.Labels, at int64, number float64) {
	i, found := slices.BinarySearchFunc(m.series, l, func(s *line, l labels.Labels) int { return labels.Compare(s.labels, l) })
	if !found {
		m.series = slices.Insert(m.series, i, &line{labels: l})
	}
	m.series[i].samples = append(m.series[i].samples, sample{at, number})
}

// Querier implements storage.Queryable.
func (m *memory) Querier(_, _ int64) (storage.Querier, error) { return querier{m}, nil }

type querier struct{ *memory }

// Select implements storage.Querier.
func (q querier) Select(_ context.Context, _ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	found := &set{}
	for _, s := range q.series {
		if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(s.labels.Get(m.Name)) }) {
			found.lines = append(found.lines, s)
		}
	}
	return found
}

func (querier) LabelValues(context.Context, string, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

func (querier) LabelNames(context.Context, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

func (querier) Close() error { return nil }

// A set goes through the series that were found.
type set struct {
	lines []*line
	next  int
}

func (s *set) Next() bool {
	s.next++
	return s.next <= len(s.lines)
}

func (s *set) At() storage.Series {
	l := s.lines[s.next-1]
	return storage.NewListSeries(l.labels, l.samples)
}

func (s *set) Err() error                        { return nil }
func (s *set) Warnings() annotations.Annotations { return nil }

// A sample implements chunks.Sample.
type sample struct {
	at     int64
	number float64
}

func (s sample) ST() int64                     { return 0 }
func (s sample) T() int64                      { return s.at }
func (s sample) F() float64                    { return s.number }
func (s sample) H() *histogram.Histogram       { return nil }
func (s sample) FH() *histogram.FloatHistogram { return nil }
func (s sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample           { return s }
