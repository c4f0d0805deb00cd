package operator

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// busyGarbage and calmGarbage are about how much garbage may lie around before it is collected. By default a
	// process grows to twice of what is alive before it looks for garbage; in a large cluster most of that would be
	// memory bought for nothing. The less garbage there is, the less often it would have to be collected anyway, so
	// a process that hardly makes any may as well be small.
	busyGarbage = 64 << 20
	calmGarbage = 24 << 20
	// calmCycles is how many collections between two looks are few.
	calmCycles = 2
	// leastGC is the least percentage by which the heap grows between collections.
	leastGC = 40

	heapEvery = 10 * time.Second
	heapKey   = "/gc/heap/live:bytes"
	cyclesKey = "/gc/cycles/total:gc-cycles"
)

// gcPercent is how much the heap may grow between collections, of which there were so many in the last heapEvery.
func gcPercent(live, cycles uint64) int {
	garbage := uint64(busyGarbage)
	if cycles <= calmCycles {
		garbage = calmGarbage
	}
	return min(100, max(leastGC, int(100*garbage/max(1, live))))
}

// watchHeap collects garbage the more often the more is alive, until ctx ends. A user who sets GOGC has decided.
func (p *parts) watchHeap(ctx context.Context) error {
	if os.Getenv("GOGC") != "" {
		<-ctx.Done()
		return nil
	}
	watched := p.metrics.Loop("heap", 1)
	defer p.metrics.End(watched)
	sample := []metrics.Sample{{Name: heapKey}, {Name: cyclesKey}}
	seen, set := uint64(0), 100
	for watched.Wait(ctx, heapEvery, nil) {
		metrics.Read(sample)
		live, cycles := sample[0].Value.Uint64(), sample[1].Value.Uint64()
		if percent := gcPercent(live, cycles-seen); percent != set {
			debug.SetGCPercent(percent)
			set = percent
		}
		seen = cycles
	}
	return nil
}
