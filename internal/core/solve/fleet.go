package solve

import (
	"iter"
	"slices"

	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/quantity"
	"karpenter.sh/karpenter/internal/core/rule/limits"
	"karpenter.sh/karpenter/internal/core/rule/ports"
	"karpenter.sh/karpenter/internal/core/rule/spread"
	"karpenter.sh/karpenter/internal/core/rule/volumes"
	"karpenter.sh/karpenter/internal/core/work"
)

// A fleet is nodes and the pods that are placed on them. It changes in few ways only: open adds a node, commit
// places pods, retarget fills a new node for another machine, and once all are placed avoid takes choices away that
// do not matter to the pods there. Nodes do not close and pods do not leave, so a refusal that is final stays true.
type fleet struct {
	*facts
	room   []int64       // [bin][resource] free beside pods and daemons; never negative on a new bin
	alive  bits.Set      // bins with room for the smallest need of anybody; closed nodes are not among them
	placed []problem.Put // on nodes that exist, in the order in which they came

	news   []newNode
	mask   []uint64 // [new bin][word] choices that are left, see Template.Mask: they only get fewer, and under them the target is sold
	domain []int32  // [new bin][key] what its label is; openDomain while choices are left and no pod has to do with the key
	bound  []bool   // [new bin][key] some pod there has to do with the key: whatever is bought must be in that domain

	inZone []int32 // [zone] nodes that exist, and new ones that are bound to it

	groups  []spread.Group // what each counts is what is placed
	ports   ports.Book
	volumes *volumes.Book
	devices *deviceBook   // nil if no pod asks for devices
	limits  []limits.Pool // what pools have left when every new bin takes what takenBy says
	left    []int         // by reservation: machines that no new bin holds
	demand  quantity.Vec  // of all pods that are not placed
	commits int           // so far: a refusal that is not final need not be asked again before there is another
	pinned  bool          // domains were decided before: spread and affinity are not asked again
	wary    bool          // daemons of a further node may not upset pods that have their place; see upsets
	prices  priceTable    // for what is left of reservations
}

// A newNode is a bin that a fleet opens.
type newNode struct {
	tmpl   problem.TemplateID
	target int // the shape that it is filled for: it holds the pods, and its pool's limits allow it
	// the reservation whose machine it has, noReservation for nearly all; with one, its offer is the only choice left
	held   int
	puts   []problem.Put     // in the order in which they came; empty only between open and the first commit
	min    *minimum          // how it meets minValues; nil for nearly all
	narrow *problem.Narrowed // for the sake of pods that are elsewhere; nil for nearly all
}

func newFleet(facts *facts) fleet {
	p := facts.p
	f := fleet{facts: facts, volumes: volumes.NewBook(p.Drivers), left: slices.Clone(p.Reservations),
		demand: make(quantity.Vec, p.Resources)}
	f.room = make([]int64, 0, p.Resources*(len(p.Nodes)+16))
	f.ports.Grow(len(p.Nodes))
	f.volumes.Expect(len(p.Nodes))
	f.alive = bits.Make(len(p.Nodes) + 64)
	for i := range p.Nodes {
		n := &p.Nodes[i]
		f.room = append(f.room, n.Room...)
		f.ports.Take(i, n.Ports)
		f.volumes.Open(n.Volumes, n.Mounted)
		if !n.Closed && f.least.Fits(n.Room) {
			f.alive.Add(i)
		}
	}
	f.devices = newDeviceBook(p)
	f.groups = make([]spread.Group, len(p.Groups))
	for i := range p.Groups {
		f.groups[i] = p.Groups[i].Clone()
	}
	f.limits = make([]limits.Pool, len(p.Pools))
	for i := range p.Pools {
		f.limits[i] = p.Pools[i].Limit.Clone()
	}
	f.inZone = countZones(p, facts.zones)
	for i := range p.Classes {
		f.demand.AddTimes(p.Classes[i].Need, p.Classes[i].Count)
	}
	return f
}

// bins returns how many nodes there are: the BinID of the next one.
func (f *fleet) bins() problem.BinID { return problem.BinID(len(f.p.Nodes) + len(f.news)) }

// node returns a new bin, nil for a node that exists.
func (f *fleet) node(bin problem.BinID) *newNode {
	if i := int(bin) - len(f.p.Nodes); i >= 0 {
		return &f.news[i]
	}
	return nil
}

// newBins yields the new bins.
func (f *fleet) newBins() iter.Seq2[problem.BinID, *newNode] {
	return func(yield func(problem.BinID, *newNode) bool) {
		for i := range f.news {
			if !yield(problem.BinID(len(f.p.Nodes)+i), &f.news[i]) {
				return
			}
		}
	}
}

