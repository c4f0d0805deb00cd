// Package memory remembers how much memory nodes of each type really have.
//
// What a node reports depends on its type and image, so figures are kept by type and by the set of the class's
// images; other images start from the estimate again. Of several nodes the smallest counts.
package memory

import (
	"sync"
	"time"
)

// life is how long a figure is kept after it was last seen.
const life = 60 * 24 * time.Hour

// A Memory remembers figures. It may be used concurrently.
type Memory struct {
	mu       sync.Mutex
	sequence uint64
	seen     map[key]figure
}

type key struct{ images, instanceType string }

type figure struct {
	bytes int64
	until time.Time
}

// New returns a Memory without figures.
func New() *Memory { return &Memory{seen: map[key]figure{}} }

// See takes note of a node's memory.
func (m *Memory) See(images, instanceType string, bytes int64) {
	if bytes <= 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	k := key{images, instanceType}
	old, ok := m.seen[k]
	if ok && old.bytes <= bytes && time.Now().Before(old.until) {
		bytes = old.bytes
	}
	if !ok || old.bytes != bytes {
		m.sequence++
	}
	m.seen[k] = figure{bytes, time.Now().Add(life)}
}

// Seen returns the memory in bytes that nodes of a type were seen to have, 0 if none was.
func (m *Memory) Seen(images, instanceType string) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	f, ok := m.seen[key{images, instanceType}]
	if !ok || !time.Now().Before(f.until) {
		return 0
	}
	return f.bytes
}

// Sequence is a number that changes whenever Seen may give another answer.
func (m *Memory) Sequence() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sequence
}
