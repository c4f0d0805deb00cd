package turns

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"karpenter.sh/karpenter/internal/kit/bug"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var mu sync.Mutex
		var log []string
		turns := &Turns{}
		ctx, cancel := context.WithCancel(t.Context())
		var done sync.WaitGroup
		done.Go(func() {
			turns.Run(ctx, nil, func(_ context.Context, name string) (time.Duration, error) {
				mu.Lock()
				log = append(log, fmt.Sprintf("%s %v", name, time.Since(start)))
				mu.Unlock()
				switch name {
				case "again":
					return 10 * time.Second, nil
				case "fails":
					return 0, errors.New("no")
				case "slow":
					time.Sleep(4 * time.Second)
				}
				return 0, nil
			})
		})
		for _, name := range []string{"once", "again", "fails", "slow"} {
			turns.Call(name)
		}
		time.Sleep(2 * time.Second)
		turns.Call("slow") // while it runs: once more afterwards
		time.Sleep(10 * time.Second)
		cancel()
		done.Wait()
		slices.Sort(log)
		want := []string{
			"again 0s", "again 10s", "fails 0s", "fails 1s", "fails 3s", "fails 7s", "once 0s", "slow 0s", "slow 4s",
		}
		if !slices.Equal(log, want) {
			t.Errorf("turns = %q, want %q", log, want)
		}
	})
}

func TestAPanicFailsOnlyItsOwnStep(t *testing.T) {
	bug.Expect(t)
	defer slog.SetDefault(slog.Default())
	slog.SetDefault(slog.New(slog.DiscardHandler))
	synctest.Test(t, func(t *testing.T) {
		m := telemetry.NewMetrics(prometheus.NewRegistry(), nil)
		turns, watched := &Turns{}, m.Loop("loop", Workers)
		ctx, cancel := context.WithCancel(t.Context())
		var done sync.WaitGroup
		steps := map[string]int{}
		var mu sync.Mutex
		done.Go(func() {
			turns.Run(ctx, watched, func(_ context.Context, name string) (time.Duration, error) {
				mu.Lock()
				defer mu.Unlock()
				steps[name]++
				if name == "bad" && steps[name] < 3 {
					panic("no")
				}
				return 0, nil
			})
		})
		turns.Call("bad")
		turns.Call("good")
		time.Sleep(time.Minute)
		cancel()
		done.Wait()
		if steps["bad"] != 3 || steps["good"] != 1 {
			t.Errorf("steps = %v, want three of bad and one of good", steps)
		}
		for what, c := range map[string]prometheus.Counter{
			"panics": m.ReconcilePanics.WithLabelValues("loop"), "retries": m.WorkqueueRetries.WithLabelValues("loop", "loop"),
			"successes": m.ReconcileTotal.WithLabelValues("loop", "success"),
		} {
			if got := testutil.ToFloat64(c); got != 2 {
				t.Errorf("%v %s, want two", got, what)
			}
		}
	})
}
