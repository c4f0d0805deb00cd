package telemetry

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"karpenter.sh/karpenter/internal/kit/bug"
)

func TestWhichLoopsAreSilent(t *testing.T) {
	for name, tc := range map[string]struct {
		live func(ctx context.Context, l *Loop)
		want []string
	}{
		"one that takes turns lives, also if they fail": {func(ctx context.Context, l *Loop) {
			for l.Wait(ctx, 5*time.Minute, nil) {
				l.Turn(ctx, "failing", func(context.Context) error { return errors.New("trouble") })
			}
		}, nil},
		"one that waits for an hour lives": {func(ctx context.Context, l *Loop) { l.Wait(ctx, time.Hour, make(chan struct{})) }, nil},
		"one whose turn hangs does not": {func(ctx context.Context, l *Loop) {
			l.Turn(ctx, "hanging", func(context.Context) error { time.Sleep(time.Hour); return nil })
		}, []string{"loop"}},
		"nor does one that waits for what never comes": {func(ctx context.Context, _ *Loop) { time.Sleep(time.Hour) }, []string{"loop"}},
		"one that ends its turn when told to lives": {func(ctx context.Context, l *Loop) {
			for ctx.Err() == nil {
				l.Turn(ctx, "slow", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
			}
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := NewMetrics(prometheus.NewRegistry(), ConditionKinds())
				l := m.Loop("loop", 1)
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				go tc.live(ctx, l)
				for range 58 {
					time.Sleep(time.Minute)
					synctest.Wait()
					silent := m.Silent(10 * time.Minute)
					if len(silent) > 0 && tc.want == nil {
						t.Fatalf("silent = %q, want none", silent)
					}
				}
				if got := m.Silent(10 * time.Minute); !slices.Equal(got, tc.want) {
					t.Errorf("silent = %q, want %q", got, tc.want)
				}
				m.End(l)
				if got := m.Silent(0); len(got) > 0 || len(m.Loops()) > 0 {
					t.Errorf("a loop that ended is watched over still: %q", got)
				}
				stop()
				time.Sleep(time.Hour)
			})
		})
	}
}

func TestATurnThatPanicsFails(t *testing.T) {
	bug.Expect(t)
	for name, l := range map[string]*Loop{"a loop that is measured": nil, "one that is not": nil} {
		t.Run(name, func(t *testing.T) {
			m := NewMetrics(prometheus.NewRegistry(), ConditionKinds())
			if name == "a loop that is measured" {
				l = m.Loop("loop", 1)
			}
			err := l.Turn(t.Context(), "planning", func(context.Context) error { panic("no") })
			if _, ok := errors.AsType[*bug.Panic](err); !ok {
				t.Errorf("error = %v, want a panic", err)
			}
			if l == nil {
				return
			}
			for what, c := range map[string]prometheus.Collector{
				"panics": m.ReconcilePanics.WithLabelValues("loop"), "errors": m.ReconcileErrors.WithLabelValues("loop"),
				"retries": m.WorkqueueRetries.WithLabelValues("loop", "loop"),
			} {
				if got := testutil.ToFloat64(c); got != 1 {
					t.Errorf("%v %s, want one", got, what)
				}
			}
			if len(l.running) > 0 {
				t.Error("the turn is under way still")
			}
		})
	}
}

func TestATurnThatTakesTooLongIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMetrics(prometheus.NewRegistry(), ConditionKinds())
		l := m.Loop("loop", 1)
		began := time.Now()
		err := l.Turn(t.Context(), "slow", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took != turnLimit {
			t.Errorf("ended with %v after %v, want a deadline after %v", err, took, turnLimit)
		}
		if got := testutil.ToFloat64(m.ReconcileTimeouts.WithLabelValues("loop")); got != 1 {
			t.Errorf("%v timeouts, want one", got)
		}
	})
}

func TestATurnThatFailsAsTheProgramStopsHasNotFailed(t *testing.T) {
	m := NewMetrics(prometheus.NewRegistry(), ConditionKinds())
	l := m.Loop("loop", 1)
	ctx, stop := context.WithCancel(t.Context())
	l.Turn(ctx, "stopped", func(ctx context.Context) error { stop(); return ctx.Err() })
	if got := testutil.ToFloat64(m.ReconcileErrors.WithLabelValues("loop")); got != 0 {
		t.Errorf("%v errors, want none", got)
	}
}

func TestWaitingEndsWithNewsOrTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l *Loop // what is not measured waits just so
		news := make(chan struct{})
		time.AfterFunc(90*time.Second, func() { close(news) })
		began := time.Now()
		if !l.Wait(t.Context(), time.Hour, news) || time.Since(began) != 90*time.Second {
			t.Errorf("woke after %v, want 1m30s", time.Since(began))
		}
		began = time.Now()
		if !l.Wait(t.Context(), 150*time.Second, nil) || time.Since(began) != 150*time.Second {
			t.Errorf("woke after %v, want 2m30s", time.Since(began))
		}
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if l.Wait(ctx, time.Hour, nil) {
			t.Error("waited although the context ended")
		}
	})
}
