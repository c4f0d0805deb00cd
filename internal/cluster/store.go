package cluster

import (
	"sync"
	"sync/atomic"
	"time"
)

// quiet is the least time between two wake-ups of readers that wait for a snapshot to become stale. Events come in bursts, and a reader
// that looked at each of them would do nothing else.
const quiet = 20 * time.Millisecond

// A Store holds the state of the cluster. Everything that changes it goes through Update or Observe; all others read snapshots.
type Store struct {
	mu       sync.Mutex
	draft    *Draft
	woken    time.Time       // when readers were last woken
	stale    chan struct{}   // Stale of the newest snapshot; nil if that is out of date or there is none
	doomed   []chan struct{} // Stale of snapshots that are out of date, not closed yet
	arranged bool            // a timer will close doomed
	edits    uint64          // calls of Update and Observe
	news     uint64          // edits that were news

	head atomic.Pointer[Snapshot] // nil while edits have not been published
}

// NewStore returns a store that knows nothing and is not synced.
func NewStore() *Store {
	return &Store{draft: newDraft()}
}

// Update changes the state. A snapshot that is taken afterwards has the whole change, and no snapshot has a part of it. edit must not
// keep the draft.
func (s *Store) Update(edit func(*Draft)) {
	s.Observe(func(d *Draft) bool { edit(d); return true })
}

// Observe is Update for an edit that may turn out to be no news, such as a heartbeat. Readers that wait for a snapshot to become stale
// are woken only by news.
func (s *Store) Observe(edit func(*Draft) (news bool)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	news := true
	defer func() { s.changed(news) }() // also if edit panics, because it may have changed something before
	s.draft.clock = time.Now()
	news = edit(s.draft)
}

// changed makes the next call of Snapshot publish a new one. After news it also wakes the readers that wait, at once or when quiet has
// passed.
func (s *Store) changed(news bool) {
	s.edits++
	s.head.Store(nil)
	if !news { // readers see the change when they look for another reason
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

// wake closes Stale of all snapshots that are out of date. A snapshot that was taken since the last edit is still the newest.
func (s *Store) wake() {
	s.woken = time.Now()
	for _, stale := range s.doomed {
		close(stale)
	}
	s.doomed = nil
}

// Snapshot returns the newest snapshot. It is made at the first call after an edit.
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
