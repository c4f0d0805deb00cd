// Package quantity holds resource amounts as vectors of int64, one column for each interned resource name.
//
// CPU counts in thousandths of a core, everything else in its own unit. Amounts stop at Max instead of overflowing, so that an absurd
// amount in an object is only too large.
package quantity

import "math/bits"

// Max is the largest amount; sums stop there. As room it means unlimited.
const Max = int64(1) << 52

// The columns that always exist.
const (
	CPU = iota
	Memory
	Storage
	Pods
	fixed // how many they are
)

// The assumed columns, by name. In them a container without a request counts with kube-scheduler's default for such containers. They
// limit new nodes only: an existing node has unlimited room in them, because kube-scheduler binds pods there by their requests alone.
// They occur in explanations, not in objects.
const (
	AssumedCPU    = "assumed-cpu"
	AssumedMemory = "assumed-memory"
)

// Assumed reports whether a column is one of the assumed columns.
func Assumed(name string) bool { return name == AssumedCPU || name == AssumedMemory }

// RequestedOf returns the column of real requests that belongs to an assumed column.
func RequestedOf(name string) int {
	if name == AssumedCPU {
		return CPU
	}
	return Memory
}

// A Vec is one amount for each column.
type Vec []int64

// Names interns resource names. The zero value is not usable; call NewNames.
type Names struct {
	list  []string
	index map[string]int
}

// NewNames returns a table that holds the four columns that always exist.
func NewNames() *Names {
	n := &Names{index: map[string]int{}}
	for _, s := range []string{"cpu", "memory", "ephemeral-storage", "pods"} {
		n.Intern(s)
	}
	return n
}

// Intern returns the column of name, a new one if need be.
func (n *Names) Intern(name string) int {
	if i, ok := n.index[name]; ok {
		return i
	}
	i := len(n.list)
	n.index[name] = i
	n.list = append(n.list, name)
	return i
}

// Lookup returns the column of name, or -1.
func (n *Names) Lookup(name string) int {
	if i, ok := n.index[name]; ok {
		return i
	}
	return -1
}

// Len returns the number of columns.
func (n *Names) Len() int { return len(n.list) }

// Name returns the name of a column.
func (n *Names) Name(i int) string { return n.list[i] }

// Clamp returns x, or ±Max if x is beyond that.
func Clamp(x int64) int64 { return max(-Max, min(Max, x)) }

// Add adds w to v.
func (v Vec) Add(w Vec) {
	for i, x := range w {
		v[i] = Clamp(v[i] + x)
	}
}

// AddTimes adds w to v n times.
func (v Vec) AddTimes(w Vec, n int) {
	for i, x := range w {
		v[i] = Clamp(v[i] + x*int64(n))
	}
}

// Sub takes w from v.
func (v Vec) Sub(w Vec) {
	for i, x := range w {
		v[i] = Clamp(v[i] - x)
	}
}

// Max raises each entry of v to that of w.
func (v Vec) Max(w Vec) {
	for i, x := range w {
		v[i] = max(v[i], x)
	}
}

// Fits reports whether v fits into room: no entry is larger. An entry of 0 fits even if the room is below 0, as for kube-scheduler.
func (v Vec) Fits(room Vec) bool {
	for i, x := range v {
		if x > room[i] && x > 0 {
			return false
		}
	}
	return true
}

// Times returns how many times v fits into room, at most limit.
func (v Vec) Times(room Vec, limit int) int {
	for i, x := range v {
		if x > 0 {
			limit = min(limit, int(room[i]/x))
		}
	}
	return max(limit, 0)
}

// RatioLess reports whether a/b is less than c/d, without rounding. No number may be negative.
func RatioLess(a, b, c, d int64) bool {
	hi1, lo1 := bits.Mul64(uint64(a), uint64(d))
	hi2, lo2 := bits.Mul64(uint64(c), uint64(b))
	return hi1 < hi2 || hi1 == hi2 && lo1 < lo2
}
