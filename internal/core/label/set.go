// Package label is the algebra of node requirements: which values may a label have, and may it be absent.
//
// For each key the world is all values plus "the label is absent". Every operator is a plain set over that world, so that
// "compatible" means "the intersection is not empty" and "narrow" means "intersect"; there are no special cases. A Set
// never changes after it was made.
package label

import (
	"math"
	"slices"
	"strconv"
)

// An Op is an operator of Kubernetes node requirements.
type Op string

// The operators.
const (
	In           Op = "In"
	NotIn        Op = "NotIn"
	Exists       Op = "Exists"
	DoesNotExist Op = "DoesNotExist"
	Gt           Op = "Gt"
	Lt           Op = "Lt"
	Gte          Op = "Gte"
	Lte          Op = "Lte"
)

// A Set is the values that one label may take.
type Set struct {
	vals   []string // sorted; closed sets allow these, open ones exclude them
	open   bool     // every value that is not excluded and within the bounds is allowed
	absent bool     // a node without the label is allowed
	lo, hi int64    // inclusive, of open sets; values that are no integers are outside of any bound
	Min    int      // minValues; 0 if unset
}

// Anything allows every value, and absence.
func Anything() Set { return Set{open: true, absent: true, lo: math.MinInt64, hi: math.MaxInt64} }

// Nothing is the empty set.
func Nothing() Set { return Set{} }

// Absent allows only the absence of the label.
func Absent() Set { return Set{absent: true} }

// Only allows exactly these values.
func Only(values ...string) Set {
	v := slices.Clone(values)
	slices.Sort(v)
	return Set{vals: slices.Compact(v)}
}

// Except allows every value but these, and absence.
func Except(values ...string) Set {
	s := Anything()
	s.vals = Only(values...).vals
	return s
}

// Existing allows every value.
func Existing() Set {
	s := Anything()
	s.absent = false
	return s
}

// New returns the set that an operator means. It returns false for an operator that it does not know, or for a
// numeric one without exactly one integer.
func New(op Op, values []string) (Set, bool) {
	switch op {
	case In:
		return Only(values...), true
	case NotIn:
		if len(values) == 0 { // none of nothing: any value will do, but there has to be one
			return Existing(), true
		}
		return Except(values...), true
	case Exists:
		return Existing(), true
	case DoesNotExist:
		return Absent(), true
	}
	if len(values) != 1 {
		return Set{}, false
	}
	n, err := strconv.ParseInt(values[0], 10, 64)
	if err != nil {
		return Set{}, false
	}
	s := Existing()
	switch op {
	case Gt:
		if n == math.MaxInt64 {
			return Nothing(), true
		}
		s.lo = n + 1
	case Lt:
		if n == math.MinInt64 {
			return Nothing(), true
		}
		s.hi = n - 1
	case Gte:
		s.lo = n
	case Lte:
		s.hi = n
	default:
		return Set{}, false
	}
	return s, true
}

func (s Set) bounded() bool { return s.open && (s.lo != math.MinInt64 || s.hi != math.MaxInt64) }

func within(v string, lo, hi int64) bool {
	n, err := strconv.ParseInt(v, 10, 64)
	return err == nil && lo <= n && n <= hi
}

// Has reports whether a node whose label has value v is allowed.
func (s Set) Has(v string) bool {
	_, listed := slices.BinarySearch(s.vals, v)
	if !s.open {
		return listed
	}
	return !listed && (!s.bounded() || within(v, s.lo, s.hi))
}

// Takes reports whether a node is allowed whose label has one of these values, or that has no such label where there are none.
func (s Set) Takes(values ...string) bool {
	return len(values) == 0 && s.absent || slices.ContainsFunc(values, s.Has)
}

// HasAbsent reports whether a node without the label is allowed.
func (s Set) HasAbsent() bool { return s.absent }

// Open reports whether values that no object mentioned are allowed.
func (s Set) Open() bool { return s.open }

// Values returns the allowed values of a closed set, or the excluded ones of an open set. Callers do not change it.
func (s Set) Values() []string { return s.vals }

