package operator

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"karpenter.sh/karpenter/internal/pause"
)

const (
	// smallHeap is what may be alive before garbage is collected more often than Go does by itself. By default a process grows to twice
	// of what is alive before it looks for garbage; in a large cluster most of that would be memory bought for nothing.
	smallHeap = 64 << 20
	// leastGC is the least percentage by which the heap grows between collections.
	leastGC = 40
	heapKey = "/gc/heap/live:bytes"
)

// gcPercent is how much the heap may grow between collections.
func gcPercent(live uint64) int {
	if live <= smallHeap {
		return 100
	}
	return max(leastGC, int(100*smallHeap/live))
}

// watchHeap collects garbage the more often the more is alive, until ctx ends. Whoever sets GOGC has decided.
func watchHeap(ctx context.Context) error {
	if os.Getenv("GOGC") != "" {
		<-ctx.Done()
		return nil
	}
	sample := []metrics.Sample{{Name: heapKey}}
	for pause.For(ctx, 10*time.Second) {
		metrics.Read(sample)
		debug.SetGCPercent(gcPercent(sample[0].Value.Uint64()))
	}
	return nil
}
