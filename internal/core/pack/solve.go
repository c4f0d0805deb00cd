package pack

import (
	"cmp"
	"math"
	"slices"

	"karpenter.sh/karpenter/internal/core/pack/verify"
	"karpenter.sh/karpenter/internal/core/work"
)

// A guide says how a greedy run fills nodes: how much it prefers big items, and from how large a sample it takes them.
//
// Worths alone do not say which item goes first. Among items that are worth what they cost, a large item that still
// fits is harder to place later than a small one, so it is preferred by a bonus; how much depends on how many items
// a node holds, which is not known before trying. And a node that is filled with the best of everything leaves the
// rest to nodes that come later: taking a fair share of each class, out of a sample, gives all nodes the same mix,
// as the LP does.
type guide struct{ bonus, share float64 }

// guides are what the greedy runs try, the usual winners first.
func guides() []guide {
	return []guide{{0.3, 1.05}, {0.3, 2}, {0, 1.3}, {0, 2}, {1, 1.15}, {0.3, 1.15}}
}

const fastGuides = 3

// How often, and up to how many trials, the greedy is run with other samples.
const (
	sampleRounds = 4
	sampleTrials = 1000
)

// Solve finds a cheap fleet for p and proves a bound on every fleet.
//
// The order is from cheap and sure to dear and doubtful. A memory or a known answer ends it at once. Prices, a
// greedy fleet and a bound come for little work; where a fleet is known that is close enough to the bound, none is
// looked for, and all items are left. The configuration LP and wider cells follow where something is at stake, then
// deeper knapsacks for it and the search, which can use any amount, and at last small parts in whole nodes: a
// proof, whose branches are turned into fleets on the way.
func Solve(p *Problem, o Options) *Result {
	b := newBudget(o)
	question := questionOf(p, o, 's')
	if out := o.Known.find(question); out != nil {
		return out
	}
	if out := o.Known.again(question, o, func(o Options) *Result { return Solve(p, o) }); out != nil {
		return out
	}
	if out := o.Memory.answer(p, b); out != nil {
		out.Known = o.Known
		return out
	}
	parts := split(p)
	best := newSolution(parts, b, 0)
	all := best.widest(parts, b)
	if best.hopeless(all, o) {
		out := best.unpacked(p, b)
		out.Known = o.Known.with(question, out, b.meter)
		return out
	}
	b.watch(best)
	best.improve(o)
	best = best.widen(parts, all, o, b)
	if !o.Fast && b.does(columnGeneration) {
		b.watch(best)
		best.deepen()
	}
	if !o.Fast && b.does(repairing) {
		b.watch(best)
		best.search()
	}
	if o.Exact > 0 && b.does(wholeNodes) {
		best.branchOut(o.Exact, func(r *run) float64 { return float64(r.best.price) })
	}
	out := best.result(p, b)
	if !slices.ContainsFunc(out.Left, func(n int) bool { return n > 0 }) {
		out.Memory = remember(p, best, out.Fleet)
	}
	out.Known = o.Known.with(question, out, b.meter)
	return out
}

// Bound proves a bound without looking for a fleet: by volumes, by the fluid LP, which is weaker than the configuration LP but knows
// which items fit where, and by the configuration LP, where classes are few, there is time, and a known fleet costs no more than the
// little that such an LP can add.
//
// The known fleet says which proofs can be of use. If it is within a fifth of a percent of the bound, more is not needed. If it is
// farther away than a few percent, something keeps it there that a packer does not know (pods that must not meet, zones that must be
// even), and a better bound would not tell what. Only in between is the configuration LP asked, or where so few items are left that broken
// nodes alone explain the distance.
func Bound(p *Problem, o Options) *Result {
	question := questionOf(p, o, 'b')
	if out := o.Known.find(question); out != nil {
		return out
	}
	if out := o.Known.again(question, o, func(o Options) *Result { return Bound(p, o) }); out != nil {
		return out
	}
	if out := o.Memory.bound(p, o.Over); out != nil {
		out.Known = o.Known
		return out
	}
	b := newBudget(o)
	s := newSolution(upTo(split(p), o.Over), b, o.Over)
	for _, r := range s.runs {
		r.sharpen()
		r.best = &fleet{}
	}
	far := float64(o.Price) / max(s.bound(), 1)
	for _, r := range s.runs {
		if far > 1+boundNear && (far < 1+boundFar || r.p.total <= boundFew) && r.p.classes() <= maxBoundClasses && !r.b.over {
			r.attempt(float64(o.Price)-s.bound(), func() { r.generate(searchDeepest) })
		}
	}
	if o.Exact > 0 {
		whole := s.bound()
		s.branchOut(o.Exact, func(r *run) float64 { // no fleet is worth looking for in which the others cost less than their bounds
			twins := float64(1 + len(r.twins))
			return (float64(o.Price) - whole + r.bound()*twins) / twins
		})
	}
	out := &Result{}
	s.prove(p, out)
	out.Memory, out.Work = remember(p, s, nil), b.spent()
	out.Known = o.Known.with(question, out, b.meter)
	return out
}