// Bounds returns the inclusive bounds of an open set, and whether each exists.
func (s Set) Bounds() (lo, hi int64, hasLo, hasHi bool) {
	return s.lo, s.hi, s.open && s.lo != math.MinInt64, s.open && s.hi != math.MaxInt64
}

// Empty reports whether no node at all is allowed.
func (s Set) Empty() bool { return !s.open && !s.absent && len(s.vals) == 0 }

// Single returns the only value that is allowed, if there is exactly one and absence is not allowed.
func (s Set) Single() (string, bool) {
	if s.open || s.absent || len(s.vals) != 1 {
		return "", false
	}
	return s.vals[0], true
}

// Intersect returns what both allow. The larger minValues stays.
func (s Set) Intersect(t Set) Set {
	r := Set{absent: s.absent && t.absent, Min: max(s.Min, t.Min)}
	switch {
	case s.open && t.open:
		r.open, r.lo, r.hi = true, max(s.lo, t.lo), min(s.hi, t.hi)
		if r.lo > r.hi {
			return Set{absent: r.absent, Min: r.Min}
		}
		r.vals = union(s.vals, t.vals)
		if r.bounded() { // excluded values outside of the bounds say nothing
			r.vals = slices.DeleteFunc(slices.Clone(r.vals), func(v string) bool { return !within(v, r.lo, r.hi) })
		}
	case s.open:
		r.vals = keep(t.vals, s)
	default:
		r.vals = keep(s.vals, t)
	}
	return r
}

// Complement returns what s does not allow. It returns false for a set with bounds, whose complement is no Set.
func (s Set) Complement() (Set, bool) {
	if s.bounded() {
		return Set{}, false
	}
	if s.open {
		return Set{vals: s.vals, absent: !s.absent}, true
	}
	r := Anything()
	r.vals, r.absent = s.vals, !s.absent
	return r, true
}

// Meets reports whether the intersection of s and t is not empty.
func (s Set) Meets(t Set) bool {
	if s.absent && t.absent {
		return true
	}
	if s.open && t.open {
		return max(s.lo, t.lo) <= min(s.hi, t.hi)
	}
	if s.open {
		s, t = t, s
	}
	return slices.ContainsFunc(s.vals, t.Has)
}

func keep(vals []string, in Set) []string {
	var out []string
	for _, v := range vals {
		if in.Has(v) {
			out = append(out, v)
		}
	}
	return out
}

func union(a, b []string) []string {
	if len(a) == 0 {
		return b
	}
	if len(b) == 0 {
		return a
	}
	out := slices.Concat(a, b)
	slices.Sort(out)
	return slices.Compact(out)
}

// A Term is one operator with its values.
type Term struct {
	Op     Op
	Values []string
	Min    int
}

// Terms writes s as operators whose conjunction means s. The empty set is written as In without values.
func (s Set) Terms() []Term {
	if !s.open {
		switch {
		case len(s.vals) == 0 && s.absent:
			return []Term{{Op: DoesNotExist, Min: s.Min}}
		case s.absent: // a value or none: no operator says this, the values are what can be launched
			return []Term{{Op: In, Values: s.vals, Min: s.Min}}
		}
		return []Term{{Op: In, Values: s.vals, Min: s.Min}}
	}
	var out []Term
	if _, _, lo, hi := s.Bounds(); lo || hi {
		if lo {
			out = append(out, Term{Op: Gte, Values: []string{strconv.FormatInt(s.lo, 10)}, Min: s.Min})
		}
		if hi {
			out = append(out, Term{Op: Lte, Values: []string{strconv.FormatInt(s.hi, 10)}, Min: s.Min})
		}
	}
	if len(s.vals) > 0 {
		out = append(out, Term{Op: NotIn, Values: s.vals, Min: s.Min})
	}
	if len(out) == 0 || (!s.absent && len(out) == 1 && out[0].Op == NotIn) {
		if !s.absent {
			out = append(out, Term{Op: Exists, Min: s.Min})
		}
	}
	return out
}
