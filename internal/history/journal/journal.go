package journal

import (
	"sync"
	"time"
)

const (
	// mostRecords and mostBytes bound what is in memory.
	mostRecords = 10_000
	mostBytes   = 20 << 20
)

// A Journal holds the newest records. It may be used concurrently. A nil Journal accepts records and keeps none.
type Journal struct {
	mu    sync.Mutex
	ring  []Record // the oldest first, from head on
	sizes []int    // of the records of ring
	head  int
	bytes int
	seq   uint64
	older uint64        // records with numbers up to this one were kept by an earlier process
	news  chan struct{} // closed when a record comes
}

// New returns an empty journal.
func New() *Journal { return &Journal{news: make(chan struct{})} }

// Add gives a record its number and keeps it; it drops the oldest records above the limits. A record without a time
// gets the present one. The lists of the record belong to the journal from then on: they can be long, and are not
// copied.
func (j *Journal) Add(r Record) {
	if j == nil {
		return
	}
	r.cut()
	if r.At.IsZero() {
		r.At = time.Now()
	}
	r.At = r.At.UTC()
	size := r.size()
	j.mu.Lock()
	defer j.mu.Unlock()
	j.seq++
	r.Seq = j.seq
	j.ring, j.sizes = append(j.ring, r), append(j.sizes, size)
	j.bytes += size
	for j.len() > mostRecords || j.bytes > mostBytes && j.len() > 1 {
		j.bytes -= j.sizes[j.head]
		j.ring[j.head] = Record{}
		j.head++
	}
	if j.head > mostRecords/4 { // a quarter is left behind before the rest is moved
		rest := copy(j.ring, j.ring[j.head:])
		clear(j.ring[rest:])
		copy(j.sizes, j.sizes[j.head:])
		j.ring, j.sizes, j.head = j.ring[:rest], j.sizes[:rest], 0
	}
	close(j.news)
	j.news = make(chan struct{})
}

// Restore puts the newest records of an earlier process into the journal, with numbers from 1 on. It does nothing if
// the journal has records.
func (j *Journal) Restore(records []Record) {
	if j == nil {
		return
	}
	records = records[max(0, len(records)-mostRecords):]
	j.mu.Lock()
	empty := j.seq == 0
	j.mu.Unlock()
	if !empty {
		return
	}
	for _, r := range records {
		j.Add(r)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.older = uint64(len(records))
}

// restored returns the number of the last record that an earlier process kept, 0 if there is none.
func (j *Journal) restored() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.older
}

func (j *Journal) len() int { return len(j.ring) - j.head }

// Select returns the records that a query asks for, the oldest first.
func (j *Journal) Select(q Query) []Record {
	if j == nil {
		return nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return q.Select(j.ring[j.head:])
}

// News returns a channel that is closed when the next record comes.
func (j *Journal) News() <-chan struct{} {
	if j == nil {
		return nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.news
}