// A solution is the runs of all parts, with cells up to some size open to all. Parts that are equal in all numbers share a run.
//
// Parts share no cell that matters to both, so the best fleet of the whole is the best of each, and bounds add up. That is what makes a
// cluster with twenty teams in twenty pools as easy as twenty small ones. Teams that ask for the same in pools that sell the same are one
// question; see equal.
type solution struct {
	runs []*run
	over int // steps too large that cells may be for all
}

func newSolution(parts []*part, b *budget, over int) *solution {
	s := &solution{over: over}
	for _, q := range parts {
		if i := slices.IndexFunc(s.runs, func(r *run) bool { return r.p.equal(q) }); i >= 0 && b.does(sharing) {
			s.runs[i].twins = append(s.runs[i].twins, q)
			continue
		}
		s.runs = append(s.runs, newRun(q, b))
	}
	return s
}

// improve finds a fleet for every part: greedily, then, if there is time, by the configuration LP.
func (s *solution) improve(o Options) {
	for _, r := range s.runs {
		r.close = closeTo(o)
		if !o.Fast {
			r.sharpen()
		}
		if r.enumerate() {
			continue
		}
		r.incumbent(guides()[:fastGuides])
	}
	if o.Fast {
		return
	}
	for _, r := range s.runs {
		if r.b.does(moreGuides) {
			r.incumbent(guides()[fastGuides:])
		}
		if r.b.does(columnGeneration) {
			r.configure(searchDeep)
		}
		if r.b.does(sampling) {
			r.attempt(r.stake(), r.resample)
		}
	}
}

// hopeless reports whether a fleet that is known is as close to the bound as any has to be, whatever cells others are of.
func (s *solution) hopeless(all *solution, o Options) bool {
	if o.Price == 0 {
		return false
	}
	for _, r := range s.runs {
		r.sharpen()
	}
	for _, r := range all.runs {
		if s.bound()*closeTo(o) < float64(o.Price) {
			return false
		}
		r.refine()
	}
	return all.bound()*closeTo(o) >= float64(o.Price)
}

// closeTo is at how many times the bound a fleet is close enough.
func closeTo(o Options) float64 { return 1 + max(float64(o.CloseMillionths)/1e6, gapGoal/2) }

// unpacked is the answer that proves a bound and leaves all items.
func (s *solution) unpacked(p *Problem, b *budget) *Result {
	for _, r := range s.runs {
		r.best = &fleet{}
	}
	return s.result(p, b)
}

// sum returns the price of the fleets and how many items are left out.
func (s *solution) sum() (price int64, lost int) {
	for _, r := range s.runs {
		price += r.best.price * int64(1+len(r.twins))
		lost += r.best.lost * (1 + len(r.twins))
	}
	return price, lost
}

func (s *solution) bound() (bound float64) {
	for _, r := range s.runs {
		bound += float64(r.bound() * float64(1+len(r.twins)))
	}
	return bound
}

// A pricing says what an item of each class is worth, and what room is.
type pricing struct {
	worth []float64
	unit  *unitWorth
}

// A run is the search for one part.
//
// It goes from rough to fine and keeps everything that can be of use later: all proofs, because the one with the highest bound may not fit
// into whole numbers; all pricings, because either may be the better guide; all patterns of the configuration LP, because branch and price
// starts from them.
//
// Invariant: best is nil only before the first greedy run, and from then on never gets worse. bound never falls. So whatever ends a run,
// it ends with the best that it had.
type run struct {
	p       *part
	b       *budget
	pricing           // the pricing that bounds best
	volume  float64   // bound by volume
	fluid   *fluid    // nil before refine, and where there is none
	sharp   bool      // nothing is left to sharpen
	guiding []pricing // what greedy runs may go by
	winner  pricing   // the pricing that led to the best fleet
	greedy  *greedy
	best    *fleet
	proofs  []proof // what bounds the fleet, as found by the LPs
	close   float64 // the search may end at so many times the bound
	// optimal is set when no fleet of this part is cheaper.
	optimal bool
	columns []load     // patterns of the configuration LP
	shallow bool       // deeper knapsacks may find more of them
	tree    *branching // nil where whole nodes were not looked at
	twins   []*part    // parts with the same numbers; they get the same fleet
}

