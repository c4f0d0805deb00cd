package label

import (
	"slices"
	"strings"

	"karpenter.sh/karpenter/internal/kit/identity"
)

// A Req is what one label may be.
type Req struct {
	Key string
	Set Set
}

// Reqs are requirements on several labels, sorted by key, each key once. They never change after they were made. Keys are the present
// names of labels: code that reads objects replaces older names first (Vocabulary.Normalize in api/label).
type Reqs []Req

// Of makes requirements of a list in any order. Several requirements on one label are intersected. The result uses the memory of list.
func Of(list []Req) Reqs {
	slices.SortStableFunc(list, func(a, b Req) int { return strings.Compare(a.Key, b.Key) })
	out := list[:0]
	for _, q := range list {
		if n := len(out); n > 0 && out[n-1].Key == q.Key {
			out[n-1].Set = out[n-1].Set.Intersect(q.Set)
			continue
		}
		out = append(out, q)
	}
	return out
}

// With returns r with one more requirement. It copies r each time; Of is cheaper for many.
func (r Reqs) With(key string, s Set) Reqs {
	i, found := slices.BinarySearchFunc(r, key, func(q Req, k string) int { return strings.Compare(q.Key, k) })
	out := slices.Clone(r)
	if found {
		out[i].Set = out[i].Set.Intersect(s)
		return out
	}
	return slices.Insert(out, i, Req{key, s})
}

// And returns requirements that allow what both r and q allow.
func (r Reqs) And(q Reqs) Reqs {
	if len(q) == 0 {
		return r
	}
	if len(r) == 0 {
		return q
	}
	out := make(Reqs, 0, len(r)+len(q))
	i, j := 0, 0
	for i < len(r) || j < len(q) {
		switch {
		case j == len(q) || (i < len(r) && r[i].Key < q[j].Key):
			out = append(out, r[i])
			i++
		case i == len(r) || q[j].Key < r[i].Key:
			out = append(out, q[j])
			j++
		default:
			out = append(out, Req{r[i].Key, r[i].Set.Intersect(q[j].Set)})
			i++
			j++
		}
	}
	return out
}

// Get returns the values that r allows for key, and whether r has a requirement on it.
func (r Reqs) Get(key string) (Set, bool) {
	i, found := slices.BinarySearchFunc(r, key, func(q Req, k string) int { return strings.Compare(q.Key, k) })
	if !found {
		return Anything(), false
	}
	return r[i].Set, true
}

// Without returns r without the requirement on key.
func (r Reqs) Without(key string) Reqs {
	i, found := slices.BinarySearchFunc(r, key, func(q Req, k string) int { return strings.Compare(q.Key, k) })
	if !found {
		return r
	}
	return slices.Delete(slices.Clone(r), i, i+1)
}

// Conflict returns the first key with a requirement that no node can meet; false if there is none.
func (r Reqs) Conflict() (string, bool) {
	for _, q := range r {
		if q.Set.Empty() {
			return q.Key, true
		}
	}
	return "", false
}

// Allow reports whether a node with exactly these labels satisfies r, and if not, the first key that it fails.
func (r Reqs) Allow(labels map[string]string) (string, bool) {
	for _, q := range r {
		if v, ok := labels[q.Key]; ok && q.Set.Has(v) || !ok && q.Set.absent {
			continue
		}
		return q.Key, false
	}
	return "", true
}

// Key returns the identity of the requirements: equal requirements have equal keys.
func (r Reqs) Key() string {
	w := make([]byte, 0, 256)
	for _, q := range r {
		w = identity.Text(w, q.Key)
		w = q.Set.appendKey(w)
	}
	return string(w)
}

// appendKey appends a text that is equal for equal sets only.
func (s Set) appendKey(w []byte) []byte {
	w = identity.Flag(w, s.open)
	w = identity.Flag(w, s.absent)
	w = identity.Texts(w, s.vals)
	if w = identity.Flag(w, s.bounded()); s.bounded() {
		w = identity.Number(w, s.lo)
		w = identity.Number(w, s.hi)
	}
	return identity.Number(w, int64(s.Min))
}
