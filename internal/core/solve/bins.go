package solve

import (
	"iter"

	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/quantity"
)

// Bins are the nodes of a fleet, existing ones before new ones: what is free on each, what each new one may still become, and which pods
// are there. The flat slices are indexed by bin and then by what the second pair of brackets names; new bins count from 0 there.
type bins struct {
	facts  *facts
	room   []int64       // [bin][resource] free beside pods and daemons; never negative on a new bin
	alive  bits.Set      // bins with room for the smallest need of any class; closed nodes are not among them
	placed []problem.Put // on existing nodes, in the order in which they came

	news   []newNode
	mask   []uint64 // [new bin][word] choices that are left, see Template.Mask: they only get fewer, and under them the target is sold
	domain []int32  // [new bin][key] what its label is; OpenDomain while choices are left and no pod has to do with the key
	bound  []bool   // [new bin][key] some pod there has to do with the key: any machine that is bought must be in that domain

	inZone []int32      // [zone] existing nodes, and new ones that are bound to it
	demand quantity.Vec // of all pods that are not placed
}

// A newNode is a bin that a fleet opens.
type newNode struct {
	tmpl   problem.TemplateID
	target int // the shape that it is filled for: it holds the pods, and its pool's limits allow it
	// the reservation whose machine it has, NoReservation for nearly all; with one, its offer is the only choice left
	held   int
	only   bits.Set          // the shapes that it may become, so that a commitment covers it; nil: any
	puts   []problem.Put     // in the order in which they came; empty only between addBin and the first commit
	min    *minimum          // how it meets minValues; nil if its pool has none
	narrow *problem.Narrowed // how its choices were narrowed for pods on other nodes; nil for nearly all
}

// binsOf returns the existing nodes of a problem without any of its pods.
func binsOf(facts *facts) *bins {
	p := facts.p
	b := &bins{facts: facts, room: make([]int64, 0, p.Resources*(len(p.Nodes)+16)), alive: bits.Make(len(p.Nodes) + 64),
		inZone: nodesByZone(p, facts.zoneKey), demand: make(quantity.Vec, p.Resources)}
	for i := range p.Nodes {
		n := &p.Nodes[i]
		b.room = append(b.room, n.Room...)
		if !n.Closed && facts.least.Fits(n.Room) {
			b.alive.Add(i)
		}
	}
	for i := range p.Classes {
		b.demand.AddTimes(p.Classes[i].Need, p.Classes[i].Count)
	}
	return b
}

// next returns the BinID that the next new bin will get. It is also the number of bins.
func (b *bins) next() problem.BinID { return problem.BinID(len(b.facts.p.Nodes) + len(b.news)) }

// node returns the data of a new bin; nil for an existing node.
func (b *bins) node(bin problem.BinID) *newNode {
	if i := int(bin) - len(b.facts.p.Nodes); i >= 0 {
		return &b.news[i]
	}
	return nil
}

// newBins yields the new bins.
func (b *bins) newBins() iter.Seq2[problem.BinID, *newNode] {
	return func(yield func(problem.BinID, *newNode) bool) {
		for i := range b.news {
			if !yield(problem.BinID(len(b.facts.p.Nodes)+i), &b.news[i]) {
				return
			}
		}
	}
}

// puts yields all placements of pods: those on existing nodes first, then those on new bins.
func (b *bins) puts() iter.Seq[*problem.Put] {
	return func(yield func(*problem.Put) bool) {
		for i := range b.placed {
			if !yield(&b.placed[i]) {
				return
			}
		}
		for i := range b.news {
			for j := range b.news[i].puts {
				if !yield(&b.news[i].puts[j]) {
					return
				}
			}
		}
	}
}

// template returns what a new bin is made from.
func (b *bins) template(n *newNode) *problem.Template { return &b.facts.p.Templates[n.tmpl] }

// roomOf returns what is free on a bin. The result of this and the next three functions is not a copy: callers change the bin by it.
func (b *bins) roomOf(bin problem.BinID) quantity.Vec {
	at, r := int(bin)*b.facts.p.Resources, b.facts.p.Resources
	return quantity.Vec(b.room[at : at+r : at+r])
}

// maskOf returns the choices that are left to a new bin.
func (b *bins) maskOf(bin problem.BinID) bits.Set {
	at := (int(bin) - len(b.facts.p.Nodes)) * b.facts.width
	return bits.Set(b.mask[at : at+b.facts.width : at+b.facts.width])
}

// domainsOf returns the domains of a new bin by topology key.
func (b *bins) domainsOf(bin problem.BinID) []int32 {
	at, n := (int(bin)-len(b.facts.p.Nodes))*len(b.facts.p.Keys), len(b.facts.p.Keys)
	return b.domain[at : at+n : at+n]
}

// boundOf returns, by topology key, whether the pods of a new bin have to do with it.
func (b *bins) boundOf(bin problem.BinID) []bool {
	at, n := (int(bin)-len(b.facts.p.Nodes))*len(b.facts.p.Keys), len(b.facts.p.Keys)
	return b.bound[at : at+n : at+n]
}

// domainOf returns the bin's domain of a topology key.
func (b *bins) domainOf(key int, bin problem.BinID) int32 {
	if int(bin) < len(b.facts.p.Nodes) {
		return b.facts.p.Keys[key].Node[bin]
	}
	return b.domain[(int(bin)-len(b.facts.p.Nodes))*len(b.facts.p.Keys)+key]
}
