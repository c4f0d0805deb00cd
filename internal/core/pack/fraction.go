package pack

// A fraction solves fractional knapsacks: the most valuable contents of a room when items can be cut. It is a primal simplex with
// one row per dimension and upper bounds on the variables; its row prices say what a unit of room is worth.
type fraction struct {
	dims    int
	needs   []float64 // variable*dims, as given
	values  []float64 // per variable
	most    []float64 // per variable: upper bound
	room    []float64
	full    []bool // per variable: at its upper bound, outside the basis
	basis   []int  // per row: variable, or −1−d for the slack of dimension d
	inverse []float64
	x       []float64 // per row: value of the basic variable
	price   []float64 // per dimension
	step    []float64
	steps   steps
}

func newFraction(dims int) *fraction {
	return &fraction{dims: dims, room: make([]float64, dims), basis: make([]int, dims), inverse: make([]float64, dims*dims),
		x: make([]float64, dims), price: make([]float64, dims), step: make([]float64, dims)}
}

// reset forgets the items and sets the room.
func (f *fraction) reset(room []int64) {
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

// add offers at most so many items of one kind.
func (f *fraction) add(need []float64, value, most float64) {
	for d, u := range need {
		f.needs = append(f.needs, u/f.room[d])
	}
	f.values, f.most, f.full = append(f.values, value), append(f.most, most), append(f.full, false)
}

// solve returns the value of the best contents. Afterwards f.price is the worth per unit of room.
func (f *fraction) solve() float64 {
	scale := 0.0
	for _, v := range f.values {
		scale = max(scale, v)
	}
	for range 30*f.dims + 4*len(f.values) {
		f.steps += steps((len(f.values)+2*f.dims)*(f.dims+2) + 30)
		f.prices()
		j, dir := f.entering(scale * 1e-11)
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

func (f *fraction) prices() {
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

// entering picks the variable whose move gains most, and whether it goes up or down. It returns a number below −dims if none gains.
func (f *fraction) entering(eps float64) (int, float64) {
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

func (f *fraction) basic(j int) bool {
	for _, b := range f.basis {
		if b == j {
			return true
		}
	}
	return false
}

// move changes variable j in the given direction until something meets a bound, and exchanges it if that is another variable.
func (f *fraction) move(j int, dir float64) bool {
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
	far, leave, toFull := 1e300, -1, false
	if j >= 0 {
		far = f.most[j]
	}
	for r, u := range f.step {
		if u > 1e-11 {
			if t := max(f.x[r], 0) / u; t < far {
				far, leave, toFull = t, r, false
			}
		} else if b := f.basis[r]; u < -1e-11 && b >= 0 {
			if t := max(f.most[b]-f.x[r], 0) / -u; t < far {
				far, leave, toFull = t, r, true
			}
		}
	}
	if far >= 1e299 {
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
