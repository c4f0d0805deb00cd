// Package label is the algebra of node requirements: which values may a label have, and may it be absent.
//
// For each key a Set contains values, and possibly "the label is absent". Every operator of Kubernetes is such a set, so that
// "compatible" means "the intersection is not empty" and "narrow" means "intersect"; there are no special cases. A Set
// never changes after it was made.
//
//	closed set  lists the values that it allows (In)
//	open set    allows all values but those it lists (NotIn, Exists), within its bounds (Gt, Lt, Gte, Lte)
//	absent      a node without the label is allowed (NotIn, DoesNotExist)
//
// set.go has the sets of one label, reqs.go requirements on several.
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
	lo, hi int64    // inclusive, for open sets; values that are not integers are outside of all bounds
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
		if len(values) == 0 { // NotIn without values: any value is allowed, but the label must be there
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

// bounded reports whether s is open and has a bound.
func (s Set) bounded() bool { return s.open && (s.lo != math.MinInt64 || s.hi != math.MaxInt64) }

func within(v string, lo, hi int64) bool {
	n, err := strconv.ParseInt(v, 10, 64)
	return err == nil && lo <= n && n <= hi
}

// Has reports whether the label may have value v.
func (s Set) Has(v string) bool {
	_, listed := slices.BinarySearch(s.vals, v)
	if !s.open {
		return listed
	}
	return !listed && (!s.bounded() || within(v, s.lo, s.hi))
}

// Takes reports whether any of these values is allowed for the label; without values, whether the label may be absent.
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
		if r.bounded() { // excluded values outside of the bounds are redundant
			r.vals = slices.DeleteFunc(slices.Clone(r.vals), func(v string) bool { return !within(v, r.lo, r.hi) })
		}
	case s.open:
		r.vals = allowedBy(s, t.vals)
	default:
		r.vals = allowedBy(t, s.vals)
	}
	return r
}

// Complement returns the set of what s does not allow. It returns false for a set with bounds, because a Set cannot express that.
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

// Meets reports whether the intersection of s and t is not Empty. As there, a set that excludes values allows some value within its bounds,
// even if every integer between them is excluded.
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

// allowedBy returns those of the values that s allows.
func allowedBy(s Set, vals []string) []string {
	var out []string
	for _, v := range vals {
		if s.Has(v) {
			out = append(out, v)
		}
	}
	return out
}

// union returns the values of both sorted lists, sorted and each once.
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

// Terms returns operators that together mean s. The empty set is In without values. A closed set that also allows absence is In, too: no
// operator expresses it.
func (s Set) Terms() []Term {
	if !s.open {
		switch {
		case len(s.vals) == 0 && s.absent:
			return []Term{{Op: DoesNotExist, Min: s.Min}}
		case s.absent: // claims with these values can be launched
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
