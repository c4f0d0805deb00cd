package verify

import "math"

// A hint is the textbook simplex tableau for the most valuable contents of a room when items can be cut: a row for each dimension, in parts
// of the room, and at most so many items of each class. Its row prices are what a unit of room is worth.
//
// It solves the same problem as lp.Fractional in another way: with a whole tableau instead of a small inverse, and with variables that are
// counted from their upper bound once they reach it. It is slower, but shares no code, so a mistake in one does not hide a mistake in the
// other.
type hint struct {
	dims  int
	rows  [][]float64 // per dimension: a coefficient for every item, then for every slack
	left  []float64   // per row: value of its basic variable
	basis []int       // per row: item, or item count + dimension
	gain  []float64   // per column: what one more unit brings
	most  []float64   // per column: at most so much of it
}

// nothing is the number up to which a sum of floating-point numbers near one counts as 0.
const nothing = 1e-11

// pricesOf returns, per dimension, what a unit of room is worth for its most valuable contents of these classes, at most limit[i] items of
// classes[i].
func (v *prover) pricesOf(room []int64, classes, limit []int) []float64 {
	h := &hint{dims: v.dims, rows: make([][]float64, v.dims), left: make([]float64, v.dims), basis: make([]int, v.dims)}
	n := len(classes)
	h.gain, h.most = make([]float64, n+v.dims), make([]float64, n+v.dims)
	highest := 1.0
	for i, k := range classes {
		h.gain[i], h.most[i] = float64(v.worth[k]), float64(limit[i])
		highest = max(highest, h.gain[i])
	}
	for d, r := range room {
		h.rows[d], h.basis[d] = make([]float64, n+v.dims), n+d
		h.rows[d][n+d], h.most[n+d] = 1, math.Inf(1)
		if r > 0 {
			h.left[d] = 1
		}
		for i, k := range classes {
			h.rows[d][i] = float64(v.need(k)[d]) / float64(max(r, 1))
		}
	}
	for range 30*v.dims + 4*n {
		if !h.improve(highest * nothing) {
			break
		}
	}
	prices := make([]float64, v.dims)
	for d, r := range room {
		prices[d] = max(-h.gain[n+d], 0) / float64(max(r, 1))
	}
	return prices
}

// improve does one step of the simplex: the variable that gains most grows until something stops it. It returns false if no variable gains
// more than least.
func (h *hint) improve(least float64) bool {
	enter := -1
	for j, g := range h.gain {
		if g > least {
			enter, least = j, g
		}
	}
	if enter < 0 {
		return false
	}
	way, row, filled := h.most[enter], -1, false
	for r := range h.rows {
		a := h.rows[r][enter]
		if t := h.left[r] / a; a > nothing && t < way {
			way, row, filled = max(t, 0), r, false
		}
		if t := (h.most[h.basis[r]] - h.left[r]) / -a; a < -nothing && t < way {
			way, row, filled = max(t, 0), r, true
		}
	}
	switch {
	case math.IsInf(way, 1):
		return false
	case row < 0:
		h.turnRound(enter)
		return true
	case filled:
		h.turnBasic(row)
	}
	h.pivot(row, enter)
	return true
}

// turnRound counts variable j, which is outside of the basis, from its other bound: 0 becomes its upper bound.
func (h *hint) turnRound(j int) {
	for r := range h.rows {
		h.left[r] -= float64(h.rows[r][j] * h.most[j])
		h.rows[r][j] = -h.rows[r][j]
	}
	h.gain[j] = -h.gain[j]
}

// turnBasic does the same with the basic variable of row r.
func (h *hint) turnBasic(r int) {
	h.left[r] = h.most[h.basis[r]] - h.left[r]
	for j := range h.rows[r] {
		if j != h.basis[r] {
			h.rows[r][j] = -h.rows[r][j]
		}
	}
}

// pivot makes the variable enter the basic one of a row.
func (h *hint) pivot(row, enter int) {
	p := h.rows[row][enter]
	for j := range h.rows[row] {
		h.rows[row][j] /= p
	}
	h.left[row] /= p
	h.basis[row] = enter
	for r := range h.rows {
		if f := h.rows[r][enter]; r != row && f != 0 {
			for j, a := range h.rows[row] {
				h.rows[r][j] -= float64(f * a)
			}
			h.left[r] -= float64(f * h.left[row])
		}
	}
	f := h.gain[enter]
	for j, a := range h.rows[row] {
		h.gain[j] -= float64(f * a)
	}
}
