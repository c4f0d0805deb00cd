package operator

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// busyGarbage and calmGarbage are how much garbage there may be before it is collected, about. By default a process grows to twice
	// its live heap before a collection, which in a large cluster is mostly wasted memory. A process that makes little garbage is
	// collected rarely anyway, so it gets the smaller number.
	busyGarbage = 64 << 20
	calmGarbage = 24 << 20
	// calmCycles is the number of collections between two looks up to which a process counts as calm.
	calmCycles = 2
	// leastGC is the least percentage by which the heap grows between collections.
	leastGC = 40

	heapEvery = 10 * time.Second
	heapKey   = "/gc/heap/live:bytes"
	cyclesKey = "/gc/cycles/total:gc-cycles"
)

// gcPercent returns the GC percentage (as GOGC) for a heap of live bytes, after a number of collections (cycles) in the last heapEvery.
func gcPercent(live, cycles uint64) int {
	garbage := uint64(busyGarbage)
	if cycles <= calmCycles {
		garbage = calmGarbage
	}
	return min(100, max(leastGC, int(100*garbage/max(1, live))))
}

// watchHeap adapts the GC percentage to the live heap until ctx ends. If the user has set GOGC, it changes nothing.
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
