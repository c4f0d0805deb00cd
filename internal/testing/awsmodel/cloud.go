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
	cfg     Config
	data    *catalogue
	boot    boot.Cluster
	callers map[string]*principal // by access key id
	wake    chan struct{}         // tells Run that there is something to do
	started time.Time

	mu      sync.Mutex
	st      *state
	due     dueHeap
	lots    map[string]uint64 // how many were drawn about each thing
	answers uint64            // how many have an id
	faults  Faults
	account Account
	buckets map[string]*bucket
	calls   map[string]int
	log     []CallRecord
	outbox  []func()      // callbacks to make outside the lock, in order
	news    chan struct{} // closed when a message arrives in a queue
	dirty   bool          // something changed since the last snapshot
	saved   time.Time     // when the last snapshot was written
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
	c := &Cloud{
		cfg: cfg, data: loadCatalogue(cfg.Region, cfg.Types, cfg.LocalZones), boot: cfg.Cluster, callers: callers,
		wake: make(chan struct{}, 1), news: make(chan struct{}),
		lots: map[string]uint64{}, faults: cfg.Faults, account: cfg.ready(),
		buckets: map[string]*bucket{}, calls: map[string]int{},
	}
	found, err := c.load()
	if err != nil {
		return nil, fmt.Errorf("snapshot %s: %w", cfg.Snapshot, err)
	}
	if !found {
		c.started = time.Now()
		c.st = c.seed()
	}
	c.started = c.st.Started
	c.resume(time.Now())
	return c, nil
}

// Run lets time pass in the world: machines boot and vanish, spot machines are interrupted, callbacks are made and
// snapshots written. It returns when ctx ends, after a last snapshot.
func (c *Cloud) Run(ctx context.Context) error {
	for {
		c.mu.Lock()
		c.advance(time.Now())
		calls := c.outbox
		c.outbox = nil
		wait := c.untilNext(time.Now())
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
		case <-c.wake:
			timer.Stop()
		}
	}
}

const idle = time.Hour

func (c *Cloud) untilNext(now time.Time) time.Duration {
	wait := idle
	if len(c.due) > 0 {
		wait = max(c.due[0].at.Sub(now), 0)
	}
	if c.dirty && c.cfg.Snapshot != "" {
		wait = min(wait, saveEvery)
	}
	return wait
}

// changed notes that the state differs from the last snapshot and wakes Run.
func (c *Cloud) changed() {
	c.dirty = true
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// A due is something that happens to a machine by itself.
type due struct {
	at   time.Time
	seq  uint64 // keeps the order of equal times
	id   string
	what func(c *Cloud, m *machine, now time.Time)
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
func (c *Cloud) at(t time.Time, id string, what func(*Cloud, *machine, time.Time)) {
	c.st.Serial++
	heap.Push(&c.due, due{at: t, seq: c.st.Serial, id: id, what: what})
	c.changed()
}

// advance does everything that was due until now.
func (c *Cloud) advance(now time.Time) {
	for len(c.due) > 0 && !c.due[0].at.After(now) {
		d := heap.Pop(&c.due).(due)
		if m, ok := c.st.Machines[d.id]; ok {
			d.what(c, m, d.at)
			c.dirty = true
		}
	}
	c.lapseExpired(now)
}

// newID returns an identifier of EC2's form, such as i-0123456789abcdef0, that no earlier call returned.
func (c *Cloud) newID(prefix string) string {
	c.st.Serial++
	return prefix + "-0" + fmt.Sprintf("%016x", mix(c.cfg.Seed^c.st.Serial*0x9e3779b97f4a7c15))
}

// nameID returns the identifier that always stands for a name, for what is seeded.
func nameID(prefix, name string) string {
	return prefix + "-0" + fmt.Sprintf("%016x", hash(name))
}
