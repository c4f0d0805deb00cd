package lp

import (
	"iter"
	"math"

	"karpenter.sh/karpenter/internal/core/work"
)

// A Column is a variable of a linear program: the rows it touches, its coefficient in each, and what one unit of it costs.
type Column struct {
	Rows []int
	Vals []float64
	Cost float64
}

// A Row is a constraint: the sum of what columns put into it is at least its bound (a covering row), or, if it limits, at most.
type Row struct {
	Bound  float64
	Limits bool
}

// A Simplex minimises c·x subject to A·x ≥ b in covering rows, A·x ≤ b in limiting rows, x ≥ 0, by the revised primal simplex method.
// Columns may be added between two runs, which is what column generation does; rows may not.
//
// With a slack per row, s ≥ 0, the constraints are A·x + S·s = b, where S is diagonal: −1 in covering rows, +1 in limiting ones. A basis
// is one variable per row; let B be their columns. Then
//
//	x_B = B⁻¹·b           what the basic variables are; all others are 0
//	y   = c_B·B⁻¹         the price of each row
//	z_j = c_j − y·A_j     the reduced cost of column j; of the slack of row i it is −y_i·S_ii
//
// No negative z means that x is optimal, and that y is feasible for the dual: y·b is the value, and prices of covering rows are not
// negative, those of limiting rows not positive. Else the variable j with the most negative z enters. It moves x_B along −u, where
// u = B⁻¹·A_j, until the first of them is zero: that one, row r, leaves, and B⁻¹ is multiplied by the matrix that makes u the r-th unit
// vector. B⁻¹ is kept densely: rows are few, at most some hundreds, and columns of up to thousands of entries are looked at only to price
// them.
type Simplex struct {
	m       int
	bound   []float64
	sign    []float64 // per row, of its slack
	cols    []Column
	basis   []int     // per row of the basis: column, or −1−row for a slack
	where   []int     // per column: 1 + its row in the basis
	inverse []float64 // m*m, row by row
	x       []float64 // value of the basic variable of each row; never negative
	y       []float64 // price per row; current after every pivot
	u       []float64 // of the pivot that is being made
	pivots  int
	entries int // of all columns
	Steps   work.Steps
}

const (
	// priceSlack: a reduced cost counts as negative below −priceSlack, because sums of some hundred products are not exact.
	priceSlack = 1e-9
	// relativeSlack is added to it in parts of the column's cost, for columns that cost thousands.
	relativeSlack = 1e-10
	// pivotLeast is the smallest element that may be divided by. A smaller one is a rounding error.
	pivotLeast = 1e-8
	// tieSlack is the difference below which two ratios count as equal. Of equal ones the row with the larger pivot leaves.
	tieSlack = 1e-12
	// refactorEvery is the number of pivots after which B⁻¹ is computed anew, before rounding errors add up.
	refactorEvery = 200
	// A run ends after mostTurns turns per row. After carefulTurns per row it takes the first improving variable; see Optimize.
	mostTurns, carefulTurns = 60, 20
)

// NewSimplex returns a program with a first basis: per covering row the column start[row], which must touch no other row and cost so much
// that it leaves the basis, and per limiting row its slack. start[row] of a limiting row is not used.
func NewSimplex(rows []Row, start []Column) *Simplex {
	m := len(rows)
	s := &Simplex{m: m, bound: make([]float64, m), sign: make([]float64, m), basis: make([]int, m), inverse: make([]float64, m*m),
		x: make([]float64, m), y: make([]float64, m), u: make([]float64, m)}
	for i, row := range rows {
		s.bound[i], s.sign[i] = row.Bound, -1
		if row.Limits {
			s.sign[i] = 1
			s.basis[i] = -1 - i
			s.inverse[i*m+i] = 1
			s.x[i] = row.Bound
			continue
		}
		j := s.Add(start[i])
		s.basis[i], s.where[j] = j, i+1
		s.inverse[i*m+i] = 1 / start[i].Vals[0]
		s.x[i] = row.Bound / start[i].Vals[0]
	}
	s.prices()
	return s
}

