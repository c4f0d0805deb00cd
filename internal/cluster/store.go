package cluster

import (
	"sync"
	"sync/atomic"
	"time"
)

// quiet is the least time between two wake-ups of those who wait for a snapshot to become stale. Events come in
// bursts; a reader that looked at each of them would do nothing else.
const quiet = 20 * time.Millisecond

// A Store holds the picture of the cluster. Everything that changes it goes through Update; everybody else reads snapshots.
type Store struct {
	mu       sync.Mutex
	draft    *Draft
	woken    time.Time       // when readers were last woken
	stale    chan struct{}   // of the newest snapshot; nil once that is out of date
	doomed   []chan struct{} // of snapshots that are out of date and whose holders are still asleep
	arranged bool            // a timer will wake them
	edits    uint64
	news     uint64 // edits that were not calm

	head atomic.Pointer[Snapshot] // nil while edits have not been published
}

// NewStore returns a store that knows nothing and is not synced.
func NewStore() *Store {
	return &Store{draft: newDraft()}
}

// Update changes the picture. A snapshot that is taken afterwards has the whole change; none has half of it.
// The draft must not be kept.
func (s *Store) Update(edit func(*Draft)) {
	s.Observe(func(d *Draft) bool { edit(d); return true })
}

// Observe is Update for an edit that may turn out to be nothing that anybody need look at: a heartbeat, a bookmark. Those who wait for
// a snapshot to become stale are woken only by news.
func (s *Store) Observe(edit func(*Draft) (news bool)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	news := true
	defer func() { s.changed(news) }() // also when edit panics: what it did before stands
	s.draft.clock = time.Now()
	news = edit(s.draft)
}

// changed marks the last snapshot as old and wakes, soon, the readers that wait for that.
func (s *Store) changed(news bool) {
	s.edits++
	s.head.Store(nil)
	if !news { // a reader that looks for another reason sees it
		return
	}
	s.news++
	if s.stale != nil {
		s.doomed = append(s.doomed, s.stale)
		s.stale = nil
	}
	if len(s.doomed) == 0 || s.arranged {
		return
	}
	wait := quiet - time.Since(s.woken)
	if wait <= 0 {
		s.wake()
		return
	}
	s.arranged = true
	time.AfterFunc(wait, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.arranged = false
		s.wake()
	})
}

// wake wakes those who hold a snapshot that is out of date, and nothing else: a snapshot taken since the last edit is still
// the newest.
func (s *Store) wake() {
	s.woken = time.Now()
	for _, stale := range s.doomed {
		close(stale)
	}
	s.doomed = nil
}

// Snapshot returns the newest picture.
func (s *Store) Snapshot() *Snapshot {
	if snap := s.head.Load(); snap != nil {
		return snap
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if snap := s.head.Load(); snap != nil {
		return snap
	}
	if s.stale == nil {
		s.stale = make(chan struct{})
	}
	snap := s.draft.publish()
	snap.revision, snap.news, snap.stale = s.edits, s.news, s.stale
	s.head.Store(snap)
	return snap
}
