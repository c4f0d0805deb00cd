package memapi

import (
	"iter"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A shelf is the objects of one kind, in order of creation.
type shelf struct {
	keys  []key // with holes where objects are gone: at most half of them
	at    map[key]int
	holes int
}

func (s *Server) shelf(kind schema.GroupKind) *shelf {
	b := s.shelves[kind]
	if b == nil {
		b = &shelf{at: map[key]int{}}
		s.shelves[kind] = b
		s.kinds = append(s.kinds, kind)
	}
	return b
}

func (b *shelf) add(k key) {
	b.at[k] = len(b.keys)
	b.keys = append(b.keys, k)
}

func (b *shelf) remove(k key) {
	b.keys[b.at[k]] = key{}
	delete(b.at, k)
	b.holes++
	if b.holes > len(b.keys)/2 {
		b.close()
	}
}

// close fills the holes. It makes a list of its own: readers may be reading.
func (b *shelf) close() {
	keys := make([]key, 0, len(b.at))
	for k := range b.all() {
		b.at[k] = len(keys)
		keys = append(keys, k)
	}
	b.keys, b.holes = keys, 0
}

// all are the keys that are there now.
func (b *shelf) all() iter.Seq[key] {
	return func(yield func(key) bool) {
		for _, k := range b.keys {
			if k != (key{}) && !yield(k) {
				return
			}
		}
	}
}
