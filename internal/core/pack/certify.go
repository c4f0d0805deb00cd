package pack

import (
	"cmp"
	"math/big"
	"slices"
)

// A proof is a bound by an LP: worths per class and per unit of the limits.
type proof struct {
	value  float64
	worth  []float64
	limit  []float64
	search bool // it rests on searches of the knapsack, not on prices of room alone
}

// An exactProof is a proof in whole numbers.
type exactProof struct {
	bound int64
	worth []int64
	limit []int64
	steps steps
}

const (
	// proofSlack is taken off worths before they are rounded, so that integer prices of room can prove them again.
	proofSlack = 2e-6
	proofNodes = 20000
	// maxWorth bounds what an item may be worth, about a thousand dollars an hour, so that sums stay within 63 bits.
	maxWorth = 1 << 40
)

// certify makes whole numbers of the best proof. A proof that rests on searches is searched again with integers; if that gives less
// than another one, the other is taken.
func (r *run) certify() (best exactProof, steps int) {
	proofs := slices.Clone(r.proofs)
	slices.SortStableFunc(proofs, func(a, b proof) int { return cmp.Compare(b.value, a.value) })
	for _, p := range proofs {
		if best.worth != nil && p.value <= float64(best.bound) {
			break
		}
		e := r.exact(p)
		steps += e.steps.take()
		if best.worth == nil || e.bound > best.bound {
			best = e
		}
	}
	return best, steps
}

func (r *run) exact(f proof) exactProof {
	var e exactProof
	for _, w := range f.worth {
		e.worth = append(e.worth, int64(min(w*(1-proofSlack), maxWorth)))
	}
	for _, w := range f.limit {
		e.limit = append(e.limit, int64(min(w*(1<<limitUnit), maxWorth)))
	}
	if f.search || len(r.p.limits) > 0 { // what a limit is worth was rounded: every cell has to be looked at again
		e.searchAgain(r)
	}
	e.bound = e.total(r)
	return e
}

func (e *exactProof) cost(c *cell) int64 {
	cost := c.price
	for l, u := range c.use {
		cost += scaled(e.limit[l], u)
	}
	return cost
}

// searchAgain bounds the contents of every cell with integers and scales the worths down if one may hold more than it costs.
func (e *exactProof) searchAgain(r *run) {
	v := newProver(r.p.dims, r.p.need, e.worth, r.p.limit, r.p.foes)
	num, den := int64(1), int64(1) // worths become worth*num/den
	for i := range r.p.cells {
		c := &r.p.cells[i]
		if c.stock > 0 {
			continue
		}
		cost := e.cost(c)
		upper := r.upper(v, c, cost, proofNodes)
		e.steps += v.steps
		v.steps = 0
		if upper > cost && float64(upper)*float64(num) > float64(cost)*float64(den) {
			num, den = cost, upper
		}
	}
	if num == den {
		return
	}
	for k, w := range e.worth {
		x := new(big.Int).Mul(big.NewInt(w), big.NewInt(num))
		e.worth[k] = x.Div(x, big.NewInt(den)).Int64()
	}
}

// upper bounds what cell c may hold.
func (r *run) upper(v *prover, c *cell, enough int64, nodes int) int64 {
	var classes, holders []int
	for k := range r.p.count {
		if !c.open.Has(r.p.group[k]) {
			continue
		}
		if v.worth[k] > 0 {
			classes = append(classes, k)
		}
		if r.p.least[k] >= c.over {
			holders = append(holders, k)
		}
	}
	if !c.large {
		return v.upperBound(c.room, classes, enough, -1, nodes)
	}
	var upper int64
	for _, k := range holders { // worth nothing itself, it may still bring others along
		upper = max(upper, v.upperBound(c.room, classes, enough, k, nodes))
	}
	return upper
}

// total is the bound: what all items are worth, less what limits and short stock give back.
func (e *exactProof) total(r *run) int64 {
	var sum int64
	for k, n := range r.p.count {
		sum = addTimes(sum, e.worth[k], n)
	}
	for l, most := range r.p.limits {
		sum -= limitWorth(e.limit[l], most)
	}
	v := newProver(r.p.dims, r.p.need, e.worth, r.p.limit, r.p.foes)
	for i := range r.p.cells {
		if c := &r.p.cells[i]; c.stock > 0 {
			cost := e.cost(c)
			sum -= addTimes(0, max(r.upper(v, c, cost, proofNodes)-cost, 0), c.stock)
		}
	}
	return max(sum, 0)
}

// write adds the proof of a part to the certificate of the whole.
func (e *exactProof) write(c *Certificate, p *part) {
	c.Bound += e.bound
	for k, members := range p.member {
		for _, m := range members {
			c.Worth[m] = e.worth[k]
		}
	}
	for l, id := range p.limitID {
		c.LimitWorth[id] = e.limit[l]
	}
}
