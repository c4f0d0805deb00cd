package batch

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

	"karpenter.sh/karpenter/internal/kit/bug"
)

// recorder answers each item with itself and remembers what went out.
type recorder struct {
	mu      sync.Mutex
	batches []string
	took    time.Duration
	fail    error
}

func (r *recorder) send(_ context.Context, key string, items []int) []Result[int] {
	time.Sleep(r.took)
	r.mu.Lock()
	defer r.mu.Unlock()
	sorted := slices.Sorted(slices.Values(items))
	r.batches = append(r.batches, fmt.Sprint(key, sorted))
	out := make([]Result[int], len(items))
	for i, item := range items {
		out[i] = Result[int]{item, r.fail}
	}
	return out
}

func TestCallsOfOneKeyAreJoined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{}
		b := New(t.Context(), Settings{Idle: 35 * time.Millisecond, Max: time.Second, Size: 1000}, r.send)
		var wg sync.WaitGroup
		call := func(key string, item int) {
			wg.Go(func() {
				if got, err := b.Do(t.Context(), key, item); got != item || err != nil {
					t.Errorf("Do(%d) = %d, %v", item, got, err)
				}
			})
		}
		call("a", 1)
		call("a", 2)
		call("b", 3)
		time.Sleep(30 * time.Millisecond)
		call("a", 4) // still within a's window; b's has a life of its own
		wg.Wait()
		if want := []string{"b[3]", "a[1 2 4]"}; !slices.Equal(r.batches, want) {
			t.Errorf("batches = %v, want %v", r.batches, want)
		}
	})
}

func TestABatchGoesOutAtItsLatest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{}
		b := New(t.Context(), Settings{Idle: 35 * time.Millisecond, Max: 100 * time.Millisecond, Size: 1000}, r.send)
		var wg sync.WaitGroup
		for i := range 6 {
			wg.Go(func() { b.Do(t.Context(), "a", i) })
			time.Sleep(30 * time.Millisecond)
		}
		wg.Wait()
		if want := []string{"a[0 1 2 3]", "a[4 5]"}; !slices.Equal(r.batches, want) {
			t.Errorf("batches = %v, want %v", r.batches, want)
		}
	})
}

func TestAFullBatchDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{}
		b := New(t.Context(), Settings{Idle: time.Hour, Max: time.Hour, Size: 3}, r.send)
		var wg sync.WaitGroup
		start := time.Now()
		for i := range 3 {
			wg.Go(func() { b.Do(t.Context(), "a", i) })
		}
		wg.Wait()
		if d := time.Since(start); d != 0 {
			t.Errorf("a full batch took %v", d)
		}
	})
}

func TestOneCallersEndFailsNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{took: time.Second}
		b := New(t.Context(), Settings{Idle: time.Millisecond, Max: time.Second, Size: 10}, r.send)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := b.Do(ctx, "a", 1); !errors.Is(err, context.Canceled) {
				t.Errorf("the caller who left got %v", err)
			}
		})
		wg.Go(func() {
			if got, err := b.Do(t.Context(), "a", 2); got != 2 || err != nil {
				t.Errorf("the caller who stayed got %d, %v", got, err)
			}
		})
		time.Sleep(500 * time.Millisecond)
		cancel()
		wg.Wait()
		b.Wait()
	})
}

func TestErrorsReachEveryCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		boom := errors.New("boom")
		r := &recorder{fail: boom}
		sizes := []int{}
		b := New(t.Context(), Settings{Idle: time.Millisecond, Max: time.Second, Size: 10, Observe: func(n int, _ time.Duration) { sizes = append(sizes, n) }}, r.send)
		var wg sync.WaitGroup
		for i := range 3 {
			wg.Go(func() {
				if _, err := b.Do(t.Context(), "a", i); !errors.Is(err, boom) {
					t.Errorf("error = %v", err)
				}
			})
		}
		wg.Wait()
		if !slices.Equal(sizes, []int{3}) {
			t.Errorf("observed batches of %v, want one of 3", sizes)
		}
	})
}

func TestWorkersLimitBatchesInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{took: time.Second}
		b := New(t.Context(), Settings{Idle: time.Millisecond, Max: time.Second, Size: 10, Workers: 2}, r.send)
		var wg sync.WaitGroup
		start := time.Now()
		for i := range 6 {
			wg.Go(func() { b.Do(t.Context(), fmt.Sprint(i), i) })
		}
		wg.Wait()
		if d := time.Since(start); d != 3*time.Second+time.Millisecond {
			t.Errorf("six batches of a second took %v with two workers, want three seconds and the window", d)
		}
	})
}

func TestAPanicAnswersEveryCaller(t *testing.T) {
	bug.Expect(t)
	defer slog.SetDefault(slog.Default())
	slog.SetDefault(slog.New(slog.DiscardHandler))
	synctest.Test(t, func(t *testing.T) {
		b := New(t.Context(), Settings{Idle: 35 * time.Millisecond, Max: time.Second, Size: 1000}, func(context.Context, string, []int) []Result[int] { panic("no") })
		var wg sync.WaitGroup
		for i := range 3 {
			wg.Go(func() {
				_, err := b.Do(t.Context(), "a", i)
				if _, ok := errors.AsType[*bug.Panic](err); !ok {
					t.Errorf("error = %v, want a panic", err)
				}
			})
		}
		wg.Wait()
		b.Wait()
	})
}
