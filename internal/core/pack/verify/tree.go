package verify

import (
	"errors"
	"fmt"
	"slices"
)

// A Tree proves a bound for some classes by cases. No class in it shares a cell with a class outside. It ignores stock, limits and
// conflicts: a bound for all fleets also holds for those that respect them.
//
// Every inner branch has a rule about fleets: either at most Most nodes are of its kind, or more. Every fleet is on one side, so the lowest
// bound of all leaves bounds every fleet. A leaf has worths, as a certificate, and a toll for each rule on the way to it. The toll is added
// to what a node of the kind costs on the side "at most", and taken off on the side "more". If then no node holds items worth more than it
// costs, a fleet that keeps the rules costs at least the worth of all items, plus toll·(Most+1) for each rule "more", less toll·Most for
// each rule "at most".
//
// Cells that another one covers are left out: a fleet with such a cell can use the other one, which costs no more.
type Tree struct {
	Classes  [][]int // per class of the tree: classes of the problem with equal needs that may use the same cells
	Branches []Branch
}

// A Branch is an inner node of a tree with its rule, or a leaf with its worths and tolls. The first one in a tree is the root.
type Branch struct {
	Less, More int // branches with higher numbers; 0 in a leaf
	Rule       Rule
	Worth      []int64 // per class of the tree
	Toll       []int64 // per rule from the root on
}

// A Rule divides fleets by the number of their nodes of a kind: nodes that cost at least Price and hold at least Least items of a class. If
// Least is 0, the kind is all nodes of cells that cost at least Price and that the class may use.
type Rule struct {
	Price int64
	Class int // of the tree; −1 for nodes with any contents
	Least int
	Most  int
}

// A grove is the check of one tree.
type grove struct {
	v      *verification
	t      *Tree
	cells  []int   // cells that its classes may use and that no other one covers
	prover *prover // with the classes of the tree
	count  []int   // per class of the tree: items
	rules  []Rule  // of the present branch, from the root on
	more   []bool  // per rule: the branch is on the side with more nodes
}

// trees proves the bounds of all trees and returns their sum. It sets the worths of their classes to 0, so that their cells, which hold no
// other classes, need no further proof.
func (v *verification) trees() (sum int64, err error) {
	taken := make([]bool, len(v.p.Classes))
	defer func(whole []int64) { v.demand = whole }(v.demand)
	for i := range v.c.Trees {
		g, err := v.newGrove(&v.c.Trees[i])
		if err != nil {
			return 0, err
		}
		low, err := g.lowest(0)
		if err != nil {
			return 0, err
		}
		sum += g.wholePrice(max(low, 0))
		for _, members := range g.t.Classes {
			for _, k := range members {
				if v.c.Worth[k] = 0; taken[k] {
					return 0, fmt.Errorf("class %d is in two trees", k)
				}
				taken[k] = true
			}
		}
	}
	return sum, nil
}

// newGrove prepares the check of a tree. It sets v.demand to the items of the tree; trees sets it back. It returns an error if a class of
// the tree shares a cell with a class outside: a node could hold items of both, and its price would count twice.
func (v *verification) newGrove(t *Tree) (*grove, error) {
	g := &grove{v: v, t: t}
	mine := make([]bool, len(v.p.Classes))
	var needs []int64
	var limit []int
	for _, members := range t.Classes {
		if len(members) == 0 {
			return nil, errors.New("a class of a tree without classes")
		}
		count, each, err := v.joined(members, mine)
		if err != nil {
			return nil, err
		}
		g.count, limit = append(g.count, count), append(limit, each)
		needs = append(needs, v.prover.need(members[0])...)
	}
	v.demand = make([]int64, len(v.unit)) // of the tree's items: none of its nodes uses more
	for k, n := range g.count {
		for d := range v.demand {
			v.demand[d] = addTimes(v.demand[d], needs[k*len(v.unit)+d], n)
		}
	}
	for i := range v.p.Cells {
		in, out := false, false
		for k := range v.open[i].All() {
			in, out = in || mine[k], out || !mine[k]
		}
		if in && out {
			return nil, fmt.Errorf("cell %d is not the tree's alone", i)
		}
	}
	g.prover = newProver(len(v.unit), needs, nil, limit, nil)
	for _, i := range v.byCost() {
		if !g.uses(i) || slices.ContainsFunc(g.cells, func(j int) bool { return v.covers(j, i) }) {
			continue
		}
		g.cells = append(g.cells, i)
	}
	return g, nil
}

// joined returns how many items the classes of a merged class have together, and how many of them one node holds at most. It marks them in
// mine. It returns an error if they are not equal or are in the tree already.
func (v *verification) joined(members []int, mine []bool) (count, each int, err error) {
	for _, k := range members {
		if k < 0 || k >= len(mine) || members[0] < 0 || members[0] >= len(mine) {
			return 0, 0, fmt.Errorf("no class %d", k)
		}
		class, first := &v.p.Classes[k], &v.p.Classes[members[0]]
		if mine[k] || !slices.Equal(class.Need, first.Need) || len(members) > 1 && class.PerNode > 0 {
			return 0, 0, fmt.Errorf("class %d is not like the others, or in the tree twice", k)
		}
		for i := range v.open {
			if v.open[i].Has(k) != v.open[i].Has(members[0]) {
				return 0, 0, fmt.Errorf("class %d may use other cells", k)
			}
		}
		mine[k] = true
		count += max(class.Count, 0)
		each = count
		if class.PerNode > 0 {
			each = min(each, class.PerNode)
		}
	}
	if count > MaxWorth {
		return 0, 0, errors.New("too many items")
	}
	return count, each, nil
}

