package solve

import (
	"iter"
	"slices"

	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/quantity"
	"karpenter.sh/karpenter/internal/core/rule/limits"
	"karpenter.sh/karpenter/internal/core/shape"
	"karpenter.sh/karpenter/internal/core/work"
)

// A Placement is what others see of a state: nodes, and the pods that were placed on them. Who has a better idea of where they should be
// begins afresh and places them through the same rules; Take reports whether it was one.
type Placement struct {
	s     *state
	left  []int   // by class: pods that found no place at first
	costs []int64 // of new nodes that hold pods, in order
}

// Place places the pods of a problem, class after class.
func Place(p *problem.Problem) (*Placement, *problem.Result) {
	s := newState(factsOf(p))
	s.opener.worth = s.fleet.findWorth()
	s, left := s.inOrder(s.place())
	at, r := &Placement{s: s, left: left}, &problem.Result{Left: left, Partial: s.facts.meter.CutAt() > 0,
		Memory: problem.Memory{Known: p.Settings.Memory.Known}}
	r.Bins, r.Placed = s.finish(left), s.fleet.bins.placed
	r.Why = s.explain(left, r.Partial)
	charge(r, billOf(p, r.Bins))
	at.costs = costsOf(r.Bins, &p.Settings.Terms)
	return at, r
}

// costsOf returns what each node is reckoned to cost.
func costsOf(bins []problem.Bin, terms *problem.Terms) (costs []int64) {
	for i := range bins {
		costs = append(costs, terms.With(bins[i].Launch.Cost, bins[i].Launch.Base))
	}
	return costs
}

// Take makes a better idea the result, if it leaves fewer pods over or is cheaper. It comes with the pods of the
// first placement; what that left over gets the room that there is now, and pods that kube-scheduler would not put
// there get other places. The idea becomes what was made of it. Take reports whether it is the result now.
func (at *Placement) Take(r *problem.Result, idea *Placement) (taken bool) {
	if idea == nil {
		return false
	}
	better, left := idea.s, slices.Clone(idea.left)
	better.fleet.census.pinned = false
	better.schedule.avoid()
	if sum(left) > 0 && better.fillIn(left) {
		better.schedule.avoid()
	}
	if len(better.schedule.misplaced()) > 0 {
		better, left = better.relocate(left)
	}
	bins := better.finish(left)
	idea.s, idea.left, idea.costs = better, left, costsOf(bins, &better.facts.p.Settings.Terms)
	bill := billOf(better.facts.p, bins)
	fewer := sum(left) < sum(r.Left)
	if !fewer && (!within(left, r.Left) || bill.cost >= r.Cost) { // a lower price leaves no other pods over
		return false
	}
	if fewer {
		r.Why = better.explain(left, r.Partial)
	}
	r.Bins, r.Placed, r.Left = bins, better.fleet.bins.placed, left
	charge(r, bill)
	return true
}

// Movable reports whether new nodes could be others: finishing gave no pods back.
func (at *Placement) Movable() bool { return !at.s.dropped }

// Arrives reports whether new nodes bring daemons that groups count: which nodes there are then decides where pods may be.
func (at *Placement) Arrives() bool { return at.s.facts.arrival != nil }

// Meter counts the work of the run.
func (at *Placement) Meter() *work.Meter { return at.s.facts.meter }

// Least is, of each resource, the smallest need of anybody.
func (at *Placement) Least() quantity.Vec { return at.s.facts.least }

// Twin returns an earlier template that may sell the same machines, −1 where there is none.
func (at *Placement) Twin(t problem.TemplateID) problem.TemplateID { return at.s.facts.twin[t] }

// AnyMachine reports whether pods may use exotic and large machines that others may not, because they have no other place.
func (at *Placement) AnyMachine() bool { return at.s.ties.anyMachine.Any() }

// TooLarge says how many times a node of so many vCPU is twice too large for the pool of a template.
func (at *Placement) TooLarge(t problem.TemplateID, vcpu int64) int {
	return at.s.facts.tooLarge(&at.s.facts.p.Templates[t], vcpu)
}

// Prices returns what a filled node of each shape costs that is bought by one of these offers, 0 where it is not sold.
func (at *Placement) Prices(t problem.TemplateID, offers bits.Set) []int64 {
	return at.s.fleet.stock.pricesOf(t, at.s.facts.wide(offers))
}

// Lists returns what launches by these offers send for pods that ask for no more than CPU and memory, and whether these are all the lists.
func (at *Placement) Lists(t problem.TemplateID, offers bits.Set) (lists []shape.List, complete bool) {
	return listed(at.s.fleet.stock.rowOf(t, at.s.facts.wide(offers)), &at.s.facts.p.Templates[t], &at.s.facts.p.Settings.Terms)
}

// Reach returns the domains of a key in which pods of a class could get a new node.
func (at *Placement) Reach(class problem.ClassID, key int) bits.Set {
	return at.s.ties.reachOf(class).domains[key]
}

// Ties are the groups that a class, read as one of its variants, has to do with.
type Ties struct {
	Owned, Counted []int // of a host: those whose constraint the pods carry, and those that count them
	Glued          bool  // the pods have to be on one host with others
	Spread         bool  // topology keys beside the host have a say
}

