// Package ttl holds a map whose entries expire.
//
// Nothing runs in the background: an expired entry is dropped when it is looked up or when Sweep is called.
package ttl

import (
	"maps"
	"sync"
	"time"
)

// A Map remembers values for a while. The zero value is not usable; see New. It may be used concurrently.
type Map[K comparable, V any] struct {
	life    time.Duration
	mu      sync.Mutex
	entries map[K]entry[V]
}

type entry[V any] struct {
	value V
	until time.Time
}

// New returns an empty map whose entries live for the given time.
func New[K comparable, V any](life time.Duration) *Map[K, V] {
	return &Map[K, V]{life: life, entries: map[K]entry[V]{}}
}

// Get returns the value of a key that has not run out.
func (m *Map[K, V]) Get(key K) (V, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, ok := m.entries[key]
	if ok && !time.Now().Before(e.until) {
		delete(m.entries, key)
		ok = false
	}
	if !ok {
		var none V
		return none, false
	}
	return e.value, true
}

// Put remembers a value from now on.
func (m *Map[K, V]) Put(key K, value V) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.entries[key] = entry[V]{value, time.Now().Add(m.life)}
}

// Touch extends the life of a key as if it had been put now. It reports whether the key was still there.
func (m *Map[K, V]) Touch(key K) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, ok := m.entries[key]
	if !ok || !time.Now().Before(e.until) {
		return false
	}
	e.until = time.Now().Add(m.life)
	m.entries[key] = e
	return true
}

// Delete removes a key.
func (m *Map[K, V]) Delete(key K) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.entries, key)
}

// Sweep removes the entries that have expired, and returns them.
func (m *Map[K, V]) Sweep() map[K]V {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out map[K]V
	now := time.Now()
	maps.DeleteFunc(m.entries, func(key K, e entry[V]) bool {
		if now.Before(e.until) {
			return false
		}
		if out == nil {
			out = map[K]V{}
		}
		out[key] = e.value
		return true
	})
	return out
}

// All returns the entries that have not expired.
func (m *Map[K, V]) All() map[K]V {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make(map[K]V, len(m.entries))
	now := time.Now()
	for key, e := range m.entries {
		if now.Before(e.until) {
			out[key] = e.value
		}
	}
	return out
}
