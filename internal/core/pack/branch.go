package pack

import (
	"cmp"
	"math"
	"slices"

	"karpenter.sh/karpenter/internal/core/pack/lp"
	"karpenter.sh/karpenter/internal/core/pack/verify"
	"karpenter.sh/karpenter/internal/core/work"
)

// A branching proves how cheap a small part can be in whole nodes (branch and price). The configuration LP may buy a third of a machine; a
// fleet cannot. In every fleet the number of nodes that cost at least p is whole. If the LP buys 1.3 of them, one branch demands at most
// one, the other two or more. Each branch has its own LP, with a row for each rule, and is divided again, until no branch is below the
// price of a known fleet or the work ends. Every fleet is in some branch, so the lowest bound of all branches bounds every fleet.
//
// Numbers of nodes by price are asked about first, because the bill depends mostly on them, so that the bound rises at once. A rule about
// one pattern would not help: the next LP buys another pattern that differs by one item. If all numbers by price are whole, the numbers of
// nodes with at least n items of a class are asked about. If these are whole too, the solution buys whole nodes. Classes that may use only
// some cells (spread over zones) have their own numbers by price, because four nodes may be one and a third in each of three zones.
//
// A rule is a row of the LP, and the price of the row is a toll: each node of the rule's kind is taxed (at most n) or rewarded (n or more).
// So for the knapsack of a branch a rule is part of a node's price. Only a toll on "at least three items of k" changes what items are
// worth; contents.go searches with such tolls.
//
// Measured on 120 random batches of up to 100 pods of up to 12 shapes each: within 0.1 % of the bound are 93 on demand and 87 with spot, 49
// and 30 if every shape is spread over three zones. A branch takes about a millisecond, half for the LP and half for knapsacks. A batch
// that is open after eighty branches mostly stays open: of nine such batches seven were open after six seconds. Tried without gain: to
// start from the parent's basis with only the patterns that its bound leaves; knapsacks that first look for gains of a thousandth; rules
// about nodes with a given room, chosen by what the first pivot costs.
//
// A branch proves its bound at any time, by the same inequality as the LP, and begins with its parent's. So the search can stop at any
// time.
type branching struct {
	r       *run
	tree    []branch
	prices  []int64 // of the cells, the highest first, each once
	places  []int   // classes that may use only some cells: one class for each such set of cells
	cutoff  float64 // a bound from here on is high enough: the price of the known fleet
	pool    []load  // all patterns that were found
	known   map[string]bool
	sack    *ruledSack
	hot     []bool // per cell: it had contents worth more than a node when it was last searched
	program *lp.Simplex
	column  []int     // per column of the program: its pattern, −1 for none
	count   []int     // per class: what the LP has to hold
	rules   []rule    // of the branch that is being solved, from the root on
	worth   []float64 // per class, of its LP
	toll    []float64 // per rule, of its LP: what one node more or less is worth
	began   work.Units
	until   work.Units // the end of its work
	dived   work.Units // the part of it that looked for fleets
}

// A rule is what a branch demands of fleets: at most Most nodes of a kind, or at least Most+1 (more).
//
// Most is the number in the parent's LP solution, rounded down. So every fleet obeys one side, and that LP solution obeys neither.
type rule struct {
	verify.Rule
	more bool
}

// A branch is a node of the tree. The root is the first one in branching.tree.
type branch struct {
	parent     int  // −1 for the root
	rule       rule // meaningless for the root
	less, more int  // its branches; 0 while it has none
	bound      float64
	worth      []float64 // per class; proves the bound together with toll
	toll       []float64 // per rule, from the root on
	next       rule      // the rule that divides it
	whole      bool      // the LP's solution buys whole nodes: there is nothing to divide
}

