package podclass

import (
	"crypto/sha256"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// digest is a SHA-256 hash of a key. Different keys have different digests for all practical purposes.
type digest [sha256.Size]byte

// An Identity is equal for equal label sets.
type Identity digest

// slack is how many values without holders are kept at least before they are forgotten; drop adds half of all values. Without it a
// rollout that removes the last pod of a class shortly before a new one comes would make the class anew.
const slack = 1024

// An Interner hands out Classes and Labels. It is not safe for concurrent use.
type Interner struct {
	classes table[digest, *Class]
	labels  table[digest, *Labels]
	buf     []byte
	keys    []string
}

// NewInterner returns an empty Interner.
func NewInterner() *Interner {
	return &Interner{
		classes: table[digest, *Class]{values: map[digest]*Class{}},
		labels:  table[digest, *Labels]{values: map[digest]*Labels{}},
	}
}

// Class returns the class of a pod and counts one more holder of it.
func (in *Interner) Class(pod *corev1.Pod) *Class {
	key := digest(sha256.Sum256(in.keyOf(pod)))
	if c, ok := in.classes.take(key); ok {
		return c
	}
	spec := cut(pod)
	c := &Class{ID: in.classes.next(), Namespace: pod.Namespace, Spec: spec.DeepCopy()}
	in.classes.put(key, c)
	return c
}

// Labels returns the interned form of a label set and counts one more holder of it.
func (in *Interner) Labels(m map[string]string) *Labels {
	key := in.digestMap(m)
	if l, ok := in.labels.take(key); ok {
		return l
	}
	l := &Labels{ID: in.labels.next(), Map: maps.Clone(m), Template: Identity(key)}
	if template := templateLabels(l.Map); len(template) < len(l.Map) {
		l.Template = Identity(in.digestMap(template))
	}
	in.labels.put(key, l)
	return l
}

// templateLabels returns a label set without the labels that admission adds; the set itself if there are none.
func templateLabels(m map[string]string) map[string]string {
	added := func(key, _ string) bool {
		return strings.HasPrefix(key, "topology.kubernetes.io/") || strings.HasPrefix(key, "topology.k8s.io/")
	}
	for key := range m {
		if added(key, "") {
			out := maps.Clone(m)
			maps.DeleteFunc(out, added)
			return out
		}
	}
	return m
}

// Retain counts one more holder of c and l, which have one.
func (in *Interner) Retain(c *Class, l *Labels) {
	c.self().holders++
	l.self().holders++
}

// Release counts one holder less of c and l. Values without holders are forgotten some time later. A reader that still has the pointer,
// for example in an old snapshot, may go on using it.
func (in *Interner) Release(c *Class, l *Labels) {
	in.classes.drop(c)
	in.labels.drop(l)
}

// Len returns how many classes and label sets are remembered.
func (in *Interner) Len() (classes, labels int) {
	return len(in.classes.values), len(in.labels.values)
}

func (in *Interner) digestMap(m map[string]string) digest {
	w := &writer{b: in.buf[:0], names: in.keys}
	w.selector(m)
	in.buf, in.keys = w.b, w.names
	return sha256.Sum256(w.b)
}

// entry is the interner's part of an interned value.
type entry[K comparable] struct {
	key     K
	holders int
}

func (e *entry[K]) self() *entry[K] { return e }

// table remembers values by key and counts their holders.
type table[K comparable, V interface{ self() *entry[K] }] struct {
	values map[K]V
	idle   int    // values without holders
	made   uint32 // how many IDs were given out
}

// next returns the ID for a new value.
func (t *table[K, V]) next() uint32 {
	t.made++
	return t.made - 1
}

// put adds a new value with one holder.
func (t *table[K, V]) put(key K, v V) {
	*v.self() = entry[K]{key: key, holders: 1}
	t.values[key] = v
}

// take returns the value of a key, if there is one, and counts one more holder.
func (t *table[K, V]) take(key K) (V, bool) {
	v, ok := t.values[key]
	if ok {
		e := v.self()
		if e.holders == 0 {
			t.idle--
		}
		e.holders++
	}
	return v, ok
}

// drop counts one holder less, and forgets all values without holders if there are too many.
func (t *table[K, V]) drop(v V) {
	e := v.self()
	if e.holders--; e.holders > 0 {
		return
	}
	t.idle++
	if t.idle > slack+len(t.values)/2 {
		maps.DeleteFunc(t.values, func(_ K, v V) bool { return v.self().holders == 0 })
		t.idle = 0
	}
}
