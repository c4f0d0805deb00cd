// Package dedup keeps one copy of equal strings and lists of many objects.
//
// Every object that is decoded has strings, lists and maps of its own, although a thousand NodeClaims of one pool differ in a few
// words. A Table returns one copy of equal values, which must not be changed. It remembers recent values up to a bounded weight and
// forgets the others. Then there may be two copies of equal values, which only takes more memory.
package dedup

import (
	"hash/maphash"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// weight is how many bytes, about, a table remembers before it begins to forget; it holds twice that at most.
const weight = 2 << 20

// long is the length above which strings are not remembered, because long strings are rarely equal.
const long = 256

// A Table remembers what it returned. It may be used concurrently.
type Table struct {
	mu         sync.Mutex
	seed       maphash.Seed
	young, old generation
}

// A generation is the values that were asked for since the generation before it was full.
type generation struct {
	strings map[string]string
	lists   map[uint64][]string
	amounts map[uint64]corev1.ResourceList
	weight  int
}

// New returns a table that remembers nothing.
func New() *Table { return &Table{seed: maphash.MakeSeed(), young: newGeneration()} }

func newGeneration() generation {
	return generation{strings: map[string]string{}, lists: map[uint64][]string{}, amounts: map[uint64]corev1.ResourceList{}}
}

// String returns the one copy of s.
func (t *Table) String(s string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.string(s)
}

// string is String while t.mu is held. A value of the old generation moves into the young one.
func (t *Table) string(s string) string {
	if s == "" || len(s) > long {
		return s
	}
	known, ok := t.young.strings[s]
	if ok {
		return known
	}
	if known, ok = t.old.strings[s]; !ok {
		known = s
	}
	t.young.strings[known] = known
	t.grow(len(known) + 48)
	return known
}

// grow adds to the weight of the young generation. If that is full, it becomes the old one, and the values of the old one are forgotten.
func (t *Table) grow(bytes int) {
	if t.young.weight += bytes; t.young.weight > weight {
		t.old, t.young = t.young, newGeneration()
	}
}

// Strings returns the one copy of a list.
func (t *Table) Strings(list []string) []string {
	if len(list) == 0 {
		return list
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	key := t.hash(list)
	known := t.young.lists[key]
	if slices.Equal(known, list) {
		return known
	}
	if known = t.old.lists[key]; !slices.Equal(known, list) {
		known = make([]string, len(list))
		for i, s := range list {
			known[i] = t.string(s)
		}
	}
	t.young.lists[key] = known
	t.grow(len(known)*16 + 64)
	return known
}

func (t *Table) hash(list []string) uint64 {
	var h maphash.Hash
	h.SetSeed(t.seed)
	for _, s := range list {
		_, _ = h.WriteString(s) // never fails
		_ = h.WriteByte(0)
	}
	return h.Sum64()
}

// Map returns a map whose keys and values are shared: was, if it is equal to m, else a new map.
func (t *Table) Map(was, m map[string]string) map[string]string {
	switch {
	case len(m) == 0:
		return m
	case maps.Equal(was, m):
		return was
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make(map[string]string, len(m))
	for k, v := range m {
		out[t.string(k)] = t.string(v)
	}
	return out
}

// Amounts returns the one copy of a list of resources.
func (t *Table) Amounts(list corev1.ResourceList) corev1.ResourceList {
	if len(list) == 0 {
		return list
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	var key uint64 // does not depend on the order of the map
	for name, q := range list {
		key += maphash.String(t.seed, string(name)) ^ uint64(q.MilliValue())*0x9e3779b97f4a7c15
	}
	known := t.young.amounts[key]
	if sameAmounts(known, list) {
		return known
	}
	if known = t.old.amounts[key]; !sameAmounts(known, list) {
		known = make(corev1.ResourceList, len(list))
		for name, q := range list {
			known[corev1.ResourceName(t.string(string(name)))] = q
		}
	}
	t.young.amounts[key] = known
	t.grow(len(known)*80 + 128)
	return known
}

// sameAmounts reports whether two lists are equal, also in how quantities are written.
func sameAmounts(a, b corev1.ResourceList) bool {
	return maps.EqualFunc(a, b, func(x, y resource.Quantity) bool { return x.Format == y.Format && x.Cmp(y) == 0 })
}

// Conditions returns a copy of the list whose strings are shared.
func (t *Table) Conditions(list []metav1.Condition) []metav1.Condition {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := slices.Clone(list)
	for i := range out {
		c := &out[i]
		c.Type, c.Reason, c.Message = t.string(c.Type), t.string(c.Reason), t.string(c.Message)
		c.Status = metav1.ConditionStatus(t.string(string(c.Status)))
	}
	return out
}
