package workqueue_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/control/workqueue"
	"karpenter.sh/karpenter/internal/kit/bug"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// log is what steps did, and when.
type log struct {
	mu    sync.Mutex
	start time.Time
	lines []string
}

func (l *log) add(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, fmt.Sprintf("%v ", time.Since(l.start).Round(100*time.Millisecond))+fmt.Sprintf(format, args...))
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	slices.Sort(l.lines)
	return strings.Join(l.lines, ", ")
}

// pools are the rows of all works here.
func pools(s *cluster.Snapshot) iter.Seq2[string, *v1.NodePool] {
	return func(yield func(string, *v1.NodePool) bool) {
		for p := range cluster.Pools.All(s) {
			if !yield(p.Name, p) {
				return
			}
		}
	}
}

// run runs work on pools, of which the test changes some, for a minute.
func run(t *testing.T, step func(l *log, key string) (time.Time, error), change func(put func(name string), drop func(name string)), want string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store := cluster.NewStore()
		put := func(name string) {
			store.Update(func(d *cluster.Draft) { cluster.Pools.Put(d, &v1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: name}}) })
		}
		drop := func(name string) { store.Update(func(d *cluster.Draft) { cluster.Pools.Delete(d, name) }) }
		l := &log{start: time.Now()}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			done <- workqueue.Work[*v1.NodePool]{
				Workers: 2,
				Rows:    pools,
				Step:    func(_ context.Context, _ *cluster.Snapshot, key string) (time.Time, error) { return step(l, key) },
				Forget:  func(key string) { l.add("forget %s", key) },
			}.Run(ctx, store)
		}()
		change(put, drop)
		time.Sleep(time.Minute - time.Since(l.start))
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if got := l.String(); got != want {
			t.Errorf("log = %s\n want %s", got, want)
		}
	})
}

func TestWork(t *testing.T) {
	never := func(l *log, key string) (time.Time, error) { l.add("%s", key); return time.Time{}, nil }
	for name, tc := range map[string]struct {
		step   func(*log, string) (time.Time, error)
		change func(put, drop func(string))
		want   string
	}{
		"a step is taken when an object comes and when it changes": {never, func(put, drop func(string)) {
			put("a")
			time.Sleep(time.Second)
			put("b")
			time.Sleep(time.Second)
			put("a")
		}, "0s a, 1s b, 2s a"},
		"an object that is gone is forgotten": {never, func(put, drop func(string)) {
			put("a")
			time.Sleep(time.Second)
			drop("a")
		}, "0s a, 1s forget a"},
		"a step is taken again at the time that it asked for": {func(l *log, key string) (time.Time, error) {
			l.add("%s", key)
			return time.Now().Add(25 * time.Second), nil
		}, func(put, drop func(string)) { put("a") }, "0s a, 25s a, 50s a"},
		"a change comes before that time and replaces it": {func(l *log, key string) (time.Time, error) {
			l.add("%s", key)
			return time.Now().Add(25 * time.Second), nil
		}, func(put, drop func(string)) {
			put("a")
			time.Sleep(20 * time.Second)
			put("a")
		}, "0s a, 20s a, 45s a"},
		"a failing step is repeated later and later": {func(l *log, key string) (time.Time, error) {
			l.add("%s", key)
			return time.Time{}, errors.New("boom")
		}, func(put, drop func(string)) { put("a") }, "0s a, 15s a, 1s a, 31s a, 3s a, 7s a"},
		"no more steps run at the same time than there are workers": {func(l *log, key string) (time.Time, error) {
			l.add("%s", key)
			time.Sleep(time.Second)
			return time.Time{}, nil
		}, func(put, drop func(string)) {
			for _, k := range []string{"a", "b", "c", "d"} {
				put(k)
			}
		}, "0s a, 0s b, 1s c, 1s d"},
		"steps of one key never run at the same time, and what changed meanwhile is not lost": {func(l *log, key string) (time.Time, error) {
			l.add("%s", key)
			time.Sleep(5 * time.Second)
			return time.Time{}, nil
		}, func(put, drop func(string)) {
			put("a")
			time.Sleep(time.Second)
			put("a")
			time.Sleep(time.Second)
			put("a")
		}, "0s a, 5s a"},
		"an object that goes while its step runs is forgotten afterwards": {func(l *log, key string) (time.Time, error) {
			l.add("%s", key)
			time.Sleep(5 * time.Second)
			return time.Now().Add(time.Second), nil
		}, func(put, drop func(string)) {
			put("a")
			time.Sleep(time.Second)
			drop("a")
		}, "0s a, 5s forget a"},
	} {
		t.Run(name, func(t *testing.T) { run(t, tc.step, tc.change, tc.want) })
	}
}

// One worker and two objects, the first of which is too much for the loop, twice.
func TestAPanicFailsOnlyItsOwnKey(t *testing.T) {
	bug.Expect(t)
	defer slog.SetDefault(slog.Default())
	slog.SetDefault(slog.New(slog.DiscardHandler)) // which is told of the bug and its stack
	synctest.Test(t, func(t *testing.T) {
		before := bug.Count()
		store := cluster.NewStore()
		store.Update(func(d *cluster.Draft) {
			for _, name := range []string{"a", "b"} {
				cluster.Pools.Put(d, &v1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: name}})
			}
		})
		var said strings.Builder // one step at a time, so one line at a time
		ctx, stop := context.WithCancel(telemetry.WithLog(t.Context(), slog.New(slog.NewTextHandler(&said, nil))))
		metrics := telemetry.NewMetrics(prometheus.NewRegistry(), telemetry.ConditionKinds())
		l := &log{start: time.Now()}
		done := make(chan error)
		go func() {
			done <- workqueue.Work[*v1.NodePool]{
				Name: "loop", Metrics: metrics, Workers: 1, Rows: pools,
				Step: func(_ context.Context, _ *cluster.Snapshot, key string) (time.Time, error) {
					l.add("%s", key)
					if key == "a" && time.Since(l.start) < 2*time.Second {
						var none *v1.NodePool
						_ = none.Name
					}
					return time.Time{}, nil
				},
			}.Run(ctx, store)
		}()
		time.Sleep(time.Minute)
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if got, want := l.String(), "0s a, 0s b, 1s a, 3s a"; got != want {
			t.Errorf("steps = %s, want %s", got, want)
		}
		for metric, want := range map[prometheus.Collector]float64{
			metrics.ReconcilePanics.WithLabelValues("loop"):           2,
			metrics.ReconcileErrors.WithLabelValues("loop"):           2,
			metrics.WorkqueueRetries.WithLabelValues("loop", "loop"):  2,
			metrics.ReconcileTotal.WithLabelValues("loop", "error"):   2,
			metrics.ReconcileTotal.WithLabelValues("loop", "success"): 2,
		} {
			if got := testutil.ToFloat64(metric); got != want {
				t.Errorf("%v = %v, want %v", metric.(prometheus.Metric).Desc(), got, want)
			}
		}
		if n := bug.Count() - before; n != 2 {
			t.Errorf("%d bugs were counted, want 2", n)
		}
		if line := `msg="step failed, trying again" controller=loop name=a error="step of a panicked: runtime error: invalid memory address`; strings.Count(said.String(), line) != 2 {
			t.Errorf("the log is\n%s\nwant two lines with %s", &said, line)
		}
	})
}