// Add adds a column outside of the basis, and returns its number.
func (s *Simplex) Add(c Column) int {
	s.cols = append(s.cols, c)
	s.where = append(s.where, 0)
	s.entries += len(c.Rows)
	return len(s.cols) - 1
}

// Columns returns all columns by number.
func (s *Simplex) Columns() []Column { return s.cols }

// Price returns the price of a row: what one more unit of its bound costs. It is not negative for covering rows at the optimum, and not
// positive for limiting ones.
func (s *Simplex) Price(row int) float64 { return s.y[row] }

// Basic yields the columns of the basis (no slacks), row by row, and the value of each. All other columns have the value 0.
func (s *Simplex) Basic() iter.Seq2[int, float64] {
	return func(yield func(int, float64) bool) {
		for r, j := range s.basis {
			if j >= 0 && !yield(j, s.x[r]) {
				return
			}
		}
	}
}

// cost returns the cost of variable j; a slack costs nothing.
func (s *Simplex) cost(j int) float64 {
	if j < 0 {
		return 0
	}
	return s.cols[j].Cost
}

// prices computes y = cost of the basis times the inverse.
func (s *Simplex) prices() {
	clear(s.y)
	for r, j := range s.basis {
		c := s.cost(j)
		if c == 0 {
			continue
		}
		row := s.inverse[r*s.m : (r+1)*s.m]
		for i, v := range row {
			s.y[i] += float64(c * v)
		}
	}
}

// reduced returns the reduced cost of column j.
func (s *Simplex) reduced(j int) float64 {
	c := &s.cols[j]
	z := c.Cost
	for i, r := range c.Rows {
		z -= float64(s.y[r] * c.Vals[i])
	}
	return z
}

// Value returns the objective of the current basis.
func (s *Simplex) Value() float64 {
	var z float64
	for r, j := range s.basis {
		z += float64(s.cost(j) * s.x[r])
	}
	return z
}

// Optimize pivots until no known column and no slack improves the objective. It asks more at every 16th turn, and ends early if that says
// no.
//
// The variable with the most negative reduced cost enters. That is quick, but may cycle among bases of equal value. Late in a run the first
// improving variable enters instead, which is slow and hardly ever cycles. (Bland's rule, which never does, would also choose the row by
// its index, which may pivot on tiny numbers.) The number of turns ends a run in any case. Few runs get that far, because callers avoid
// ties by small additions to bounds.
func (s *Simplex) Optimize(more func() bool) {
	for turn := 0; ; turn++ {
		if turn%16 == 15 && !more() || turn > mostTurns*(s.m+10) {
			return
		}
		s.Steps += work.Steps(2*s.m + 4*len(s.cols) + 2*s.entries)
		j, found := s.entering(turn > carefulTurns*(s.m+10))
		if !found || !s.pivot(j) {
			return
		}
	}
}

// entering returns the variable with the most negative reduced cost, or with first the first variable with a negative one. −1−i is the
// slack of row i. It returns false if there is none.
func (s *Simplex) entering(first bool) (int, bool) {
	best, at, found := 0.0, 0, false
	for i := range s.m {
		z := -float64(s.y[i] * s.sign[i])
		if z < best-priceSlack && !s.slackIn(i) {
			best, at, found = z, -1-i, true
			if first {
				return at, true
			}
		}
	}
	for j := range s.cols {
		if s.where[j] > 0 {
			continue
		}
		z := s.reduced(j)
		if z < best-priceSlack-float64(relativeSlack*math.Abs(s.cols[j].Cost)) {
			best, at, found = z, j, true
			if first {
				return at, true
			}
		}
	}
	return at, found
}

// slackIn reports whether the slack of row i is in the basis.
func (s *Simplex) slackIn(i int) bool {
	for _, j := range s.basis {
		if j == -1-i {
			return true
		}
	}
	return false
}

