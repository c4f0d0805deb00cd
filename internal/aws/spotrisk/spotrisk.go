// Package spotrisk remembers how often spot machines were taken back, by type and zone.
//
// What is published about types is the prior, and what this cluster saw is the evidence; package hazard weighs the two. The memory is in
// the process: after a restart the hours of machines that run are counted again, and interruptions and failed launches of before are
// forgotten, so that hazards begin at what is published.
//
// Evidence counts only while it is followed, which is when the user has set what an interruption costs. Otherwise hazards are those that
// are published, and never change.
package spotrisk

import (
	"math"
	"sync"
	"time"

	"karpenter.sh/karpenter/internal/aws/price"
	"karpenter.sh/karpenter/internal/core/hazard"
)

// A Machine is a spot machine that runs.
type Machine struct {
	price.Pool
	Since time.Time
}

// A Memory may be used concurrently.
type Memory struct {
	bands bands

	mu       sync.Mutex
	follows  bool
	looked   time.Time // when machines were last counted
	records  map[price.Pool]hazard.Record
	known    map[price.Pool]risk // what Of returns for records
	sequence uint64
}

type risk struct {
	nano  int64
	rests bool
}

// New returns a Memory for a region that has seen nothing yet.
func New(region string) *Memory {
	b, err := bandsOf(published, region)
	if err != nil {
		panic("spotrisk: embedded file: " + err.Error()) // the build is broken, not the caller
	}
	return &Memory{bands: b, records: map[price.Pool]hazard.Record{}, known: map[price.Pool]risk{}}
}

// Of returns how often machines of a type in a zone are expected to be interrupted, in billionths per hour, and
// whether some were interrupted or not to be had recently (rests).
func (m *Memory) Of(p price.Pool) (nano int64, rests bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r, seen := m.known[p]; seen && m.follows {
		return r.nano, r.rests
	}
	return hazard.Nano(m.bands.prior(p.Type)), false
}

// Sequence returns a number that changes whenever Of may give another answer.
func (m *Memory) Sequence() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sequence
}

// Interrupted notes that a machine was interrupted.
func (m *Memory) Interrupted(p price.Pool) { m.note(p, hazard.Record.Interrupted) }

// Failed notes that a machine could not be had.
func (m *Memory) Failed(p price.Pool) { m.note(p, hazard.Record.Failed) }

// note changes the record of a type in a zone.
func (m *Memory) note(p price.Pool, seen func(hazard.Record, time.Time) hazard.Record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.records[p] = seen(m.records[p], time.Now())
	m.tell(p)
}

// Observe adds the hours that machines have run since the last call, and lets evidence count from now on.
func (m *Memory) Observe(running []Machine) { m.look(running, true) }

// Ignore lets only published rates count from now on. Evidence that is remembered grows old.
func (m *Memory) Ignore() { m.look(nil, false) }

// look adds hours, lets records grow old, and drops those that are empty.
func (m *Memory) look(running []Machine, follow bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	for _, x := range running {
		m.records[x.Pool] = m.records[x.Pool].Ran(now, m.hours(x, now))
	}
	m.looked = now
	if m.follows != follow {
		m.follows = follow
		m.sequence++
	}
	for p, r := range m.records {
		m.records[p] = r.After(now)
		m.tell(p)
		if m.records[p].Empty() {
			delete(m.records, p)
			delete(m.known, p)
		}
	}
}

// hours returns how long a machine has run since it was last counted. Hours before the first look are discounted by
// age, as records are.
func (m *Memory) hours(x Machine, now time.Time) float64 {
	if !m.looked.IsZero() && !x.Since.After(m.looked) {
		return now.Sub(m.looked).Hours()
	}
	age := max(now.Sub(x.Since), 0)
	half := hazard.HalfLife.Hours() / math.Ln2
	return half * -math.Expm1(-age.Hours()/half)
}

// tell updates what Of returns for a type in a zone.
func (m *Memory) tell(p price.Pool) {
	r := m.records[p]
	now := risk{hazard.Nano(r.Rate(m.bands.prior(p.Type))), r.Rests}
	if before, seen := m.known[p]; seen && before == now {
		return
	}
	m.known[p] = now
	if m.follows {
		m.sequence++
	}
}
