package turns

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
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
			turns.Run(ctx, func(_ context.Context, name string) (time.Duration, error) {
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
