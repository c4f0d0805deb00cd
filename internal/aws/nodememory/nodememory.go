// Package nodememory remembers how much memory nodes of each type really have.
//
// What a node reports depends on its type and image, so values are kept by type and by the set of the class's images; a
// class with other images starts from the estimate again. Of several nodes the smallest value counts.
package nodememory

import (
	"sync"
	"time"

	"karpenter.sh/karpenter/internal/aws/ttl"
)

// life is how long a figure is kept after it was last seen.
const life = 60 * 24 * time.Hour

// A Memory remembers figures. It may be used concurrently.
type Memory struct {
	mu       sync.Mutex
	sequence uint64
	seen     *ttl.Map[key, int64] // bytes
}

type key struct{ images, instanceType string }

// New returns a Memory without figures.
func New() *Memory { return &Memory{seen: ttl.New[key, int64](life)} }

// See notes a node's memory. The smallest value of each type and set of images counts.
func (m *Memory) See(images, instanceType string, bytes int64) {
	if bytes <= 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	k := key{images, instanceType}
	old, ok := m.seen.Get(k)
	if ok {
		bytes = min(bytes, old)
	}
	if !ok || old != bytes {
		m.sequence++
		m.seen.Sweep() // images come and go for as long as the process lives
	}
	m.seen.Put(k, bytes)
}

// Seen returns the memory in bytes that nodes of a type were seen to have, 0 if none was.
func (m *Memory) Seen(images, instanceType string) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	bytes, _ := m.seen.Get(key{images, instanceType})
	return bytes
}

// Sequence returns a number that changes whenever Seen may give another answer.
func (m *Memory) Sequence() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sequence
}