// puts yields where all pods are.
func (f *fleet) puts() iter.Seq[*problem.Put] {
	return func(yield func(*problem.Put) bool) {
		for i := range f.placed {
			if !yield(&f.placed[i]) {
				return
			}
		}
		for i := range f.news {
			for j := range f.news[i].puts {
				if !yield(&f.news[i].puts[j]) {
					return
				}
			}
		}
	}
}

// template returns what a new bin is made from.
func (f *fleet) template(n *newNode) *problem.Template { return &f.p.Templates[n.tmpl] }

// roomOf returns what is free on a bin.
func (f *fleet) roomOf(bin problem.BinID) quantity.Vec {
	at, r := int(bin)*f.p.Resources, f.p.Resources
	return quantity.Vec(f.room[at : at+r : at+r])
}

// maskOf returns the choices that are left to a new bin.
func (f *fleet) maskOf(bin problem.BinID) bits.Set {
	at := (int(bin) - len(f.p.Nodes)) * f.width
	return bits.Set(f.mask[at : at+f.width : at+f.width])
}

// domainsOf returns the domains of a new bin by topology key.
func (f *fleet) domainsOf(bin problem.BinID) []int32 {
	at, n := (int(bin)-len(f.p.Nodes))*len(f.p.Keys), len(f.p.Keys)
	return f.domain[at : at+n : at+n]
}

// boundOf returns, by topology key, whether the pods of a new bin have to do with it.
func (f *fleet) boundOf(bin problem.BinID) []bool {
	at, n := (int(bin)-len(f.p.Nodes))*len(f.p.Keys), len(f.p.Keys)
	return f.bound[at : at+n : at+n]
}

// domainOf returns the bin's domain of a topology key.
func (f *fleet) domainOf(key int, bin problem.BinID) int32 {
	if int(bin) < len(f.p.Nodes) {
		return f.p.Keys[key].Node[bin]
	}
	return f.domain[(int(bin)-len(f.p.Nodes))*len(f.p.Keys)+key]
}

// open adds a bin without pods that is filled for a target.
func (f *fleet) open(to target) problem.BinID {
	bin := f.bins()
	f.news = append(f.news, newNode{tmpl: to.tmpl, target: to.shape, held: problem.NoReservation, min: to.min})
	f.opened(bin)
	return bin
}

// commit places n pods of a trial that was admitted.
func (f *fleet) commit(q *trial, n int) {
	f.meter.Charge(commitWork + work.Units(len(q.c.Groups))*groupWork)
	put := problem.Put{Class: q.class, Variant: q.variant, Bin: q.bin, Count: n}
	if node := f.node(q.bin); node == nil {
		f.placed = appendPut(f.placed, put)
	} else {
		first := len(node.puts) == 0
		node.puts = appendPut(node.puts, put)
		f.settleFilters(q)
		copy(f.maskOf(q.bin), q.mask)
		for k := range q.keys {
			key := q.keys[k].key
			f.bind(q.bin, key, q.domain[key])
		}
		if first && f.arrival != nil {
			f.arrive(f.groups, q.bin)
		}
	}
	f.take(q, n)
	f.commits++
}

func appendPut(puts []problem.Put, p problem.Put) []problem.Put {
	if n := len(puts); n > 0 && puts[n-1].Class == p.Class && puts[n-1].Variant == p.Variant && puts[n-1].Bin == p.Bin {
		puts[n-1].Count += p.Count
		return puts
	}
	return append(puts, p)
}

// retarget changes the shape that a bin is filled for, and how it meets minValues then. Its pods fit there, and are
// counted in the same domains.
func (f *fleet) retarget(bin problem.BinID, shape int, min *minimum) {
	n := f.node(bin)
	tmpl := f.template(n)
	f.limits[tmpl.Pool].Give(f.takenBy(n))
	room := f.roomOf(bin)
	room.Sub(tmpl.Room[n.target])
	room.Add(tmpl.Room[shape])
	n.target, n.min = shape, min
	f.limits[tmpl.Pool].Take(f.takenBy(n))
	f.volumes.Limit(int(bin), f.attachables(n.tmpl, shape))
	f.ports.Take(int(bin), tmpl.PortsOf(shape))
	f.retargetDevices(bin)
	for k := range f.domainsOf(bin) {
		if of := f.keyOf(k, n.tmpl).Shape; of != nil && !f.boundOf(bin)[k] {
			f.domainsOf(bin)[k] = of[shape]
		}
	}
	f.alive.Add(int(bin))
}