const (
	// A part of at most exactItems items and exactClasses classes is small. Twelve shapes that are spread over three zones are 48 classes.
	exactItems, exactClasses = 128, 48
	// exactSlack is the part by which a bound may be below the price of the fleet and still count as equal.
	exactSlack = 1e-7
	// branchTurns is the most turns of column generation in one branch, branchColumns the most columns that a turn adds.
	branchTurns, branchColumns = 100, 12
	// branchWhole is how far from a whole number a number of nodes may be to count as whole.
	branchWhole = 1e-4
	// branchDear is the cost, in the LP, of an item without a place or a node too few: so many times the price of the known fleet.
	branchDear = 10
	// Every branchRounds-th branch is turned into a fleet (dive), while dives took at most one part in diveShare of the work.
	branchRounds, diveShare = 8, 4
	// A dive solves at most diveMost LPs with diveTurns turns each, and tries diveTries nodes in one place before it gives up.
	diveMost, diveTurns, diveTries = 16, 8, 3
)

// small reports whether a part is small enough for branches.
func (r *run) small() bool { return r.p.total <= exactItems && r.p.classes() <= exactClasses }

// branchOut runs branch and price on a part, until the bound reaches the cutoff or b.spent() reaches until. It does nothing if the part is
// not small, has constraints that branches do not support, or is bounded well enough already.
//
// With a dozen nodes, one node more or less is a good part of the bill, and most branches soon cost more than the fleet. With hundreds of
// nodes there would be too many branches to finish.
func (r *run) branchOut(cutoff float64, until work.Units) {
	if !r.small() || !r.p.enumerable() || r.bound() >= cutoff*(1-exactSlack) ||
		slices.ContainsFunc(r.p.cells, func(c cell) bool { return c.price <= 0 }) {
		return
	}
	if r.columns == nil {
		r.generate(searchDeepest)
	}
	b := &branching{r: r, cutoff: cutoff, known: make(map[string]bool), sack: newRuledSack(r.p),
		hot: make([]bool, len(r.p.cells)), worth: make([]float64, r.p.classes())}
	for i := range r.p.cells {
		b.prices = append(b.prices, r.p.cells[i].price)
	}
	slices.Sort(b.prices)
	b.prices = slices.Compact(b.prices)
	slices.Reverse(b.prices)
	b.places = placesOf(r.p)
	for i := range r.columns {
		if r.columns[i].cell >= 0 {
			b.addPattern(&r.columns[i])
		}
	}
	b.grow(until)
	r.tree = b
}

// placesOf returns one class of each group that may not use every cell.
func placesOf(p *part) (out []int) {
	seen := make([]bool, p.groups)
	for k, g := range p.group {
		if seen[g] {
			continue
		}
		seen[g] = true
		if slices.ContainsFunc(p.cells, func(c cell) bool { return !c.open.Has(g) }) {
			out = append(out, k)
		}
	}
	return out
}

// grow divides the branch with the lowest bound again and again, until that bound reaches the cutoff or the work ends. Only the lowest
// branch limits what is proven, so dividing another one would not help.
func (b *branching) grow(until work.Units) {
	b.began, b.until = b.r.b.spent(), until
	b.tree = []branch{{parent: -1, worth: make([]float64, len(b.worth))}} // worths that prove nothing, until they are better
	b.solve(0)
	for !b.late() && b.r.b.spend() {
		i := b.lowest()
		if b.tree[i].whole || b.tree[i].bound >= b.cutoff*(1-exactSlack) {
			return
		}
		for _, more := range []bool{false, true} {
			l := &b.tree[i]
			next := branch{parent: i, rule: l.next, bound: l.bound, worth: l.worth, toll: append(slices.Clone(l.toll), 0)}
			next.rule.more = more
			b.tree = append(b.tree, next)
			b.solve(len(b.tree) - 1)
		}
		b.tree[i].less, b.tree[i].more = len(b.tree)-2, len(b.tree)-1
	}
}

// late reports whether the work for branches is used up.
func (b *branching) late() bool { return b.r.b.spent() >= b.until }

