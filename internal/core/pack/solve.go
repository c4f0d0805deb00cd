package pack

import (
	"cmp"
	"math"
	"slices"

	"karpenter.sh/karpenter/internal/core/pack/verify"
	"karpenter.sh/karpenter/internal/core/work"
)

// A guide has two parameters of a greedy run: how much it prefers large items (bonus), and how many times its fair share of each class a
// node may take (share; 0 means any number).
//
// Worths alone do not decide which item goes first. Among items that are worth what they cost, a large item is harder to place later
// than a small one, so it gets a bonus. The right bonus depends on how many items a node holds, which is not known before trying. And a
// node that takes only the best items leaves the rest to later nodes. If each node takes about its fair share of each class, all nodes
// get the same mix, as in the LP.
type guide struct{ bonus, share float64 }

// guides returns the guides that the greedy runs try, the usual winners first.
func guides() []guide {
	return []guide{{0.3, 1.05}, {0.3, 2}, {0, 1.3}, {0, 2}, {1, 1.15}, {0.3, 1.15}}
}

// fastGuides is how many of the guides every search tries. The others need time.
const fastGuides = 3

// resample runs the greedy sampleRounds times with other samples, and stops after sampleTrials trials.
const (
	sampleRounds = 4
	sampleTrials = 1000
)

// Solve finds a cheap fleet for p and proves a bound on every fleet.
//
// It goes from cheap steps that always help to expensive steps that may not:
//  1. An answer from memory, or to the same question, is returned at once.
//  2. If the caller knows a fleet (Options.Price) that is close enough to the bound, Solve searches none and leaves all items.
//  3. Pricing, a greedy fleet and the configuration LP; then larger cells are opened (widen).
//  4. Deeper knapsacks for the configuration LP (deepen), and a search that can use any amount of work.
//  5. Branch and price for small parts, which proves a bound in whole nodes and finds fleets on the way.
//
// Each step after the first fleet gets only as much work as the money at stake justifies.
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

