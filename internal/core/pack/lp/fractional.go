package lp

import (
	"iter"
	"math"

	"karpenter.sh/karpenter/internal/core/work"
)

// A Fractional solves fractional knapsacks: the most valuable contents of a room when items can be cut,
//
//	max v·x   subject to   Σ_j a_dj·x_j ≤ 1 in each dimension d,   0 ≤ x_j ≤ m_j,
//
// where a_dj is what item j needs of dimension d in parts of the room. It is a primal simplex with one row per dimension, so that B⁻¹ is
// tiny, and with bounds on the variables: outside of the basis a variable is either empty (0) or full (m_j). With prices p = v_B·B⁻¹, one
// more unit of j gains g_j = v_j − p·a_j. A variable enters if it is empty and g_j > 0 (it goes up, dir = 1), or full and g_j < 0 (it goes
// down, dir = −1). Along its way the basic variables change by −dir·B⁻¹·a_j. The way ends where the first of them gets empty or full, or
// where j itself meets its other bound; then the basis stays unchanged.
//
// The prices prove the value: it is Σ_d p_d + Σ_j m_j·max(0, g_j).
type Fractional struct {
	dims    int
	needs   []float64 // variable*dims, in parts of the room
	values  []float64 // per variable
	most    []float64 // per variable: upper bound
	room    []float64 // per dimension; 1 where the room is 0, which is divided by
	full    []bool    // per variable: outside of the basis, at its upper bound
	basis   []int     // per row: variable, or −1−d for the slack of dimension d
	inverse []float64 // dims*dims, row by row
	x       []float64 // per row: value of the basic variable
	price   []float64 // per dimension; of a unit of room once it is solved
	step    []float64 // per row: by how much the basic variable falls per unit of the way
	Steps   work.Steps
}

const (
	// gainSlack is the least gain of a move, in parts of the highest value. Smaller gains are rounding errors.
	gainSlack = 1e-11
	// stepLeast is the smallest change of a basic variable that can end a move.
	stepLeast = 1e-11
	// amountLeast is the amount above which an item is reported as part of the contents.
	amountLeast = 1e-15
)

// NewFractional returns a knapsack without items.
func NewFractional(dims int) *Fractional {
	return &Fractional{dims: dims, room: make([]float64, dims), basis: make([]int, dims), inverse: make([]float64, dims*dims),
		x: make([]float64, dims), price: make([]float64, dims), step: make([]float64, dims)}
}

// Reset forgets the items and sets the room.
func (f *Fractional) Reset(room []int64) {
	f.needs, f.values, f.most, f.full = f.needs[:0], f.values[:0], f.most[:0], f.full[:0]
	clear(f.inverse)
	for d, r := range room {
		f.room[d] = float64(r)
		f.basis[d] = -1 - d
		f.x[d] = 1 // rows are scaled by the room
		f.inverse[d*f.dims+d] = 1
		if r <= 0 {
			f.x[d] = 0
			f.room[d] = 1
		}
	}
}

// Add offers at most so many items of one kind, each with this need and value. Items are numbered in the order of Add.
func (f *Fractional) Add(need []float64, value, most float64) {
	for d, u := range need {
		f.needs = append(f.needs, u/f.room[d])
	}
	f.values, f.most, f.full = append(f.values, value), append(f.most, most), append(f.full, false)
}

// Solve returns the value of the best contents.
func (f *Fractional) Solve() float64 {
	scale := 0.0
	for _, v := range f.values {
		scale = max(scale, v)
	}
	for range 30*f.dims + 4*len(f.values) {
		f.Steps += work.Steps((len(f.values)+2*f.dims)*(f.dims+2) + 30)
		f.prices()
		j, dir := f.entering(scale * gainSlack)
		if j < -f.dims {
			break
		}
		if !f.move(j, dir) {
			break
		}
	}
	f.prices()
	var sum float64
	for r, j := range f.basis {
		if j >= 0 {
			sum += float64(f.values[j] * f.x[r])
		}
	}
	for j, full := range f.full {
		if full {
			sum += float64(f.values[j] * f.most[j])
		}
	}
	for d := range f.price {
		f.price[d] = max(f.price[d], 0) / f.room[d]
	}
	return sum
}

