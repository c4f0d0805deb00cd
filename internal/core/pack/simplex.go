package pack

import "math"

// A column of a linear program: the rows it touches, how much, and what one unit costs.
type column struct {
	rows []int
	vals []float64
	cost float64
}

// A simplex solves min cost·x, sum of columns·x ≥ rhs, x ≥ 0, with the inverse of the basis kept densely. Rows are few.
//
// Row signs: a covering row (≥) has slack −1, a limiting row (≤) has slack +1 and a price of at most zero.
type simplex struct {
	m       int
	rhs     []float64
	sign    []float64 // per row, of its slack
	cols    []column
	basis   []int     // per row of the basis: column, or −1−row for a slack
	where   []int     // per column: 1 + its row in the basis
	inverse []float64 // m*m, row by row
	x       []float64 // value of the basic variable of each row
	y       []float64 // price per row
	work    []float64
	pivots  int
	entries int // of all columns
	steps   steps
}

const lpEpsilon = 1e-9

// newSimplex starts from a basis with one column per row that touches no other row and costs enough to leave, or, for limiting
// rows, the slack.
func newSimplex(rhs, sign []float64, start []column) *simplex {
	m := len(rhs)
	s := &simplex{m: m, rhs: rhs, sign: sign, basis: make([]int, m), inverse: make([]float64, m*m),
		x: make([]float64, m), y: make([]float64, m), work: make([]float64, m)}
	for i := range m {
		if sign[i] > 0 {
			s.basis[i] = -1 - i
			s.inverse[i*m+i] = 1
			s.x[i] = rhs[i]
			continue
		}
		j := s.add(start[i])
		s.basis[i], s.where[j] = j, i+1
		s.inverse[i*m+i] = 1 / start[i].vals[0]
		s.x[i] = rhs[i] / start[i].vals[0]
	}
	s.prices()
	return s
}

func (s *simplex) add(c column) int {
	s.cols = append(s.cols, c)
	s.where = append(s.where, 0)
	s.entries += len(c.rows)
	return len(s.cols) - 1
}

func (s *simplex) cost(j int) float64 {
	if j < 0 {
		return 0
	}
	return s.cols[j].cost
}

// prices computes y = cost of the basis times the inverse.
func (s *simplex) prices() {
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

// reduced is the reduced cost of column j.
func (s *simplex) reduced(j int) float64 {
	c := &s.cols[j]
	z := c.cost
	for i, r := range c.rows {
		z -= float64(s.y[r] * c.vals[i])
	}
	return z
}

// value is the objective of the current basis.
func (s *simplex) value() float64 {
	var z float64
	for r, j := range s.basis {
		z += float64(s.cost(j) * s.x[r])
	}
	return z
}

// optimize pivots until no known column and no slack improves the objective. more, asked now and then, may end it early.
func (s *simplex) optimize(more func() bool) {
	for turn := 0; ; turn++ {
		if turn%16 == 15 && !more() || turn > 60*(s.m+10) {
			return
		}
		s.steps += steps(2*s.m + 4*len(s.cols) + 2*s.entries)
		j, found := s.entering(turn > 20*(s.m+10))
		if !found || !s.pivot(j) {
			return
		}
	}
}

// entering picks the variable with the most negative reduced cost, in the late phase the first one, which cannot cycle.
func (s *simplex) entering(first bool) (int, bool) {
	best, at, found := 0.0, 0, false
	for i := range s.m {
		z := -float64(s.y[i] * s.sign[i])
		if z < best-lpEpsilon && !s.slackIn(i) {
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
		if z < best-lpEpsilon-float64(1e-10*math.Abs(s.cols[j].cost)) {
			best, at, found = z, j, true
			if first {
				return at, true
			}
		}
	}
	return at, found
}

func (s *simplex) slackIn(i int) bool {
	for _, j := range s.basis {
		if j == -1-i {
			return true
		}
	}
	return false
}

// pivot brings variable j into the basis. It returns false when the step has no end or would move nothing reliably.
func (s *simplex) pivot(j int) bool {
	u := s.work
	s.direction(j, u)
	touched := 0
	leave, step := -1, math.Inf(1)
	for r, v := range u {
		if v != 0 {
			touched++
		}
		if v < 1e-8 {
			continue
		}
		t := max(s.x[r], 0) / v
		if t < step-1e-12 || t < step+1e-12 && leave >= 0 && v > u[leave] {
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
	if s.pivots++; s.pivots%200 == 0 {
		s.refactor()
	}
	s.prices()
	s.steps += steps(s.m * (touched + s.m + 8))
	return true
}

// direction computes u = inverse times variable j.
func (s *simplex) direction(j int, u []float64) {
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
		for i, k := range c.rows {
			v += float64(row[k] * c.vals[i])
		}
		u[r] = v
	}
}

func (s *simplex) exchange(leave int, step float64, u []float64) {
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
		if s.x[r] < 0 && s.x[r] > -1e-9 {
			s.x[r] = 0
		}
	}
	s.x[leave] = step
}

// refactor computes the inverse anew, which removes what rounding has piled up.
func (s *simplex) refactor() {
	m := s.m
	s.steps += steps(2 * m * m * m)
	a := make([]float64, m*m)
	for r, j := range s.basis {
		if j < 0 {
			a[(-1-j)*m+r] = s.sign[-1-j]
			continue
		}
		for i, k := range s.cols[j].rows {
			a[k*m+r] = s.cols[j].vals[i]
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
			v += float64(w * s.rhs[i])
		}
		s.x[r] = max(v, 0)
	}
}

// invert is Gauss and Jordan with row exchanges.
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