const (
	// maxMasterClasses is how many classes the dense configuration LP can take in time.
	maxMasterClasses = 160
	// maxBoundClasses is the same where nothing but a bound is wanted.
	maxBoundClasses = 60
	// boundNear is how near to a bound, in parts, a fleet needs no better one; one as far as boundFar is kept there
	// by what no packer knows.
	boundNear, boundFar = 2e-3, 0.05
	// boundFew is up to how many items whole nodes make a difference that fractions do not see.
	boundFew = 100
)

// generate solves the configuration LP and keeps its proof.
//
// The columns begin with the patterns that are known, of the best fleet among them: then the LP is never dearer
// than that fleet, and its prices are near the truth from the first turn on. From patterns of one class alone it
// would take as many turns again to find out what the greedy knows already.
func (r *run) generate(deepest int) *master {
	m := newMaster(r, r.p.count)
	if m.deepest = deepest; r.small() {
		m.deepest = 0
	}
	for i := range r.columns {
		if r.columns[i].cell >= 0 {
			m.addLoad(&r.columns[i])
		}
	}
	for i := range r.best.nodes {
		m.addLoad(&r.best.nodes[i].load)
	}
	m.generate(r.p.limit, -1)
	r.columns, r.shallow = slices.Clone(m.loads), m.shallow && !r.small()
	if m.bound > 0 {
		r.proofs = append(r.proofs, proof{m.bound, m.bestY, m.bestLim})
	}
	return m
}

// configure solves the configuration LP, with so many questions for a knapsack at most, and rounds it.
func (r *run) configure(deepest int) {
	if r.b.over || r.good() && !r.optimal || r.p.classes() > maxMasterClasses {
		return
	}
	r.attempt(r.stake(), func() {
		if m := r.generate(deepest); !r.optimal && r.b.does(rounding) {
			r.round(m)
		}
	})
}

// deepen asks deeper knapsacks of the parts in which others found nothing and could not say that there is nothing.
//
// It comes after the choice of sizes. Before, every step of that would spend its work on the last thousandth of a
// bound, and none be left for the step that is taken.
func (s *solution) deepen() {
	for _, r := range s.runs {
		if r.shallow {
			r.configure(searchDeepest)
		}
	}
}

// stake is how many nano-dollars an hour the part and its twins may at most be cheaper; no number is enough when items are left out.
//
// It is the only number by which attempts of different kinds can be compared: proving, searching and rounding all have in common that they
// can bring no more than this.
func (r *run) stake() float64 {
	if r.best.lost > 0 {
		return math.Inf(1)
	}
	return (float64(r.best.price) - r.bound()) * float64(1+len(r.twins))
}

// attempt does something that may come to nothing, with a budget for what is at stake.
func (r *run) attempt(stake float64, do func()) {
	whole := r.b
	defer func() { r.b = whole }()
	r.b = whole.granted(stake)
	do()
}

// newRun prices room and items by the volume LP.
//
// The volume LP is solved for every part, because it always has an answer: it knows stock, limits and groups, and
// takes next to no time. Its prices are the floor on which the rest stands when the fluid LP cannot be asked (cells
// in short stock, items without needs).
func newRun(p *part, b *budget) *run {
	r := &run{p: p, b: b, greedy: newGreedy(p)}
	unit, steps := p.volume(r.open())
	b.charge(steps)
	by := pricing{make([]float64, p.classes()), unit}
	for k := range by.worth {
		by.worth[k] = by.unit.of(p.group[k], p.needs(k))
	}
	r.use(by)
	r.volume = r.bound()
	return r
}

func (r *run) bound() float64 {
	bound := 0.0
	for _, p := range r.proofs {
		bound = max(bound, p.value)
	}
	return bound
}

// good reports whether the best fleet is near enough to the bound.
func (r *run) good() bool {
	return r.optimal || r.best != nil && r.best.lost == 0 && float64(r.best.price) <= r.bound()*r.close
}

// open lists the cells that may be used at all.
func (r *run) open() []int {
	most := 0
	for _, n := range r.p.least {
		most = max(most, n)
	}
	var out []int
	for c := range r.p.cells {
		if !r.p.cells[c].large || r.p.cells[c].over <= most {
			out = append(out, c)
		}
	}
	return out
}

