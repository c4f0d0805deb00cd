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
	// mostNodes is the most search nodes for one cell.
	mostNodes = 2_000_000
	// MaxWorth bounds what an item may be worth, about a thousand dollars an hour, so that sums stay within 63 bits.
	MaxWorth = 1 << 40
	// MaxLimitWorth bounds a LimitWorth.
	MaxLimitWorth = 1 << 60
	// MaxToll bounds a toll of a tree (Branch.Toll).
	MaxToll = 1 << 50
	// LimitShift: a LimitWorth is the worth of 2^LimitShift units of a limit.
	LimitShift = 20
)

// Verify proves the bound of a certificate from the problem and the worths alone, with whole numbers. It returns an error if the bound does
// not follow.
//
// First it adds the bounds of the trees, and sets the worths of their items to 0. Then it adds the worth of all other items and takes off
// the worth of all limits. Last, it bounds what each cell can hold: never more than its cost; only a cell in short stock may hold more, and
// then the surplus times the stock is taken off. It skips a cell that another one covers.
//
// A worth that is too low makes the bound low, never wrong. A worth that is too high is found by the cell that could hold the item. So it
// does not matter how the worths were found.
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

// LimitPrice returns what a whole limit is worth, rounded up: w is its LimitWorth and most its Max.
func LimitPrice(w, most int64) int64 {
	if w == 0 || most <= 0 {
		return 0
	}
	return scaled(w, most) + 1
}

// scaled returns w*n/2^LimitShift, rounded down, and at most 2^62.
func scaled(w, n int64) int64 {
	hi, lo := mathbits.Mul64(uint64(w), uint64(n))
	if hi>>LimitShift != 0 {
		return 1 << 62
	}
	return int64(min(hi<<(64-LimitShift)|lo>>LimitShift, 1<<62))
}

// A verification is one run of Verify. Needs and rooms are counted in the greatest common divisor of the needs.
type verification struct {
	p      *Problem
	c      Certificate
	unit   []int64    // per dimension: that divisor
	demand []int64    // per dimension: what all items need; no node uses more of its room
	open   []bits.Set // per cell: classes that may use it and fit
	least  []int      // per class: how many steps too large (Cell.Over) the best cell is that it fits
	prover *prover
}

// newVerification prepares the check of a certificate: units, demand, open cells, and a prover for all classes.
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

// findOpen sets open and least: which classes each cell may hold, and for each class how many steps too large the best cell is that it may
// use. A cell of which one node exceeds a limit is open to no class, unless nodes may use that limit in part.
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

// foesOf returns, per class, the classes that it may not meet; nil without conflicts.
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

// items returns what all items are worth.
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

// cost returns what a node of cell i costs: its price, and its use of limits at their worth.
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

// covers reports whether cell i can hold all that cell j can hold. Callers know that j costs no less (byCost). So if i cannot hold more
// than its cost, neither can j.
func (v *verification) covers(i, j int) bool {
	a, b := &v.p.Cells[i], &v.p.Cells[j]
	return a.Stock == 0 && (!v.large(i) || a.Over <= b.Over) && fits(v.roomOf(j), v.roomOf(i)) && v.open[j].Within(v.open[i])
}

// large reports whether cell i is too large for items that fit a cell of fewer steps.
func (v *verification) large(i int) bool {
	return v.p.Cells[i].Over > v.c.Over
}

// roomOf returns the room of a cell in the units of needs, cut to what all items together need.
func (v *verification) roomOf(i int) []int64 {
	room := make([]int64, len(v.unit))
	for d, r := range v.p.Cells[i].Room {
		room[d] = min(r/max(v.unit[d], 1), v.demand[d])
	}
	return room
}

// surplus returns how much more than its cost a cell in short stock may hold. For any other cell it returns 0, or an error if the cell may
// hold more than its cost.
//
// A large cell is searched once for every class that may justify it, with an item of that class on the node. If no class justifies it, no
// fleet has such a node, and nothing needs to be proven.
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
		for k := range v.open[i].All() { // also a class worth nothing: it opens the cell for others
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