// uses reports whether some class of the tree may use cell i.
func (g *grove) uses(i int) bool {
	return slices.ContainsFunc(g.t.Classes, func(members []int) bool { return g.v.open[i].Has(members[0]) })
}

// lowest returns the lowest bound of the leaves below branch at.
//
// Every inner branch must have both sides, or some fleets would have no bound. Branches may only point to later ones, so there are no
// cycles.
func (g *grove) lowest(at int) (int64, error) {
	if at < 0 || at >= len(g.t.Branches) {
		return 0, fmt.Errorf("no branch %d", at)
	}
	b := &g.t.Branches[at]
	if b.Less == 0 && b.More == 0 {
		return g.leaf(b)
	}
	if b.Less <= at || b.More <= at || b.Rule.Most < 0 || b.Rule.Class >= len(g.t.Classes) || b.Rule.Least < 0 {
		return 0, fmt.Errorf("branch %d is not one", at)
	}
	g.rules = append(g.rules, b.Rule)
	g.more = append(g.more, false)
	less, err := g.lowest(b.Less)
	if err != nil {
		return 0, err
	}
	g.more[len(g.more)-1] = true
	more, err := g.lowest(b.More)
	g.rules, g.more = g.rules[:len(g.rules)-1], g.more[:len(g.more)-1]
	return min(less, more), err
}

// leaf returns the bound that the worths and tolls of a leaf prove under the present rules, or an error if some node may hold more than it
// costs.
func (g *grove) leaf(b *Branch) (int64, error) {
	if len(b.Worth) != len(g.t.Classes) || len(b.Toll) != len(g.rules) {
		return 0, errors.New("a leaf is for another tree")
	}
	var bound int64
	for k, w := range b.Worth {
		if w < 0 || w > MaxWorth {
			return 0, fmt.Errorf("class %d of a tree: a worth of %d", k, w)
		}
		bound = addTimes(bound, w, g.count[k])
	}
	for i, toll := range b.Toll {
		if toll < 0 || toll > MaxToll {
			return 0, fmt.Errorf("a toll of %d", toll)
		}
		if g.more[i] {
			bound = addTimes(bound, toll, g.rules[i].Most+1)
		} else {
			bound = max(bound-addTimes(0, toll, g.rules[i].Most), -most)
		}
	}
	if bound >= most {
		return 0, errors.New("worths too large")
	}
	for _, i := range g.cells {
		if err := g.holdsNoMore(i, b); err != nil {
			return 0, err
		}
	}
	return bound, nil
}

// holdsNoMore returns an error if a node of cell i may hold items worth more than it costs, under the tolls of a leaf.
//
// A toll that does not depend on contents changes what the node costs. A toll on nodes with at least n items of a class is a step in what
// these items are worth, which the prover adds.
func (g *grove) holdsNoMore(i int, b *Branch) error {
	v, p := g.v, g.prover
	p.worth, p.steps = b.Worth, make([][]step, len(b.Worth))
	cost := v.p.Cells[i].Price
	for r, x := range g.rules {
		toll := b.Toll[r]
		if !g.more[r] {
			toll = -toll
		}
		switch {
		case v.p.Cells[i].Price < x.Price || toll == 0:
		case x.Class < 0, x.Least == 0 && v.open[i].Has(g.t.Classes[x.Class][0]):
			cost -= toll
		case x.Least == 0:
		default:
			p.steps[x.Class] = append(p.steps[x.Class], step{x.Least, toll})
		}
	}
	room := v.roomOf(i)
	var classes []int
	for k, members := range g.t.Classes {
		if v.open[i].Has(members[0]) {
			classes = append(classes, k)
		}
	}
	var upper int64
	if !v.large(i) {
		upper = p.upperBound(room, classes, cost, -1, mostNodes)
	} else {
		for _, k := range classes {
			if v.least[g.t.Classes[k][0]] >= v.p.Cells[i].Over {
				upper = max(upper, p.upperBound(room, classes, cost, k, mostNodes))
			}
		}
	}
	if upper > cost {
		return fmt.Errorf("cell %d costs %d in a leaf and may hold items worth %d", i, cost, upper)
	}
	return nil
}

// wholePrice rounds a bound up to the next price that a fleet can have: every price of a node is a multiple of their greatest common
// divisor.
func (g *grove) wholePrice(bound int64) int64 {
	var unit int64
	for i := range g.v.p.Cells {
		if g.uses(i) {
			unit = gcd(unit, g.v.p.Cells[i].Price)
		}
	}
	if unit == 0 {
		return bound
	}
	return (bound + unit - 1) / unit * unit
}
