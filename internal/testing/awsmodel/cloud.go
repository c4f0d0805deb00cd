package awsmodel

import (
	"container/heap"
	"context"
	"fmt"
	"sync"
	"time"

	"karpenter.sh/karpenter/internal/testing/awsmodel/boot"
)

// A Cloud is one account in one region.
type Cloud struct {
	mu      sync.Mutex // guards what follows
	world   *world
	buckets map[string]*bucket
	calls   map[string]int
	log     []CallRecord
	saved   time.Time // when the last snapshot was written
}

// A world is the account and everything in it. Cloud's lock guards it.
type world struct {
	cfg     Config
	data    *catalogue
	boot    boot.Cluster
	callers map[string]*principal // by access key id
	wake    chan struct{}         // tells Run that there is something to do
	started time.Time
	st      *state
	due     dueHeap
	lots    map[string]uint64 // how many were drawn about each thing
	answers uint64            // how many have an id
	faults  Faults
	account Account
	outbox  []func()      // callbacks to make outside the lock, in order
	news    chan struct{} // closed when a message arrives in a queue
	dirty   bool          // something changed since the last snapshot
}

// New makes the world that cfg describes, or loads it from cfg.Snapshot.
func New(cfg Config) (*Cloud, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	callers, err := principals(cfg)
	if err != nil {
		return nil, err
	}
	w := &world{
		cfg: cfg, data: loadCatalogue(cfg.Region, cfg.Types, cfg.LocalZones), boot: cfg.Cluster, callers: callers,
		wake: make(chan struct{}, 1), news: make(chan struct{}),
		lots: map[string]uint64{}, faults: cfg.Faults, account: cfg.ready(),
	}
	found, err := w.load()
	if err != nil {
		return nil, fmt.Errorf("snapshot %s: %w", cfg.Snapshot, err)
	}
	if !found {
		w.started = time.Now()
		w.st = w.seed()
	}
	w.started = w.st.Started
	w.resume(time.Now())
	return &Cloud{world: w, buckets: map[string]*bucket{}, calls: map[string]int{}}, nil
}

// Run lets time pass in the world: machines boot and vanish, spot machines are interrupted, callbacks are made and
// snapshots written. It returns when ctx ends, after a last snapshot.
func (c *Cloud) Run(ctx context.Context) error {
	for {
		c.mu.Lock()
		c.world.advance(time.Now())
		calls := c.world.outbox
		c.world.outbox = nil
		wait := c.world.untilNext(time.Now())
		c.mu.Unlock()
		for _, call := range calls {
			call()
		}
		if err := c.save(false); err != nil {
			return err
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return c.save(true)
		case <-timer.C:
		case <-c.world.wake:
			timer.Stop()
		}
	}
}

const idle = time.Hour

func (w *world) untilNext(now time.Time) time.Duration {
	wait := idle
	if len(w.due) > 0 {
		wait = max(w.due[0].at.Sub(now), 0)
	}
	if w.dirty && w.cfg.Snapshot != "" {
		wait = min(wait, saveEvery)
	}
	return wait
}

// changed notes that the state differs from the last snapshot and wakes Run.
func (w *world) changed() {
	w.dirty = true
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// A due is something that happens to a machine by itself.
type due struct {
	at   time.Time
	seq  uint64 // keeps the order of equal times
	id   string
	what func(w *world, m *machine, now time.Time)
}

type dueHeap []due

func (h dueHeap) Len() int { return len(h) }
func (h dueHeap) Less(i, j int) bool {
	if h[i].at.Equal(h[j].at) {
		return h[i].seq < h[j].seq
	}
	return h[i].at.Before(h[j].at)
}
func (h dueHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *dueHeap) Push(x any)   { *h = append(*h, x.(due)) }
func (h *dueHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	return last
}

// at has what done to machine id when the time comes, if it still exists then.
func (w *world) at(t time.Time, id string, what func(*world, *machine, time.Time)) {
	w.st.Serial++
	heap.Push(&w.due, due{at: t, seq: w.st.Serial, id: id, what: what})
	w.changed()
}

// advance does everything that was due until now.
func (w *world) advance(now time.Time) {
	for len(w.due) > 0 && !w.due[0].at.After(now) {
		d := heap.Pop(&w.due).(due)
		if m, ok := w.st.Machines[d.id]; ok {
			d.what(w, m, d.at)
			w.dirty = true
		}
	}
	w.lapseExpired(now)
}

// newID returns an identifier of EC2's form, such as i-0123456789abcdef0, that no earlier call returned.
func (w *world) newID(prefix string) string {
	w.st.Serial++
	return prefix + "-0" + fmt.Sprintf("%016x", mix(w.cfg.Seed^w.st.Serial*0x9e3779b97f4a7c15))
}

// nameID returns the identifier that always stands for a name, for what is seeded.
func nameID(prefix, name string) string {
	return prefix + "-0" + fmt.Sprintf("%016x", hash(name))
}