// Ties returns what ties pods to others.
func (at *Placement) Ties(class problem.ClassID, variant int) Ties {
	t := at.s.ties.touchesOf(class, variant)
	return Ties{t.host.owned, t.host.counted, t.glued, len(t.keys) > 0}
}

// Pins returns, by topology key, the domains that pods are counted in; nil where they have to do with none.
func (at *Placement) Pins(p problem.Put) []int32 {
	t := at.s.ties.touchesOf(p.Class, p.Variant)
	if len(t.keys) == 0 {
		return nil
	}
	pins := slices.Repeat([]int32{problem.NoDomain}, len(at.s.facts.p.Keys))
	for i := range t.keys {
		pins[t.keys[i].key] = at.s.fleet.bins.domainOf(t.keys[i].key, p.Bin)
	}
	return pins
}

// An Opened node is opened by the placement.
type Opened struct {
	Template problem.TemplateID
	Holds    bool // a machine of a reservation
	Puts     []problem.Put
}

// New yields the nodes that the placement opened.
func (at *Placement) New() iter.Seq2[problem.BinID, Opened] {
	return func(yield func(problem.BinID, Opened) bool) {
		for bin, n := range at.s.fleet.bins.newBins() {
			if !yield(bin, Opened{n.tmpl, n.held != problem.NoReservation, n.puts}) {
				return
			}
		}
	}
}

// Cost is what some of its new nodes, in order, are reckoned to cost.
func (at *Placement) Cost(bins []problem.BinID) (sum int64) {
	next := 0
	for bin, n := range at.s.fleet.bins.newBins() {
		if len(n.puts) == 0 {
			continue
		}
		if _, found := slices.BinarySearch(bins, bin); found {
			sum += at.costs[next]
		}
		next++
	}
	return sum
}

// Remains returns what a limit leaves once the new nodes are given back, but for those that stay. Limits are those of pools, then
// those of quotas.
func (at *Placement) Remains(limit int, stays func(problem.BinID) bool) limits.Pool {
	left := at.s.fleet.stock.limits.left[limit].Clone()
	if !left.Limited {
		return left
	}
	for bin, n := range at.s.fleet.bins.newBins() {
		if at.s.fleet.stock.limits.counted(n, limit) && len(n.puts) > 0 && !stays(bin) {
			left.Give(at.s.fleet.stock.limits.takenBy(n))
		}
	}
	return left
}

// Allows reports whether limits allow one more node of a shape.
func (at *Placement) Allows(t problem.TemplateID, shape int) bool {
	return at.s.fleet.stock.limits.allowed(t, shape)
}

// Together returns how many of n pods may be on a node that is opened next, as far as the host-level groups go that they own and are
// counted by.
func (at *Placement) Together(groups []int, n int) int {
	for _, g := range groups {
		n = min(n, at.s.fleet.census.groups[g].HostRoom(int(at.s.fleet.bins.next()), true, n))
	}
	return n
}

// Open opens a node that is filled for a shape. It has no reserved machine.
func (at *Placement) Open(t problem.TemplateID, shape int) problem.BinID {
	bin := at.s.fleet.open(target{tmpl: t, shape: shape})
	at.s.facts.p.Templates[t].DropReserved(at.s.fleet.bins.maskOf(bin))
	return bin
}

// Only restricts what a new node may become, for a commitment: to some shapes, bought by some offers.
func (at *Placement) Only(bin problem.BinID, shapes, offers bits.Set) {
	at.s.fleet.bins.node(bin).only = shapes
	mask := at.s.fleet.bins.maskOf(bin)
	for o := range at.s.fleet.bins.template(at.s.fleet.bins.node(bin)).Catalog.Offers {
		if !offers.Has(o) {
			mask.Remove(o)
		}
	}
}

// Pin settles domains of a new node before its pods come.
func (at *Placement) Pin(bin problem.BinID, pins []int32) {
	s := at.s
	for key, d := range pins {
		if d < 0 || s.fleet.bins.domainOf(key, bin) != problem.OpenDomain {
			continue
		}
		s.fleet.bins.domainsOf(bin)[key] = d
		s.fleet.bins.maskOf(bin).And(s.facts.keyOf(key, s.fleet.bins.node(bin).tmpl).Choice[d])
	}
}

// Pinned reports whether a node is in the domains of some pins.
func (at *Placement) Pinned(bin problem.BinID, pins []int32) bool {
	for key, d := range pins {
		if d >= 0 && at.s.fleet.bins.domainOf(key, bin) != d {
			return false
		}
	}
	return true
}

// AskDomains says that domains of pods that are placed next are not decided.
func (at *Placement) AskDomains() { at.s.fleet.census.pinned = false }

// Leave says that pods have no place.
func (at *Placement) Leave(p problem.Put) {
	at.left = slices.Clone(at.left)
	at.left[p.Class] += p.Count
}

// Put places pods on their bin, as many of them as the rules allow, and returns how many.
func (at *Placement) Put(p problem.Put) int {
	placed := 0
	q := at.s.ask(at.s.read(p.Class, p.Variant))
	for placed < p.Count && at.s.fleet.try(q, p.Bin).code == 0 {
		n := min(p.Count-placed, at.s.fleet.most(q, p.Count-placed))
		at.s.fleet.commit(q, n)
		placed += n
	}
	return placed
}

func charge(r *problem.Result, b bill) { r.Price, r.Floor, r.Cost = b.price, b.floor, b.cost }