// Bound proves a bound without searching a fleet: by volumes, by the fluid LP, and sometimes by the configuration LP, which is stronger but
// costs more.
//
// The price of the known fleet (Options.Price) decides about the configuration LP. If the fleet is within boundNear of the bound, no better
// bound is needed. If it is farther than boundFar, something raises its price that the packer does not know (pods that must not meet, zones
// that must be even), and a better bound would not explain it. The configuration LP is solved only in between, or if a part has at most
// boundFew items: there cut nodes alone may explain the distance.
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
	s := newSolution(openUpTo(split(p), o.Over), b, o.Over)
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
		// The known fleet pays at most this much for the part: its price less the bounds of all other parts.
		s.branchOut(o.Exact, func(r *run) float64 {
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

// A solution is the runs of all parts, with cells up to some size open. Parts that are equal in all numbers share a run.
//
// No two parts have a cell in common that matters to both, so the best fleets of the parts together are the best fleet, and bounds add up.
// Therefore a cluster with twenty teams in twenty pools is as easy as twenty small clusters. Teams with the same pods in pools that sell
// the same machines share a run; see equal.
type solution struct {
	runs []*run
	over int // cells that are at most so many steps too large are open
}

// newSolution returns a solution with a run for each part, without fleets. Equal parts share a run, unless a test leaves out that stage.
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

// improve finds a fleet for every part: by the greedy, then, unless Options.Fast is set, by the configuration LP.
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

// hopeless reports whether a search could gain next to nothing: the known fleet of Options.Price is close enough to the bound, even to the
// bound with all cells open.
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

// closeTo returns a factor: a fleet that costs at most so many times the bound is close enough.
func closeTo(o Options) float64 { return 1 + max(float64(o.CloseMillionths)/1e6, gapGoal/2) }

// unpacked returns the result with a proven bound, an empty fleet, and all items left.
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

// bound returns the sum of the bounds of all parts.
func (s *solution) bound() (bound float64) {
	for _, r := range s.runs {
		bound += float64(r.bound() * float64(1+len(r.twins)))
	}
	return bound
}

// A pricing is the worth of an item of each class, and of a unit of room.
type pricing struct {
	worth []float64
	unit  *unitWorth
}

// A run is the search for one part.
//
// It goes from rough to fine and keeps everything that may help later: all proofs, because the one with the highest bound may not fit into
// whole numbers; all pricings, because a rough one may be the better guide; all patterns of the configuration LP, because branch and price
// starts from them.
//
// Invariant: best is nil only before the first greedy run, and never gets worse after it. bound never falls. So a run can be stopped at any
// time and still has the best fleet and bound that it found.
type run struct {
	p       *part
	b       *budget
	pricing           // the pricing with the highest bound
	volume  float64   // bound by the volume LP
	fluid   *fluid    // nil before refine, and where there is none
	sharp   bool      // sharpen has nothing left to do
	guiding []pricing // the pricings that greedy runs may use
	winner  pricing   // the pricing that led to the best fleet
	greedy  *greedy
	best    *fleet
	proofs  []proof // proofs of bounds, from the LPs
	close   float64 // a factor: the search may end when best costs at most close times the bound
	// optimal is set when best is proven to be the cheapest fleet of this part.
	optimal bool
	columns []load     // patterns of the configuration LP
	shallow bool       // the knapsacks of the configuration LP gave up early: deeper ones may find more patterns
	tree    *branching // nil if branch and price did not run
	twins   []*part    // parts with the same numbers; they get the same fleet
}

const (
	// maxMasterClasses is how many classes the dense configuration LP can take in time.
	maxMasterClasses = 160
	// maxBoundClasses is the same where nothing but a bound is wanted.
	maxBoundClasses = 60
	// Bound looks for a better bound only if the known fleet costs more than boundNear and less than boundFar above the bound, as parts
	// of the bound.
	boundNear, boundFar = 2e-3, 0.05
	// boundFew is the number of items up to which the price of whole nodes may be far above that of the cut nodes of an LP.
	boundFew = 100
)

// generate solves the configuration LP and keeps its proof.
//
// The first columns are all known patterns, among them those of the best fleet. So the LP never costs more than that fleet, and its prices
// are good from the first turn on. If it started from patterns of one class each, it would need about twice as many turns.
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

// configure solves the configuration LP and rounds it to a fleet. deepest is how much a knapsack may search at most before it gives up.
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

// deepen solves the configuration LP again, with knapsacks that search further, for the parts in which knapsacks gave up before they found
// a better pattern or proved that there is none.
//
// It runs after widen has chosen the size of cells. Otherwise each step of widen would spend its work on the last thousandth of a bound,
// and no work would be left for the step that is taken.
func (s *solution) deepen() {
	for _, r := range s.runs {
		if r.shallow {
			r.configure(searchDeepest)
		}
	}
}

// stake returns the most, in nano-dollars an hour, that any improvement of the part and its twins can save: price less bound. It is
// infinite if items have no place.
//
// Attempts of all kinds (proof, search, rounding) get work in proportion to it, because none of them can save more.
func (r *run) stake() float64 {
	if r.best.lost > 0 {
		return math.Inf(1)
	}
	return (float64(r.best.price) - r.bound()) * float64(1+len(r.twins))
}

// attempt calls do, which may fail to improve anything, with a budget in proportion to the stake.
func (r *run) attempt(stake float64, do func()) {
	whole := r.b
	defer func() { r.b = whole }()
	r.b = whole.granted(stake)
	do()
}

// newRun returns the run of a part, with a first pricing and bound from the volume LP.
//
// The volume LP is solved for every part because it always has a solution, respects stock, limits and groups, and takes next to no
// time. Its prices are used where the fluid LP cannot be solved (cells in short stock, items without needs).
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

// bound returns the highest bound that is proven for the part.
func (r *run) bound() float64 {
	bound := 0.0
	for _, p := range r.proofs {
		bound = max(bound, p.value)
	}
	return bound
}

// good reports whether the search of the part may end: the best fleet holds all items and is close enough to the bound, or it is optimal.
func (r *run) good() bool {
	return r.optimal || r.best != nil && r.best.lost == 0 && float64(r.best.price) <= r.bound()*r.close
}

// open returns the cells that some item may justify: open ones, and large ones up to the size that some item needs.
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

// refine prices room and items by the fluid LP over buckets of equal width. It does so once.
//
// Such buckets suffice if the classes in each have nearly the same shape, as in most problems. Only items on the border between two
// kinds of machine are mispriced, and they are few. sharpen divides the buckets of those.
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

// sharpen prices room and items by the fluid LP over finer buckets. Greedy runs use the rough pricing as well: if machines hold few items,
// it matters more that whole items fit than how fine the prices are, so either pricing may be the better guide.
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

// use adds a pricing with the bound that it proves. If no earlier pricing proves a higher bound, it becomes the run's own pricing.
//
// The bound is not taken from the LP that the pricing came from: lagrange computes it again from the pricing alone. So an LP that stopped
// early, rounded badly or saw buckets instead of classes makes the bound weak, but never wrong.
func (r *run) use(by pricing) {
	bound := r.p.lagrange(by)
	if bound >= r.bound() || r.guiding == nil {
		r.pricing, r.winner = by, by
	}
	r.guiding = append(r.guiding, by)
	r.proofs = append(r.proofs, proof{value: bound, worth: by.worth, limit: by.unit.limit})
}

// lagrange returns the bound that a pricing proves: the worth of all items, less terms for limits and for cells in short stock.
//
// It is the inequality of the package comment, extended by limits and stock. Let w be the worths, l_j what a unit of limit j is worth,
// and let every cell that can be had in any number hold at most its cost, c = price + Σ l_j·use_j. Take any fleet with x_c nodes of
// cell c that holds all items. Then
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

// pricings returns the pricings that greedy runs use.
func (r *run) pricings() []pricing {
	if r.b.does(bothPricings) {
		return r.guiding
	}
	return r.guiding[len(r.guiding)-1:]
}

// incumbent runs the greedy with each of the given guides and pricings, and keeps the best fleet.
//
// No budget ends the first run, because pods wait for a fleet. Later runs are improvements, and the budget may end them.
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

// resample runs the greedy again with all guides. Each run fills nodes from other random samples of the items that are left.
//
// A greedy run is quick. If nodes hold few items, its result depends much on the sample, and the best of several runs is better than one
// run that is repaired in the same time. If nodes hold many items, runs hardly differ; then little is at stake, and little work is granted.
func (r *run) resample() {
	most := r.b.trials + sampleTrials
	for range sampleRounds {
		if r.b.trials < most {
			r.incumbent(guides())
		}
	}
}

// result joins the fleets of all parts, with the bounds and their certificate.
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

// branchOut runs branch and price on the parts: it proves bounds in whole nodes, and keeps cheaper fleets that it finds. cutoff returns the
// price of a part from which on fleets are of no interest.
func (s *solution) branchOut(most work.Units, cutoff func(*run) float64) {
	for _, r := range s.runs {
		if r.best.lost == 0 && !r.b.over {
			r.branchOut(cutoff(r), r.b.spent()+most/work.Units(len(s.runs)))
		}
	}
}

// prove writes bounds and their certificate.
//
// A part with items without a place has no bound in dollars, because no known fleet holds its items. It adds 0 to the bound, which is then
// still a bound.
//
// Twins have the same numbers but other classes, so the proof is written once for each. A whole-node proof of a part replaces its share of
// the bound, not its worths, because a checker reads trees first and then adds the worth of the items that are in no tree.
func (s *solution) prove(p *Problem, out *Result) {
	out.Certificate = Certificate{Worth: make([]int64, len(p.Classes)), LimitWorth: make([]int64, len(p.Limits)), Over: s.over}
	configured := false
	for _, r := range s.runs {
		if r.best.lost > 0 {
			continue // its bound would have no price to compare with
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

// expand turns the fleet of a part into patterns of the problem, and takes the placed items off left.
//
// Equal classes of the problem, the members, were merged into one class of the part. expand uses up the members one after the other. So
// most equal nodes stay equal: a group of equal nodes is cut in two only where a member runs out.
func (f *fleet) expand(p *part, left []int) []Pattern {
	at := make([]int, p.classes()) // the member that is being placed
	var out []Pattern
	for _, ns := range f.nodes {
		for done := 0; done < ns.n; {
			pat := Pattern{Cell: p.cells[ns.cell].origin, Nodes: ns.n - done}
			for i, k := range ns.classes {
				pat.Items = append(pat.Items, takeItems(p.member[k], at[k], ns.counts[i], left)...)
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

// takeItems returns n items from the members of a merged class, starting with the one at index from.
func takeItems(members []int, from, n int, left []int) []Item {
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