// pivot brings variable j into the basis. It returns false if no row ends the step with a pivot of at least pivotLeast.
func (s *Simplex) pivot(j int) bool {
	u := s.u
	s.direction(j, u)
	touched := 0
	leave, step := -1, math.Inf(1)
	for r, v := range u {
		if v != 0 {
			touched++
		}
		if v < pivotLeast {
			continue
		}
		t := max(s.x[r], 0) / v
		if t < step-tieSlack || t < step+tieSlack && leave >= 0 && v > u[leave] {
			leave, step = r, min(t, step)
		}
	}
	if leave < 0 {
		return false
	}
	if old := s.basis[leave]; old >= 0 {
		s.where[old] = 0
	}
	if j >= 0 {
		s.where[j] = leave + 1
	}
	s.basis[leave] = j
	s.exchange(leave, step, u)
	if s.pivots++; s.pivots%refactorEvery == 0 {
		s.refactor()
	}
	s.prices()
	s.Steps += work.Steps(s.m * (touched + s.m + 8))
	return true
}

// direction computes u = inverse times variable j.
func (s *Simplex) direction(j int, u []float64) {
	if j < 0 {
		i := -1 - j
		for r := range u {
			u[r] = float64(s.sign[i] * s.inverse[r*s.m+i])
		}
		return
	}
	c := &s.cols[j]
	for r := range u {
		row := s.inverse[r*s.m : (r+1)*s.m]
		var v float64
		for i, k := range c.Rows {
			v += float64(row[k] * c.Vals[i])
		}
		u[r] = v
	}
}

// exchange updates inverse and x for a pivot in which row leave gets the entering variable with the value step. u is its direction.
func (s *Simplex) exchange(leave int, step float64, u []float64) {
	m := s.m
	pivotRow := s.inverse[leave*m : (leave+1)*m]
	scale := 1 / u[leave]
	for i := range pivotRow {
		pivotRow[i] = float64(pivotRow[i] * scale)
	}
	for r, v := range u {
		if r == leave || v == 0 {
			continue
		}
		row := s.inverse[r*m : (r+1)*m]
		for i, w := range pivotRow {
			row[i] -= float64(v * w)
		}
		s.x[r] -= float64(step * v)
		if s.x[r] < 0 && s.x[r] > -priceSlack {
			s.x[r] = 0
		}
	}
	s.x[leave] = step
}

// refactor computes inverse and x anew from the columns of the basis, which removes rounding errors. It changes nothing if the basis is
// singular.
func (s *Simplex) refactor() {
	m := s.m
	s.Steps += work.Steps(2 * m * m * m)
	a := make([]float64, m*m)
	for r, j := range s.basis {
		if j < 0 {
			a[(-1-j)*m+r] = s.sign[-1-j]
			continue
		}
		for i, k := range s.cols[j].Rows {
			a[k*m+r] = s.cols[j].Vals[i]
		}
	}
	inv, ok := invert(a, m)
	if !ok {
		return
	}
	s.inverse = inv
	for r := range m {
		var v float64
		for i, w := range inv[r*m : (r+1)*m] {
			v += float64(w * s.bound[i])
		}
		s.x[r] = max(v, 0)
	}
}

// invert returns the inverse of the m*m matrix a, which it overwrites (Gauss–Jordan elimination with partial pivoting). It returns false if
// a is singular.
func invert(a []float64, m int) ([]float64, bool) {
	inv := make([]float64, m*m)
	for i := range m {
		inv[i*m+i] = 1
	}
	for c := range m {
		p := c
		for r := c + 1; r < m; r++ {
			if math.Abs(a[r*m+c]) > math.Abs(a[p*m+c]) {
				p = r
			}
		}
		if math.Abs(a[p*m+c]) < 1e-12 {
			return nil, false
		}
		swapRows(a, m, p, c)
		swapRows(inv, m, p, c)
		scale := 1 / a[c*m+c]
		for i := range m {
			a[c*m+i] = float64(a[c*m+i] * scale)
			inv[c*m+i] = float64(inv[c*m+i] * scale)
		}
		for r := range m {
			f := a[r*m+c]
			if r == c || f == 0 {
				continue
			}
			for i := range m {
				a[r*m+i] -= float64(f * a[c*m+i])
				inv[r*m+i] -= float64(f * inv[c*m+i])
			}
		}
	}
	return inv, true
}

func swapRows(a []float64, m, r, s int) {
	if r == s {
		return
	}
	for i := range m {
		a[r*m+i], a[s*m+i] = a[s*m+i], a[r*m+i]
	}
}