// Price returns, per dimension, what a unit of room is worth in the best contents. It is valid until the next Solve.
func (f *Fractional) Price() []float64 { return f.price }

// Cut yields the items that are in the basis, which may be cut, and how much of each the best contents have. If no item reaches its upper
// bound, these are all contents.
func (f *Fractional) Cut() iter.Seq2[int, float64] {
	return func(yield func(int, float64) bool) {
		for r, j := range f.basis {
			if j >= 0 && f.x[r] > amountLeast && !yield(j, f.x[r]) {
				return
			}
		}
	}
}

// Contents yields all items of the best contents and how much of each: those at their upper bound, then those of the basis.
func (f *Fractional) Contents() iter.Seq2[int, float64] {
	return func(yield func(int, float64) bool) {
		for j, full := range f.full {
			if full && !yield(j, f.most[j]) {
				return
			}
		}
		for j, x := range f.Cut() {
			if !yield(j, x) {
				return
			}
		}
	}
}

// prices computes p = value of the basis times the inverse.
func (f *Fractional) prices() {
	clear(f.price)
	for r, j := range f.basis {
		if j < 0 {
			continue
		}
		for d := range f.dims {
			f.price[d] += float64(f.values[j] * f.inverse[r*f.dims+d])
		}
	}
}

// entering returns the variable whose move gains most, and 1 if it goes up or −1 if it goes down. −1−d is the slack of dimension d; a
// number below −dims means that no move gains more than eps.
func (f *Fractional) entering(eps float64) (int, float64) {
	best, at, dir := eps, -f.dims-1, 1.0
	for j, v := range f.values {
		gain := v
		for d := range f.dims {
			gain -= float64(f.price[d] * f.needs[j*f.dims+d])
		}
		if f.full[j] {
			if -gain > best {
				best, at, dir = -gain, j, -1
			}
		} else if gain > best && !f.basic(j) {
			best, at, dir = gain, j, 1
		}
	}
	for d := range f.dims {
		if -f.price[d] > best && !f.basic(-1-d) {
			best, at, dir = -f.price[d], -1-d, 1
		}
	}
	return at, dir
}

// basic reports whether variable j is in the basis.
func (f *Fractional) basic(j int) bool {
	for _, b := range f.basis {
		if b == j {
			return true
		}
	}
	return false
}

// move changes variable j in direction dir until a variable meets a bound. If that is a basic one, j takes its place in the basis; if it is
// j itself, j goes from empty to full or back, and the basis stays. move returns false if nothing ends the way.
func (f *Fractional) move(j int, dir float64) bool {
	dims := f.dims
	for r := range dims {
		f.step[r] = 0
		if j < 0 {
			f.step[r] = float64(dir * f.inverse[r*dims-1-j])
			continue
		}
		for d := range dims {
			f.step[r] += float64(dir * float64(f.inverse[r*dims+d]*f.needs[j*dims+d]))
		}
	}
	far, leave, toFull := math.Inf(1), -1, false
	if j >= 0 {
		far = f.most[j]
	}
	for r, u := range f.step {
		if u > stepLeast {
			if t := max(f.x[r], 0) / u; t < far {
				far, leave, toFull = t, r, false
			}
		} else if b := f.basis[r]; u < -stepLeast && b >= 0 {
			if t := max(f.most[b]-f.x[r], 0) / -u; t < far {
				far, leave, toFull = t, r, true
			}
		}
	}
	if math.IsInf(far, 1) {
		return false
	}
	for r, u := range f.step {
		f.x[r] -= float64(far * u)
	}
	if leave < 0 {
		f.full[j] = dir > 0
		return true
	}
	start := 0.0
	if j >= 0 && f.full[j] {
		start, f.full[j] = f.most[j], false
	}
	if out := f.basis[leave]; out >= 0 {
		f.full[out] = toFull
	}
	f.basis[leave] = j
	f.x[leave] = start + float64(dir*far)
	pivot := float64(dir * f.step[leave])
	for d := range dims {
		f.inverse[leave*dims+d] /= pivot
	}
	for r, u := range f.step {
		if r == leave {
			continue
		}
		factor := float64(dir * u)
		for d := range dims {
			f.inverse[r*dims+d] -= float64(factor * f.inverse[leave*dims+d])
		}
	}
	return true
}
