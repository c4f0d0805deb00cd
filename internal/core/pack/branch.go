package pack

import (
	"cmp"
	"math"
	"slices"

	"karpenter.sh/karpenter/internal/core/pack/lp"
	"karpenter.sh/karpenter/internal/core/pack/verify"
	"karpenter.sh/karpenter/internal/core/work"
)

// A branching proves how cheap a small part can be in whole nodes (branch and price). The configuration LP buys a third of a machine where
// that is cheapest; no fleet can. In every fleet the number of nodes that cost at least so much is whole: where the LP says 1.3, one
// branch asks for at most one, the other for two or more. Where these numbers are whole, the number of nodes with at least so many items
// of a class is asked for. Both branches have an LP of their own, with a row for each rule, and go on until none is below the price of a
// known fleet, or the work is done. Whenever it ends, the lowest of the branches bounds every fleet.
//
// Where to divide is the whole art. Asking whether one pattern is bought 1.3 times leads nowhere: the next LP buys another pattern that
// differs by one item. Numbers of nodes by price are asked first, because the bill depends on them and on little else: with "at most one
// node that costs two dollars or more" on one side and "two or more" on the other the bound moves at once. Only where all these are whole
// do numbers of nodes with so many items of a class tell patterns apart; a solution in which those are whole, too, for every class and
// number, buys whole nodes.
//
// A rule becomes a row of the LP, and its price a toll: where the branch has fewer nodes of a kind than the LP would like, each of them is
// taxed, where it has more, rewarded. So the knapsack of a branch sees the rule as a price and needs not know it, but for the steps that a
// toll on "at least three items of k" puts into what items are worth; contents.go searches with those.
//
// Where classes may use some of the cells only, as those that are spread over zones, the numbers of nodes by price
// are asked for each of these sets of cells as well: four nodes may be one and a third in each of three zones.
//
// How far it gets, of 120 random batches of up to 100 pods of up to 12 shapes each: within 0.1 % of the bound are
// 93 on demand and 87 with spot, 49 and 30 where every shape is spread over three zones (a class for each zone and
// one for the pod that may go to any, so three trees in one). A branch costs about a millisecond, half of it LP and
// half knapsacks, and what is not closed after eighty has hundreds to go: of nine that stayed open, seven still
// were after six seconds, mostly in rules about contents that moved no bound. Tried, and no better as far as it was
// taken: to go on from the parent's basis with only the patterns that its bound leaves, knapsacks that first look
// for gains of a thousandth only, and rules about nodes with so much room of a dimension, chosen by what the first
// pivot costs.
//
// Every branch proves its own bound at any time, by the same inequality as the LP, and a child begins with its parent's. So the tree can
// be left where it stands, and the lowest undivided branch says what holds for all fleets.
type branching struct {
	r       *run
	tree    []branch
	prices  []int64 // of the cells, the highest first, each once
	places  []int   // classes that may use some of the cells only, one for each set of them
	cutoff  float64 // branches from here on are of no interest
	pool    []load  // all patterns that were found
	known   map[string]bool
	sack    *ruledSack
	hot     []bool // per cell: it had contents worth buying when it was last looked at
	program *lp.Simplex
	column  []int     // per column of the program: its pattern, −1 for none
	count   []int     // per class: what the LP has to hold
	rules   []rule    // of the branch that is being solved, from the root on
	worth   []float64 // per class, of its LP
	toll    []float64 // per rule: what one node more or less is worth
	began   work.Units
	until   work.Units // the end of its work
	dived   work.Units // so much of it looked for fleets
}

// A rule is what a branch asks of fleets.
//
// Most stands for floor of what the LP wanted, so that Most or fewer and Most+1 or more are all whole numbers and the LP's own solution is
// on neither side.
type rule struct {
	verify.Rule
	more bool // more nodes than Most, not fewer
}

// A branch is a node of the tree, the root first.
type branch struct {
	parent     int // −1 for the root
	rule       rule
	less, more int // its branches; 0 while it has none
	bound      float64
	worth      []float64 // per class; proves the bound together with
	toll       []float64 // per rule, from the root on
	next       rule      // where it is to be divided
	whole      bool      // there is nothing to divide
}