// lowest returns the undivided branch with the lowest bound.
func (b *branching) lowest() int {
	best := -1
	for i := range b.tree {
		if l := &b.tree[i]; l.less == 0 && (best < 0 || l.bound < b.tree[best].bound) {
			best = i
		}
	}
	return best
}

// rulesOf returns the rules of a branch, from the root on.
func (b *branching) rulesOf(i int) []rule {
	var out []rule
	for ; b.tree[i].parent >= 0; i = b.tree[i].parent {
		out = append(out, b.tree[i].rule)
	}
	slices.Reverse(out)
	return out
}

// solve solves the configuration LP under the rules of branch i by column generation. It sets the branch's bound, worths and tolls, and the
// rule that divides it. Sometimes it then dives for a fleet.
//
// Each turn first searches the cells that had something worth buying before (hot). Only if none has does it search every cell, which also
// proves a bound. If the work ends before that, the branch keeps its parent's bound.
func (b *branching) solve(i int) {
	l := &b.tree[i]
	b.start(b.r.p.count, b.rulesOf(i))
	for range branchTurns {
		if b.optimize(); i > 0 && b.late() {
			return
		}
		if b.add(b.lookAgain()) > 0 {
			continue
		}
		offers, excess := b.lookEverywhere()
		l.prove(b, excess)
		if l.bound >= b.cutoff*(1-exactSlack) || b.add(offers) == 0 {
			break
		}
	}
	b.divide(l)
	if !b.late() && l.bound < b.cutoff*(1-exactSlack) && (l.whole || i%branchRounds == 0 && b.dived*diveShare <= b.r.b.spent()-b.began) {
		began := b.r.b.spent()
		b.dive()
		b.dived += b.r.b.spent() - began
	}
}

// optimize solves the LP with the columns that it has, and reads its prices.
func (b *branching) optimize() {
	b.program.Optimize(func() bool { return true })
	b.r.b.charge(b.program.Steps.Take())
	b.readPrices()
}

// start sets up the LP for count items per class under some rules: a row for each class and each rule, and a column for each known pattern.
func (b *branching) start(count []int, rules []rule) {
	p := b.r.p
	b.count, b.rules, b.toll = count, rules, make([]float64, len(rules))
	b.sack.limit = restLimit(p, count)
	dear := b.cutoff / 1e9 * branchDear
	rows, first := make([]lp.Row, 0, p.classes()+len(b.rules)), make([]lp.Column, p.classes()+len(b.rules))
	for i := range first {
		first[i] = lp.Column{Rows: []int{i}, Vals: []float64{1}, Cost: dear}
	}
	for k, n := range count {
		rows = append(rows, lp.Row{Bound: float64(n) + tieBreak(k)})
	}
	for _, x := range rules {
		rows = append(rows, lp.Row{Bound: float64(max(x.limit(), 0)), Limits: !x.more})
	}
	b.program = lp.NewSimplex(rows, first)
	b.column = b.column[:0]
	for range b.program.Columns() {
		b.column = append(b.column, -1)
	}
	for j := range b.pool {
		b.enter(j)
	}
}

// enter adds a column for pattern j of the pool. Of each class it counts at most the items that the LP has to hold.
func (b *branching) enter(j int) {
	p, l := b.r.p, &b.pool[j]
	col := lp.Column{Cost: float64(p.cells[l.cell].price) / 1e9}
	for i, k := range l.classes {
		if n := min(l.counts[i], b.count[k]); n > 0 {
			col.Rows, col.Vals = append(col.Rows, k), append(col.Vals, float64(n))
		}
	}
	for i := range b.rules {
		if b.counts(&b.rules[i], l) {
			col.Rows, col.Vals = append(col.Rows, p.classes()+i), append(col.Vals, 1)
		}
	}
	b.program.Add(col)
	b.column = append(b.column, j)
}

// counts reports whether a node with the contents l is of the rule's kind.
func (b *branching) counts(x *rule, l *load) bool {
	if !x.aboutContents() {
		return b.countsCell(x, l.cell)
	}
	if b.r.p.cells[l.cell].price < x.Price {
		return false
	}
	i := slices.Index(l.classes, x.Class)
	return i >= 0 && l.counts[i] >= x.Least
}