// refine prices room and items by the fluid LP, once.
//
// Buckets of equal width do as long as the classes in one have nearly the same shape. They do for most questions: what is lost is what
// items at the borders between two kinds of machine are mispriced by, and there are few of them. sharpen goes after those.
func (r *run) refine() {
	if r.fluid != nil || !r.b.does(fluidLP) {
		return
	}
	if r.fluid = r.p.newFluid(r.open()); r.fluid == nil {
		return
	}
	by, exact, ok := r.fluid.rough()
	r.b.charge(r.fluid.steps.Take())
	if ok {
		r.guiding = nil
		r.use(by)
	}
	r.sharp = exact || !ok
}

// sharpen prices them as finely as it pays. Greedy runs go by both pricings: where machines hold few items, what is whole matters
// more than the last thousandth of a price, and either may be the better guide.
func (r *run) sharpen() {
	r.refine()
	if r.fluid == nil || r.sharp || !r.b.does(dividing) {
		return
	}
	by, ok := r.fluid.fine()
	r.b.charge(r.fluid.steps.Take())
	if ok {
		r.use(by)
	}
	r.sharp = true
}

// use adds a pricing. The pricing that bounds best is the run's own.
//
// A pricing is never trusted to bound as well as the LP it comes from says. lagrange computes from its numbers, and from nothing else,
// what they prove; an LP that stopped early, rounded badly or saw buckets instead of classes is then merely weak, not wrong.
func (r *run) use(by pricing) {
	bound := r.p.lagrange(by)
	if bound >= r.bound() || r.guiding == nil {
		r.pricing, r.winner = by, by
	}
	r.guiding = append(r.guiding, by)
	r.proofs = append(r.proofs, proof{value: bound, worth: by.worth, limit: by.unit.limit})
}

// lagrange is the bound that item worths and unit worths prove: all items' worth less what short cells and limits give back.
//
// It is the inequality of the package comment with what can run out. Let w be the worths, l_j what a unit of limit j is worth, and let
// every cell that can be had in any number hold at most its cost, c = price + Σ l_j·use_j. Take any fleet with x_c nodes of cell c that
// holds all items. Then
//
//	Σ_k w_k·n_k  ≤  Σ_c x_c·(cost of c + surplus of c)  =  price + Σ_j l_j·(use of j) + Σ_c x_c·surplus of c
//
// where the surplus of a cell is what its contents can be worth beyond its cost, which is nothing unless it is in short stock. The use of
// a limit is at most its maximum, and x_c at most the stock; so the price is at least Σ w·n − Σ l·max − Σ stock·surplus. Room at its
// highest price stands for the contents, which can only make the surplus larger and the bound lower.
func (p *part) lagrange(by pricing) float64 {
	var sum float64
	w := by.unit
	for k, n := range p.count {
		sum += float64(by.worth[k] * float64(n))
	}
	for l, most := range p.limits {
		sum -= float64(w.limit[l] * float64(most))
	}
	top := make([]float64, p.dims)
	for i := range p.cells {
		c := &p.cells[i]
		if c.stock == 0 {
			continue
		}
		w.top(p, i, top)
		surplus := -w.cost(c)
		for d, r := range c.room {
			surplus += float64(top[d] * float64(r))
		}
		sum -= float64(max(surplus, 0) * float64(c.stock))
	}
	return max(sum, 0)
}

// pricings are what greedy runs go by.
func (r *run) pricings() []pricing {
	if r.b.does(bothPricings) {
		return r.guiding
	}
	return r.guiding[len(r.guiding)-1:]
}

// incumbent runs the greedy under the given guides and every pricing, and keeps the best fleet.
//
// The first run is not cut by anything: pods wait for a fleet, and a question that cannot be answered within its budget is still
// answered. All later ones are improvements.
func (r *run) incumbent(guides []guide) {
	for _, g := range guides {
		for _, by := range r.pricings() {
			b := r.b
			if r.best == nil {
				b = r.b.uncut() // the first fleet
			} else if b.over || r.good() {
				return
			}
			r.greedy.fill.guide = g
			f := r.greedy.run(r.p.count, r.p.newSupply(), by.worth, by.unit, b)
			if f != nil && f.better(r.best) {
				r.best, r.winner = f, by
			}
		}
	}
}

