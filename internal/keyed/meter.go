package keyed

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"karpenter.sh/karpenter/internal/telemetry"
)

// A meter is the metrics of one loop. A nil meter measures nothing.
type meter struct {
	adds, retries, panics, errors     prometheus.Counter
	wait, work, time                  prometheus.Observer
	depth, busy, unfinished, longest  prometheus.Gauge
	succeeded, failed, succeededUntil prometheus.Counter

	steps  []startedStep // the oldest first; some may have ended
	begun  time.Duration // sum of the times at which steps that are under way began, since origin
	origin time.Time
}

// gaugeEvery is how often the gauges of steps are brought up to date while nothing else happens.
const gaugeEvery = 10 * time.Second

type startedStep struct {
	key   string
	began time.Time
}

func newMeter(name string, m *telemetry.Metrics, workers int) *meter {
	if m == nil {
		return nil
	}
	m.ReconcileMaxConcurrent.WithLabelValues(name).Set(float64(workers))
	return &meter{
		origin: time.Now(),
		adds:   m.WorkqueueAdds.WithLabelValues(name, name), retries: m.WorkqueueRetries.WithLabelValues(name, name),
		panics: m.ReconcilePanics.WithLabelValues(name), errors: m.ReconcileErrors.WithLabelValues(name),
		wait: m.WorkqueueWait.WithLabelValues(name, name), work: m.WorkqueueWork.WithLabelValues(name, name),
		time: m.ReconcileTime.WithLabelValues(name), depth: m.WorkqueueDepth.WithLabelValues(name, name),
		busy:       m.ReconcileActiveWorkers.WithLabelValues(name),
		unfinished: m.WorkqueueUnfinished.WithLabelValues(name, name), longest: m.WorkqueueLongest.WithLabelValues(name, name),
		succeeded: m.ReconcileTotal.WithLabelValues(name, "success"), failed: m.ReconcileTotal.WithLabelValues(name, "error"),
		succeededUntil: m.ReconcileTotal.WithLabelValues(name, "requeue_after"),
	}
}

func (m *meter) added() {
	if m != nil {
		m.adds.Inc()
	}
}

func (m *meter) waited(d time.Duration) {
	if m != nil {
		m.wait.Observe(d.Seconds())
	}
}

func (m *meter) retried() {
	if m != nil {
		m.retries.Inc()
	}
}

func (m *meter) panicked() {
	if m != nil {
		m.panics.Inc()
	}
}

func (m *meter) stepped(res result, took time.Duration) {
	switch {
	case m == nil:
		return
	case res.err != nil:
		m.failed.Inc()
		m.errors.Inc()
	case res.again.IsZero():
		m.succeeded.Inc()
	default:
		m.succeededUntil.Inc()
	}
	m.time.Observe(took.Seconds())
	m.work.Observe(took.Seconds())
}

func (m *meter) began(key string, at time.Time) {
	if m != nil {
		m.steps = append(m.steps, startedStep{key, at})
		m.begun += at.Sub(m.origin)
	}
}

func (m *meter) ended(began time.Time) {
	if m != nil {
		m.begun -= began.Sub(m.origin)
	}
}

// gauge shows what waits and what is under way.
func (r *run[V]) gauge(now time.Time) {
	m := r.meter
	if m == nil {
		return
	}
	m.depth.Set(float64(len(r.ready)))
	m.busy.Set(float64(r.running))
	m.unfinished.Set((time.Duration(r.running)*now.Sub(m.origin) - m.begun).Seconds())
	for len(m.steps) > 0 {
		if s := r.states[m.steps[0].key]; s != nil && s.running && s.began.Equal(m.steps[0].began) {
			m.longest.Set(now.Sub(m.steps[0].began).Seconds())
			return
		}
		m.steps = m.steps[1:]
	}
	m.longest.Set(0)
}
