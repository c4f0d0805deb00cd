package verify

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	mathbits "math/bits"
	"slices"

	"karpenter.sh/karpenter/internal/core/bits"
)

const (
	// mostNodes is how many search nodes Verify spends on one cell before it gives up.
	mostNodes = 2_000_000
	// MaxWorth bounds what an item may be worth, about a thousand dollars an hour, so that sums stay within 63 bits.
	MaxWorth = 1 << 40
	// MaxLimitWorth bounds a LimitWorth.
	MaxLimitWorth = 1 << 60
	// MaxToll bounds what a node more or less may be worth.
	MaxToll = 1 << 50
	// LimitShift says how many units of a limit a LimitWorth prices: two to the power of it.
	LimitShift = 20
)

// Verify proves the bound of a certificate from nothing but the problem and the worths, with whole numbers: no
// cell may hold items worth more than it costs. It returns an error if the bound does not follow.
//
// It has three steps, each of which is an inequality about whole numbers. Trees bound the parts that were proven in whole nodes, and take
// their items out. What all other items are worth is added, what limits are worth is taken off. Then every cell is asked what its contents
// can be worth at most: no more than its cost where any number of nodes can be had, and where stock is short by how much more, times the
// stock, is taken off as well. A cell that another one covers needs no question of its own.
//
// A worth that is too low proves less, never something wrong; a worth that is too high is found out by the cell that could hold it. So
// nothing has to be known of how worths were found, and nothing here was used to find them.
func Verify(p *Problem, c Certificate) error {
	if len(c.Worth) != len(p.Classes) || len(c.LimitWorth) != len(p.Limits) {
		return errors.New("certificate is for another problem")
	}
	for k, w := range c.Worth {
		if w < 0 || w > MaxWorth {
			return fmt.Errorf("class %d: a worth of %d", k, w)
		}
	}
	c.Worth = slices.Clone(c.Worth)
	v := newVerification(p, c)
	bound, err := v.trees()
	if err != nil {
		return err
	}
	items, err := v.items()
	if err != nil {
		return err
	}
	bound = addTimes(bound, items, 1)
	for l, w := range c.LimitWorth {
		if w < 0 || w > MaxLimitWorth {
			return fmt.Errorf("limit %d: a worth of %d", l, w)
		}
		bound = max(bound-LimitPrice(w, p.Limits[l].Max), -most)
	}
	var done []int
	for _, i := range v.byCost() {
		if slices.ContainsFunc(done, func(j int) bool { return v.covers(j, i) }) {
			continue
		}
		surplus, err := v.surplus(i)
		if err != nil {
			return err
		}
		bound = max(bound-addTimes(0, surplus, p.Cells[i].Stock), -most)
		done = append(done, i)
	}
	if max(bound, 0) < c.Bound {
		return fmt.Errorf("worths prove a bound of %d, not %d", bound, c.Bound)
	}
	return nil
}

// LimitPrice is what a whole limit is worth, rounded up.
func LimitPrice(w, most int64) int64 {
	if w == 0 || most <= 0 {
		return 0
	}
	return scaled(w, most) + 1
}

// scaled is w*n/2^LimitShift, rounded down.
func scaled(w, n int64) int64 {
	hi, lo := mathbits.Mul64(uint64(w), uint64(n))
	if hi>>LimitShift != 0 {
		return 1 << 62
	}
	return int64(min(hi<<(64-LimitShift)|lo>>LimitShift, 1<<62))
}

// A verification is a problem in the units of its needs.
type verification struct {
	p      *Problem
	c      Certificate
	unit   []int64    // per dimension
	demand []int64    // of all items; no node uses more of its room
	open   []bits.Set // per cell: classes that may use it and fit
	least  []int      // per class: how many steps too large the best cell is that it fits
	prover *prover
}

func newVerification(p *Problem, c Certificate) *verification {
	v := &verification{p: p, c: c}
	if len(p.Classes) == 0 {
		return v
	}
	v.unit = make([]int64, len(p.Classes[0].Need))
	for _, class := range p.Classes {
		for d, u := range class.Need {
			v.unit[d] = gcd(v.unit[d], u)
		}
	}
	var needs []int64
	limit := make([]int, len(p.Classes))
	v.demand = make([]int64, len(v.unit))
	for k, class := range p.Classes {
		for d, u := range class.Need {
			needs = append(needs, u/max(v.unit[d], 1))
			v.demand[d] = addTimes(v.demand[d], u/max(v.unit[d], 1), max(class.Count, 0))
		}
		limit[k] = max(class.Count, 0)
		if class.PerNode > 0 {
			limit[k] = min(limit[k], class.PerNode)
		}
	}
	v.findOpen()
	v.prover = newProver(len(v.unit), needs, c.Worth, limit, foesOf(p))
	return v
}