// resample runs the greedy again under all guides: it fills nodes with samples of what is left, and every run draws others.
//
// Luck is cheap here. A greedy run is quick, and where nodes hold few items its result moves with the sample: the
// best of several is then better than what repairs make of one of them in the same time. Where nodes hold many
// items runs hardly differ, and little is at stake, so that little work is granted.
func (r *run) resample() {
	most := r.b.trials + sampleTrials
	for range sampleRounds {
		if r.b.trials < most {
			r.incumbent(guides())
		}
	}
}

// result puts the fleets of all parts together.
func (s *solution) result(p *Problem, b *budget) *Result {
	out := &Result{Left: make([]int, len(p.Classes)), Partial: b.over}
	for k, c := range p.Classes {
		out.Left[k] = max(c.Count, 0)
	}
	for _, r := range s.runs {
		for _, q := range append([]*part{r.p}, r.twins...) {
			out.Fleet = append(out.Fleet, r.best.expand(q, out.Left)...)
		}
	}
	s.prove(p, out)
	out.Work = b.spent()
	slices.SortStableFunc(out.Fleet, func(a, b Pattern) int { return cmp.Compare(a.Cell, b.Cell) })
	out.Price = verify.Price(p, out.Fleet)
	return out
}

// branchOut proves bounds in whole nodes, below what a cheaper fleet of a part would cost, and takes such fleets as it meets.
func (s *solution) branchOut(most work.Units, cutoff func(*run) float64) {
	for _, r := range s.runs {
		if r.best.lost == 0 && !r.b.over {
			r.branchOut(cutoff(r), r.b.spent()+most/work.Units(len(s.runs)))
		}
	}
}

// prove writes bounds and their certificate.
//
// A part that leaves items out has no bound in dollars: its cheapest fleet would have to hold what no fleet can. It contributes nothing,
// which keeps the sum a bound for the others.
//
// Twins have the same numbers but other classes: the proof is written once for each. The whole-node proof of a part replaces its share of
// the bound, not its worths, because a checker goes through trees first and then asks what the rest is worth.
func (s *solution) prove(p *Problem, out *Result) {
	out.Certificate = Certificate{Worth: make([]int64, len(p.Classes)), LimitWorth: make([]int64, len(p.Limits)), Over: s.over}
	configured := false
	for _, r := range s.runs {
		if r.best.lost > 0 {
			continue // what is left out has no price to compare with
		}
		proof := r.certify()
		for _, q := range append([]*part{r.p}, r.twins...) {
			proof.write(&out.Certificate, q)
			if tree, bound := r.tree.certify(q); bound > proof.bound {
				out.Certificate.Trees = append(out.Certificate.Trees, tree)
				out.Certificate.Bound += bound - proof.bound
			}
			out.VolumeBound += int64(r.volume)
		}
		configured = configured || len(r.proofs) > 1 || r.tree != nil
	}
	if configured {
		out.ConfigBound = out.Certificate.Bound
	}
}

// expand turns the fleet of a part back into patterns of the problem; merged classes are taken apart. It takes what it places off
// left.
//
// Equal classes were merged, so a node of a fleet says "five of that size", not whose. Members are used up one after the other, which
// keeps as many nodes alike as can be: only where a member runs out in the middle of a group of equal nodes is the group cut in two.
func (f *fleet) expand(p *part, left []int) []Pattern {
	at := make([]int, p.classes()) // the member that is being placed
	var out []Pattern
	for _, ns := range f.nodes {
		for done := 0; done < ns.n; {
			pat := Pattern{Cell: p.cells[ns.cell].origin, Nodes: ns.n - done}
			for i, k := range ns.classes {
				pat.Items = append(pat.Items, take(p.member[k], at[k], ns.counts[i], left)...)
			}
			for _, it := range pat.Items {
				pat.Nodes = min(pat.Nodes, left[it.Class]/it.Count)
			}
			for _, it := range pat.Items {
				left[it.Class] -= it.Count * pat.Nodes
			}
			for _, k := range ns.classes {
				for at[k] < len(p.member[k])-1 && left[p.member[k][at[k]]] == 0 {
					at[k]++
				}
			}
			slices.SortFunc(pat.Items, func(a, b Item) int { return cmp.Compare(a.Class, b.Class) })
			out = append(out, pat)
			done += pat.Nodes
		}
	}
	return out
}

// take picks n items from the members of a merged class, starting with the one at index from.
func take(members []int, from, n int, left []int) []Item {
	var out []Item
	for _, k := range members[from:] {
		if m := min(n, left[k]); m > 0 {
			out = append(out, Item{Class: k, Count: m})
			n -= m
		}
		if n == 0 {
			break
		}
	}
	return out
}
