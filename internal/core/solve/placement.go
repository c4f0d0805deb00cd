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

// A Placement is what other packages see of a state: nodes, and the pods that were placed on them. Package repack looks for cheaper ones:
// it begins with Afresh or Another, places pods under the same rules, and offers the outcome to Take.
type Placement struct {
	s     *state
	left  []int   // by class: pods that found no place at first
	costs []int64 // of new nodes that hold pods, in order
}

// Place places the pods of a problem, class after class, so that kube-scheduler will find the same places. It returns the placement, which
// can be improved, and the result without improvement.
func Place(p *problem.Problem) (*Placement, *problem.Result) {
	s := newState(factsOf(p))
	s.opener.worth = s.fleet.findWorth()
	s, left := s.inOrder(s.place())
	at, r := &Placement{s: s, left: left}, &problem.Result{Left: left, Partial: s.facts.meter.CutAt() > 0,
		Memory: problem.Memory{Known: p.Settings.Memory.Known}}
	r.Bins, r.Placed = s.finish(left), s.fleet.bins.placed
	r.Why = s.explain(left, r.Partial)
	setBill(r, billOf(p, r.Bins))
	at.costs = costsOf(r.Bins, &p.Settings.Terms)
	return at, r
}

// costsOf returns what each new node costs with all that decisions count (see problem.Terms).
func costsOf(bins []problem.Bin, terms *problem.Terms) (costs []int64) {
	for i := range bins {
		costs = append(costs, terms.With(bins[i].Launch.Cost, bins[i].Launch.Base))
	}
	return costs
}

// Take completes an idea, another placement of the same pods, and makes it the result if it leaves fewer pods over, or costs less and
// leaves no more over of any class. To complete it, pods that the first placement left over may use the room that there is now, and pods
// that kube-scheduler would not bind get other places. The idea then holds the completed placement, taken or not. nil is no idea.
func (at *Placement) Take(r *problem.Result, idea *Placement) (taken bool) {
	if idea == nil {
		return false
	}
	better, left := idea.s, slices.Clone(idea.left)
	better.fleet.census.pinned = false
	better.schedule.avoidUnknown()
	if sum(left) > 0 && better.fillIn(left) {
		better.schedule.avoidUnknown()
	}
	if len(better.schedule.misplaced()) > 0 {
		better, left = better.relocate(left)
	}
	bins := better.finish(left)
	idea.s, idea.left, idea.costs = better, left, costsOf(bins, &better.facts.p.Settings.Terms)
	bill := billOf(better.facts.p, bins)
	fewer := sum(left) < sum(r.Left)
	if !fewer && (!noneMore(left, r.Left) || bill.cost >= r.Cost) {
		return false
	}
	if fewer {
		r.Why = better.explain(left, r.Partial)
	}
	r.Bins, r.Placed, r.Left = bins, better.fleet.bins.placed, left
	setBill(r, bill)
	return true
}

// Movable reports whether the new nodes may be exchanged for others: finishing dropped none of them.
func (at *Placement) Movable() bool { return !at.s.dropped }

// Arrives reports whether new nodes bring daemons that groups count. If so, where a pod may be also depends on which nodes are opened.
func (at *Placement) Arrives() bool { return at.s.facts.arrival != nil }

// Meter counts the work of the run.
func (at *Placement) Meter() *work.Meter { return at.s.facts.meter }

// Least returns, of each resource, the smallest need of any class.
func (at *Placement) Least() quantity.Vec { return at.s.facts.least }

// Twin returns an earlier template that sells the same machines (see findTwins), −1 if there is none.
func (at *Placement) Twin(t problem.TemplateID) problem.TemplateID { return at.s.facts.twin[t] }

// AnyMachine reports whether some class may use exotic and large machines, because it has no other place.
func (at *Placement) AnyMachine() bool { return at.s.ties.anyMachine.Any() }

// TooLarge returns how many steps a node with so many vCPU is too large for the pool of a template (see sizeSteps).
func (at *Placement) TooLarge(t problem.TemplateID, vcpu int64) int {
	return at.s.facts.sizeSteps(&at.s.facts.p.Templates[t], vcpu)
}