// countsCell reports whether nodes of cell c are of the rule's kind, for a rule that is not about contents. A class may use a cell that is
// open to it and has room for an item of it, as for package verify.
func (b *branching) countsCell(x *rule, c int) bool {
	p := b.r.p
	return p.cells[c].price >= x.Price && (x.Class < 0 || p.mayUse(x.Class, c) && fits(p.needs(x.Class), p.cells[c].room))
}

// aboutContents reports whether it matters to a rule what a node holds.
func (x *rule) aboutContents() bool { return x.Class >= 0 && x.Least > 0 }

// sign is 1 for a rule that asks for more nodes and so rewards them, −1 for a rule that taxes them.
func (x *rule) sign() float64 {
	if x.more {
		return 1
	}
	return -1
}

// readPrices sets worth and toll to the row prices of the LP, in nano-dollars.
func (b *branching) readPrices() {
	for k := range b.worth {
		b.worth[k] = max(b.program.Price(k), 0) * 1e9
	}
	for i := range b.rules {
		b.toll[i] = max(b.rules[i].sign()*b.program.Price(len(b.worth)+i), 0) * 1e9
	}
}

// addPattern adds a pattern to the pool, and returns false if it is there already.
func (b *branching) addPattern(l *load) bool {
	key, _ := patternKey(l)
	if b.known[key] {
		return false
	}
	b.known[key] = true
	b.pool = append(b.pool, l.clone())
	return true
}

// add adds the best offers, up to branchColumns, to the pool and the LP, and returns how many were new.
func (b *branching) add(offers []offer) (added int) {
	slices.SortStableFunc(offers, func(x, y offer) int { return cmp.Compare(y.ratio, x.ratio) })
	for i := range offers[:min(len(offers), branchColumns)] {
		if b.addPattern(&offers[i].load) {
			b.enter(len(b.pool) - 1)
			added++
		}
	}
	return added
}

// cost returns what a node of cell c costs: its price, with the tolls that do not depend on its contents.
func (b *branching) cost(c int) float64 {
	price := b.r.p.cells[c].price
	cost := float64(price)
	for i := range b.rules {
		if x := &b.rules[i]; !x.aboutContents() && b.countsCell(x, c) {
			cost -= float64(x.sign() * b.toll[i])
		}
	}
	return cost
}

// lookAgain searches the hot cells for contents that are worth more than their node costs.
func (b *branching) lookAgain() (offers []offer) {
	for c, hot := range b.hot {
		if hot {
			_, offers = b.lookAt(c, offers)
		}
	}
	return offers
}

// lookEverywhere does the same with all cells. excess, at least 1, is the factor by which worths and tolls have to be divided so that no
// node is worth more than it costs (see prove).
func (b *branching) lookEverywhere() (offers []offer, excess float64) {
	excess = 1
	for c := range b.hot {
		var over float64
		over, offers = b.lookAt(c, offers)
		excess = max(excess, 1+over/float64(b.r.p.cells[c].price))
	}
	return offers, excess
}

// lookAt searches cell c. It returns by how much its contents may be worth more than it costs, and the offers with the contents that it
// found, if any; and it sets whether the cell is hot.
func (b *branching) lookAt(c int, offers []offer) (float64, []offer) {
	cost := b.cost(c)
	b.sack.set(b, c)
	upper, found := b.sack.search(max(cost, 0)*(1+1e-8) + 10)
	b.r.b.charge(b.sack.steps.Take())
	if b.hot[c] = found != nil; found != nil {
		offers = append(offers, offer{found.clone(), upper - cost})
	}
	return upper - cost, offers
}