// findOpen finds out which cells classes can use.
func (v *verification) findOpen() {
	v.open, v.least = make([]bits.Set, len(v.p.Cells)), make([]int, len(v.p.Classes))
	for k := range v.least {
		v.least[k] = math.MaxInt
	}
	for i := range v.p.Cells {
		cell := &v.p.Cells[i]
		v.open[i] = bits.Make(len(v.p.Classes))
		if slices.ContainsFunc(v.p.Limits, func(l Limit) bool { return !l.Parts && l.Use[i] > 0 && l.Use[i] > l.Max }) {
			continue // not even one node of it is within the limits
		}
		for k := range v.p.Classes {
			if c := &v.p.Classes[k]; c.Count > 0 && (c.Cells == nil || c.Cells.Has(i)) && fits(c.Need, cell.Room) {
				v.open[i].Add(k)
				v.least[k] = min(v.least[k], cell.Over)
			}
		}
	}
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

func foesOf(p *Problem) [][]int {
	if len(p.Conflicts) == 0 {
		return nil
	}
	foes := make([][]int, len(p.Classes))
	for _, x := range p.Conflicts {
		if x[0] != x[1] {
			foes[x[0]], foes[x[1]] = append(foes[x[0]], x[1]), append(foes[x[1]], x[0])
		}
	}
	return foes
}

// items is what all items are worth.
func (v *verification) items() (int64, error) {
	var sum int64
	for k, class := range v.p.Classes {
		hi, lo := mathbits.Mul64(uint64(v.c.Worth[k]), uint64(max(class.Count, 0)))
		if hi != 0 || lo > 1<<61 {
			return 0, fmt.Errorf("class %d: worth too large", k)
		}
		if sum += int64(lo); sum > 1<<61 {
			return 0, errors.New("worths too large")
		}
	}
	return sum, nil
}

// cost is what a node of a cell costs, its use of limits included.
func (v *verification) cost(i int) int64 {
	cost := v.p.Cells[i].Price
	for l, lim := range v.p.Limits {
		cost = addTimes(cost, scaled(v.c.LimitWorth[l], lim.Use[i]), 1)
	}
	return cost
}

// byCost lists the cells that some class may use, the cheapest first, and of those that cost the same the one with the most room, so that a
// cell comes before those that it covers.
func (v *verification) byCost() []int {
	var order []int
	space := make([]float64, len(v.p.Cells))
	for i := range v.p.Cells {
		if !v.open[i].Any() {
			continue
		}
		order = append(order, i)
		for _, r := range v.roomOf(i) {
			space[i] += float64(r)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(v.cost(a), v.cost(b)), cmp.Compare(space[b], space[a]))
	})
	return order
}

// covers says that what holds for cell i holds for cell j, which costs no less: it has no more room and is open to no more classes.
//
// Cells are asked in the order of their costs, so a cell that covers another is done by then: what it can hold for its cost, the other one
// can hold no more of for no less.
func (v *verification) covers(i, j int) bool {
	a, b := &v.p.Cells[i], &v.p.Cells[j]
	return a.Stock == 0 && (!v.large(i) || a.Over <= b.Over) && fits(v.roomOf(j), v.roomOf(i)) && v.open[j].Within(v.open[i])
}

func (v *verification) large(i int) bool {
	return v.p.Cells[i].Over > v.c.Over
}

// roomOf is the room of a cell in the units of needs, and no more of it than all items together take.
func (v *verification) roomOf(i int) []int64 {
	room := make([]int64, len(v.unit))
	for d, r := range v.p.Cells[i].Room {
		room[d] = min(r/max(v.unit[d], 1), v.demand[d])
	}
	return room
}

// surplus is how much more than its cost a cell in short stock may hold. Any other cell must not hold more than it costs.
//
// A cell that is too large is asked once for every class that may justify it, with an item of that class put there beforehand. If none of
// them fits, no fleet that keeps the rule has such a node, and nothing needs to be proven.
func (v *verification) surplus(i int) (int64, error) {
	cell := &v.p.Cells[i]
	room := v.roomOf(i)
	var classes []int
	for k := range v.open[i].All() {
		if v.c.Worth[k] > 0 {
			classes = append(classes, k)
		}
	}
	cost := v.cost(i)
	var upper int64
	if v.large(i) {
		for k := range v.open[i].All() { // worth nothing itself, it may still bring others along
			if v.least[k] >= cell.Over {
				upper = max(upper, v.prover.upperBound(room, classes, cost, k, mostNodes))
			}
		}
	} else {
		upper = v.prover.upperBound(room, classes, cost, -1, mostNodes)
	}
	if cell.Stock == 0 && upper > cost {
		return 0, fmt.Errorf("cell %d costs %d and may hold items worth %d", i, cost, upper)
	}
	return max(upper-cost, 0), nil
}