// Prices returns what a filled node of each shape costs if it is bought by one of these offers; 0 if it is not sold.
func (at *Placement) Prices(t problem.TemplateID, offers bits.Set) []int64 {
	return at.s.fleet.stock.pricesOf(t, at.s.facts.wide(offers))
}

// Lists returns the lists of instance types that launches by these offers send for pods that ask for CPU and memory only. complete reports
// whether these are all lists.
func (at *Placement) Lists(t problem.TemplateID, offers bits.Set) (lists []shape.List, complete bool) {
	return listed(at.s.fleet.stock.rowOf(t, at.s.facts.wide(offers)), &at.s.facts.p.Templates[t], &at.s.facts.p.Settings.Terms)
}

// Reach returns the domains of a key in which pods of a class could get a new node.
func (at *Placement) Reach(class problem.ClassID, key int) bits.Set {
	return at.s.ties.reachOf(class).domains[key]
}

// Ties are the groups that a class, read as one of its variants, has to do with.
type Ties struct {
	Owned, Counted []int // host-level groups: those that the pods own, and those that count the pods
	Glued          bool  // the pods have to be on one host with others
	Spread         bool  // the pods also have to do with other topology keys than the host
}

// Ties returns the groups that a variant of a class has to do with.
func (at *Placement) Ties(class problem.ClassID, variant int) Ties {
	t := at.s.ties.touchesOf(class, variant)
	return Ties{t.host.owned, t.host.counted, t.glued, len(t.keys) > 0}
}

// Pins returns, by topology key, the domains that pods are counted in, NoDomain for other keys; nil if they have to do with no key.
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

// Cost returns what some of its new nodes cost together. bins is sorted.
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

// Remains returns what a limit leaves if all new nodes but those that stay are given back. limit is an index of the pools' limits, followed
// by the quotas'.
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

// Together returns how many of n pods may be on one new node, as far as the given host-level groups go. The pods own these groups and are
// counted by them.
func (at *Placement) Together(groups []int, n int) int {
	for _, g := range groups {
		n = min(n, at.s.fleet.census.groups[g].HostRoom(int(at.s.fleet.bins.next()), true, n))
	}
	return n
}

// Open opens an empty node that is filled for a shape, and takes reservations out of its choices.
func (at *Placement) Open(t problem.TemplateID, shape int) problem.BinID {
	bin := at.s.fleet.addBin(target{tmpl: t, shape: shape})
	at.s.facts.p.Templates[t].DropReserved(at.s.fleet.bins.maskOf(bin))
	return bin
}

// Only restricts what a new node may become to some shapes, bought by some offers, so that a commitment covers it.
func (at *Placement) Only(bin problem.BinID, shapes, offers bits.Set) {
	at.s.fleet.bins.node(bin).only = shapes
	mask := at.s.fleet.bins.maskOf(bin)
	for o := range at.s.fleet.bins.template(at.s.fleet.bins.node(bin)).Catalog.Offers {
		if !offers.Has(o) {
			mask.Remove(o)
		}
	}
}

// Pin settles the open domains of a new node before its pods come. pins is by topology key, as Pins returns it.
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

// Pinned reports whether a node is in each of the domains that pins names.
func (at *Placement) Pinned(bin problem.BinID, pins []int32) bool {
	for key, d := range pins {
		if d >= 0 && at.s.fleet.bins.domainOf(key, bin) != d {
			return false
		}
	}
	return true
}

// AskDomains ends what Afresh begins: from now on spreads and affinities are asked about the domains of pods.
func (at *Placement) AskDomains() { at.s.fleet.census.pinned = false }

// Leave counts pods as left over.
func (at *Placement) Leave(p problem.Put) {
	at.left = slices.Clone(at.left)
	at.left[p.Class] += p.Count
}

// Put places pods on their bin, as many of them as the rules allow, and returns how many.
func (at *Placement) Put(p problem.Put) int {
	placed := 0
	q := at.s.ask(at.s.read(p.Class, p.Variant))
	for placed < p.Count && at.s.fleet.try(q, p.Bin).code == 0 {
		n := min(p.Count-placed, at.s.fleet.mostAtOnce(q, p.Count-placed))
		at.s.fleet.commit(q, n)
		placed += n
	}
	return placed
}

// setBill writes what the new nodes cost into a result.
func setBill(r *problem.Result, b bill) { r.Price, r.Floor, r.Cost = b.price, b.floor, b.cost }