// prove raises the branch's bound to the bound that the LP's present worths and tolls prove. They are first divided by excess,
// so that no node is worth more than it costs.
//
// Let the cost of a node be its price less rewards plus taxes. If no node holds more than its cost, then Σ w·n ≤ Σ of the costs of all
// nodes ≤ price of the fleet − Σ reward·(Most+1) + Σ tax·Most, because there are at least Most+1 nodes of a rewarded kind and at most Most
// of a taxed one. So price ≥ Σ w·n + Σ sign·toll·limit.
func (l *branch) prove(b *branching, excess float64) {
	bound := 0.0
	for k, n := range b.r.p.count {
		bound += float64(b.worth[k] * float64(n))
	}
	for i := range b.rules {
		bound += float64(b.rules[i].sign() * b.toll[i] * float64(b.rules[i].limit()))
	}
	if bound /= excess; bound <= l.bound {
		return
	}
	l.bound, l.worth, l.toll = bound, slices.Clone(b.worth), slices.Clone(b.toll)
	for k := range l.worth {
		l.worth[k] /= excess
	}
	for i := range l.toll {
		l.toll[i] /= excess
	}
}

// limit returns the number of nodes that a rule allows at most or demands at least.
func (x *rule) limit() int {
	if x.more {
		return x.Most + 1
	}
	return x.Most
}

// divide sets l.next to the rule whose number of nodes is farthest from whole in the LP's solution, so that both sides differ as much as
// possible from it. It tries three sorts of rules in turn, and a later sort only if all numbers of the earlier ones are whole: nodes by
// price; nodes by price in the cells of one place; nodes by price that hold at least n items of a class.
func (b *branching) divide(l *branch) {
	best := branchWhole
	try := func(x rule) (nodes float64) {
		for j, amount := range b.used() {
			if b.counts(&x, &b.pool[j]) {
				nodes += amount
			}
		}
		if off := math.Abs(nodes - math.Round(nodes)); off > best {
			x.Most = int(math.Floor(nodes))
			best, l.next = off, x
		}
		return nodes
	}
	for _, price := range b.prices {
		try(rule{Rule: verify.Rule{Price: price, Class: -1}})
	}
	if best == branchWhole {
		for _, k := range b.places {
			for _, price := range b.prices {
				try(rule{Rule: verify.Rule{Price: price, Class: k}})
			}
		}
	}
	for k := 0; k < len(b.worth) && best == branchWhole; k++ {
		for _, price := range b.prices {
			for least := 1; least <= b.r.p.limit[k]; least++ {
				if try(rule{Rule: verify.Rule{Price: price, Class: k, Least: least}}) < branchWhole {
					break
				}
			}
		}
	}
	l.whole = best == branchWhole
}

// used yields the patterns of the LP's solution and how many nodes of each it buys.
func (b *branching) used() func(func(int, float64) bool) {
	return func(yield func(int, float64) bool) {
		for c, x := range b.program.Basic() {
			if j := b.column[c]; j >= 0 && x > 1e-6 && !yield(j, x) {
				return
			}
		}
	}
}

// dive looks for a cheaper fleet near the LP's solution. It buys the whole nodes, or else one node of the pattern with the largest
// fraction, and solves the LP for the rest. If that cannot make a cheaper fleet, it tries another node instead. A cheaper fleet becomes
// r.best and lowers the cutoff, so that fewer branches are left. Afterwards the LP in b is no longer that of the branch.
func (b *branching) dive() {
	if b.r.best.left == nil {
		return // no fleet was asked for
	}
	t, rules, worth := b.r.newPartial(), b.rules, slices.Clone(b.worth)
	for solved := 0; t != nil; {
		order := b.amounts()
		from := t
		t = nil
		for i := 0; i < min(len(order), diveTries) && t == nil && solved < diveMost && !b.late(); i++ {
			next := from.clone()
			if i > 0 || b.buyWhole(next, order) == 0 {
				next.buy(&b.pool[order[i].column], 1)
			}
			b.r.complete(next, worth)
			b.cutoff = min(b.cutoff, float64(b.r.best.price))
			if next.total == 0 || next.total == from.total {
				return
			}
			if solved++; b.mayBeCheaper(next, rules) {
				t = next
			}
		}
	}
}