const (
	// exactItems and exactClasses are up to where a part is small. Twelve shapes that are spread over three zones are 48 classes.
	exactItems, exactClasses = 128, 48
	// exactSlack is how near to the price of the fleet a bound is as good as equal, in parts.
	exactSlack = 1e-7
	// branchTurns bounds column generation in one branch, branchColumns what a turn adds.
	branchTurns, branchColumns = 100, 12
	// branchWhole is how far from whole a number of nodes may be to count as whole.
	branchWhole = 1e-4
	// branchDear is what an item without a place, or a node too few, costs the LP, in prices of the known fleet.
	branchDear = 10
	// branchRounds is after how many branches one is turned into a fleet, as long as that takes no more than one part of diveShare.
	branchRounds, diveShare = 8, 4
	// A dive solves diveMost LPs with diveTurns turns each, and tries diveTries nodes before it gives up.
	diveMost, diveTurns, diveTries = 16, 8, 3
)

// small reports whether a part is small enough for branches.
func (r *run) small() bool { return r.p.total <= exactItems && r.p.classes() <= exactClasses }

// branchOut proves a bound for a small part, up to the cutoff, with work until then.
//
// Small means small enough that the proof has a chance to end. With a dozen nodes to buy one node more or less is a
// good part of the bill, and branches soon are dearer than the fleet; with hundreds it is lost in the gap, and
// there would be too many branches to see it.
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
			b.keep(&r.columns[i])
		}
	}
	b.grow(until)
	r.tree = b
}

// placesOf returns a class for each set of cells that some classes may use and others not.
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

// grow divides the lowest branch again and again.
//
// The lowest branch bounds the whole, so dividing any other one proves nothing yet. That needs all branches in memory, of
// which there are few.
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

// late reports whether the work is done.
func (b *branching) late() bool { return b.r.b.spent() >= b.until }

// lowest is the undivided branch with the lowest bound.
func (b *branching) lowest() int {
	best := -1
	for i := range b.tree {
		if l := &b.tree[i]; l.less == 0 && (best < 0 || l.bound < b.tree[best].bound) {
			best = i
		}
	}
	return best
}

// rulesOf lists the rules of a branch from the root on.
func (b *branching) rulesOf(i int) []rule {
	var out []rule
	for ; b.tree[i].parent >= 0; i = b.tree[i].parent {
		out = append(out, b.tree[i].rule)
	}
	slices.Reverse(out)
	return out
}

// solve solves the configuration LP under the rules of a branch by column generation, keeps the best bound that its prices prove, and says
// where to divide it.
//
// The cells that had something worth buying at the last turn are asked first, because they most often have something again; only when none
// of them has is every cell asked, which then also gives a bound. A branch that is not done when the work is has its parent's.
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

// optimize solves the LP with the patterns it has.
func (b *branching) optimize() {
	b.program.Optimize(func() bool { return true })
	b.r.b.charge(b.program.Steps.Take())
	b.readPrices()
}

// start sets up the LP for some items under some rules: rows of classes and rules, and all patterns that are known.
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

// enter makes a column of a pattern, of which no more counts than there is to hold.
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

// counts reports whether a node counts for the rule.
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

// countsCell says so for nodes of a cell whatever they hold. A class may use a cell that is open to it and has room for an item of it, as
// for package verify.
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

// readPrices takes the row prices of the LP as worths and tolls.
func (b *branching) readPrices() {
	for k := range b.worth {
		b.worth[k] = max(b.program.Price(k), 0) * 1e9
	}
	for i := range b.rules {
		b.toll[i] = max(b.rules[i].sign()*b.program.Price(len(b.worth)+i), 0) * 1e9
	}
}

// keep adds a pattern to the pool unless it is there.
func (b *branching) keep(l *load) bool {
	key, _ := patternKey(l)
	if b.known[key] {
		return false
	}
	b.known[key] = true
	b.pool = append(b.pool, l.clone())
	return true
}

func (b *branching) add(offers []offer) (added int) {
	slices.SortStableFunc(offers, func(x, y offer) int { return cmp.Compare(y.ratio, x.ratio) })
	for i := range offers[:min(len(offers), branchColumns)] {
		if b.keep(&offers[i].load) {
			b.enter(len(b.pool) - 1)
			added++
		}
	}
	return added
}