// amounts returns the patterns of the LP's solution, those of which it buys most first.
func (b *branching) amounts() []amount {
	var out []amount
	for j, x := range b.used() {
		out = append(out, amount{j, x})
	}
	slices.SortFunc(out, func(x, y amount) int { return cmp.Or(cmp.Compare(y.x, x.x), cmp.Compare(x.column, y.column)) })
	return out
}

// buyWhole buys the whole nodes of the LP's solution for t, and returns how many it bought.
func (b *branching) buyWhole(t *partial, order []amount) (bought int) {
	for _, a := range order {
		if n := int(math.Floor(a.x + branchWhole)); n > 0 {
			bought += t.buy(&b.pool[a.column], n)
		}
	}
	return bought
}

// mayBeCheaper sets b's LP to the items that t has not placed, under what the nodes of t leave of the rules, and reports whether these
// nodes and the LP's solution together may cost less than the cutoff. More columns only lower the LP's value, so it stops as soon as that
// is low enough. After diveTurns turns the answer is no.
func (b *branching) mayBeCheaper(t *partial, rules []rule) bool {
	left := slices.Clone(rules)
	for i := range left {
		for j := range t.nodes {
			if b.counts(&left[i], &t.nodes[j].load) {
				left[i].Most -= t.nodes[j].n
			}
		}
	}
	b.start(t.rem, left)
	most := (b.cutoff*(1-exactSlack) - float64(b.r.p.priceOf(t.nodes))) / 1e9 // the LP counts in dollars
	for range diveTurns {
		if b.optimize(); b.program.Value() < most {
			return true
		}
		offers := b.lookAgain()
		if len(offers) == 0 {
			offers, _ = b.lookEverywhere()
		}
		if b.add(offers) == 0 {
			return false
		}
	}
	return false
}

// treeSlack is the part of worths and tolls that is taken off before rounding; see proofSlack.
const treeSlack = 1e-8

// certify returns the tree in whole numbers and the bound that it proves, for part q, which is this part or a twin. Without a tree (b is
// nil) it returns 0.
//
// The bound is rounded up to the next price that a fleet can have: every price of a node is a multiple of the greatest common divisor of
// all prices.
func (b *branching) certify(q *part) (verify.Tree, int64) {
	if b == nil {
		return verify.Tree{}, 0
	}
	t := verify.Tree{Classes: q.member}
	low := int64(math.MaxInt64)
	for i := range b.tree {
		l := &b.tree[i]
		out := verify.Branch{Less: l.less, More: l.more, Rule: l.next.Rule}
		if l.less == 0 {
			var bound int64
			out.Rule = verify.Rule{}
			out.Worth, out.Toll, bound = l.exact(b.r.p, b.rulesOf(i))
			low = min(low, bound)
		}
		t.Branches = append(t.Branches, out)
	}
	var unit int64
	for i := range q.every {
		unit = gcd(unit, q.every[i].price)
	}
	return t, (max(low, 0) + unit - 1) / max(unit, 1) * unit
}

// exact returns the worths and tolls of a branch in whole numbers, and the bound that they prove. Worths and rewards are rounded down and
// taxes up, so that no node becomes worth more than it costs.
func (l *branch) exact(p *part, rules []rule) (worth, toll []int64, bound int64) {
	for k, w := range l.worth {
		whole := int64(min(w*(1-treeSlack), verify.MaxWorth))
		worth, bound = append(worth, whole), addTimes(bound, whole, p.count[k])
	}
	for i, t := range l.toll {
		whole := min(t*(1-treeSlack), verify.MaxToll)
		if !rules[i].more {
			whole = math.Ceil(whole)
		}
		toll = append(toll, int64(whole))
		bound += int64(rules[i].sign()) * int64(whole) * int64(rules[i].limit())
	}
	return worth, toll, bound
}