// cost is what a node of a cell costs with the tolls that do not depend on its contents.
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

// lookAgain searches the cells that had something last time for contents that are worth more than their node costs.
func (b *branching) lookAgain() (offers []offer) {
	for c, hot := range b.hot {
		if hot {
			_, offers = b.lookAt(c, offers)
		}
	}
	return offers
}

// lookEverywhere does so with all cells, and says how many times its price the contents of any may be worth.
func (b *branching) lookEverywhere() (offers []offer, excess float64) {
	excess = 1
	for c := range b.hot {
		var over float64
		over, offers = b.lookAt(c, offers)
		excess = max(excess, 1+over/float64(b.r.p.cells[c].price))
	}
	return offers, excess
}

// lookAt returns by how much the contents of a cell may be worth more than it costs.
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

// prove keeps the bound that the LP's prices prove when they are lowered until no cell holds more than it costs: worths and tolls are, per
// node, at most excess times its price.
//
// The argument is that of the root with a term for each rule. If no node is worth more than its cost, its price less rewards plus taxes,
// then Σ w·n ≤ Σ over nodes of that cost, which is the price of the fleet less rewards times the nodes of that kind, at least Most+1 of
// them, plus taxes times theirs, at most Most. So price ≥ Σ w·n + Σ sign·toll·limit. Divided by excess, nodes that exceed their cost no
// longer do.
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

// limit is how many nodes a rule allows at most, or asks for at least.
func (x *rule) limit() int {
	if x.more {
		return x.Most + 1
	}
	return x.Most
}

// divide looks for the price at which the number of nodes that cost as much is farthest from whole, where all are
// whole for the set of cells and the price, and where those are, too, for the class and the number of items at
// which the number of nodes that hold as many is.
//
// The number that is farthest from whole is the one on which both sides differ most from what the LP wanted, so both bounds rise.
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

// dive turns the LP's solution into a fleet: it buys what is whole, or else the node that is nearest to it, and
// asks for the rest again, under what the rules leave. Where the rest can make nothing cheaper that node was the
// wrong one, and the next is tried. A cheaper fleet lowers the cutoff with it.
//
// A branch forbids what made its parent's solution fractional, so its own is closer to a fleet. A cheaper fleet found here is worth twice:
// it is the answer, and it makes the cutoff lower, below which fewer branches are left.
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
			if solved++; b.promises(next, rules) {
				t = next
			}
		}
	}
}

// amounts lists the patterns of the LP's solution, those of which it buys most first.
func (b *branching) amounts() []amount {
	var out []amount
	for j, x := range b.used() {
		out = append(out, amount{j, x})
	}
	slices.SortFunc(out, func(x, y amount) int { return cmp.Or(cmp.Compare(y.x, x.x), cmp.Compare(x.column, y.column)) })
	return out
}

func (b *branching) buyWhole(t *partial, order []amount) (bought int) {
	for _, a := range order {
		if n := int(math.Floor(a.x + branchWhole)); n > 0 {
			bought += t.buy(&b.pool[a.column], n)
		}
	}
	return bought
}

// promises solves the LP for what is left to place, and reports whether it may make a cheaper fleet.
func (b *branching) promises(t *partial, rules []rule) bool {
	left := slices.Clone(rules)
	for i := range left {
		for j := range t.nodes {
			if b.counts(&left[i], &t.nodes[j].load) {
				left[i].Most -= t.nodes[j].n
			}
		}
	}
	b.start(t.rem, left)
	most := (b.cutoff*(1-exactSlack) - float64(b.r.p.priceOf(t.nodes))) / 1e9
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

// treeSlack is taken off worths and tolls before they are rounded; see proofSlack.
const treeSlack = 1e-8

// certify writes the tree down in whole numbers, for a part with the numbers of this one, and says which bound it proves.
//
// A bound is rounded up to the next price that a fleet can have at all: all prices of nodes are multiples of their greatest common
// divisor. In a catalogue of round prices that closes the last of a gap.
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

// exact rounds worths and rewards down and taxes up, so that no node gets worth more than it costs.
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
