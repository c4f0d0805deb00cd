package solve

import (
	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/rule/ports"
	"karpenter.sh/karpenter/internal/core/rule/volumes"
	"karpenter.sh/karpenter/internal/core/work"
)

// A fleet is nodes and the pods that are placed on them. It changes in few ways only: addBin adds a node, commit places pods, retarget
// gives a new node another target, and avoidUnknown takes away choices that do not matter to the pods there. Nodes do not close and pods
// do not leave, so a refusal that is final stays true.
type fleet struct {
	facts   *facts
	bins    *bins
	census  *census
	stock   *stock
	ports   ports.Book
	volumes *volumes.Book
	devices *deviceBook // nil if no pod asks for devices
	commits int         // so far. As long as it stays the same, refusals that are not final stay true, too
}

// newFleet returns the existing nodes with what is taken on them: ports, volumes, devices, and the counts of groups.
func newFleet(facts *facts) *fleet {
	p := facts.p
	bins := binsOf(facts)
	f := &fleet{facts: facts, bins: bins, census: newCensus(facts, bins), stock: newStock(facts, bins),
		volumes: volumes.NewBook(p.Drivers), devices: newDeviceBook(p)}
	f.ports.Grow(len(p.Nodes))
	f.volumes.Expect(len(p.Nodes))
	for i := range p.Nodes {
		f.ports.Take(i, p.Nodes[i].Ports)
		f.volumes.Open(p.Nodes[i].Volumes, p.Nodes[i].Mounted)
	}
	return f
}

// addBin adds a bin without pods that is filled for a target.
func (f *fleet) addBin(to target) problem.BinID {
	bin := f.bins.next()
	f.bins.news = append(f.bins.news, newNode{tmpl: to.tmpl, target: to.shape, held: problem.NoReservation, min: to.min})
	f.open(bin)
	return bin
}

// commit places n pods of a trial that was admitted. On a new bin the trial's choices and domains become those of the bin. With the first
// pod come the bin's DaemonSet pods, if groups count them.
func (f *fleet) commit(q *trial, n int) {
	f.facts.meter.Charge(commitWork + work.Units(len(q.c.Groups))*groupWork)
	put := problem.Put{Class: q.class, Variant: q.variant, Bin: q.bin, Count: n}
	if node := f.bins.node(q.bin); node == nil {
		f.bins.placed = appendPut(f.bins.placed, put)
	} else {
		first := len(node.puts) == 0
		node.puts = appendPut(node.puts, put)
		f.settleFilters(q)
		copy(f.bins.maskOf(q.bin), q.mask)
		for k := range q.keys {
			key := q.keys[k].key
			f.bins.bind(q.bin, key, q.domain[key])
		}
		if first && f.facts.arrival != nil {
			f.census.arrive(f.census.groups, q.bin)
		}
	}
	f.take(q, n)
	f.commits++
}

// appendPut appends p, or adds its pods to the last entry if that has the same class, variant and bin.
func appendPut(puts []problem.Put, p problem.Put) []problem.Put {
	if n := len(puts); n > 0 && puts[n-1].Class == p.Class && puts[n-1].Variant == p.Variant && puts[n-1].Bin == p.Bin {
		puts[n-1].Count += p.Count
		return puts
	}
	return append(puts, p)
}

// retarget gives a new bin another target, and how it meets minValues then. The caller has made sure that the pods fit there and are
// counted in the same domains. Room, limits, volumes, ports, devices and open domains follow.
func (f *fleet) retarget(bin problem.BinID, shape int, min *minimum) {
	n := f.bins.node(bin)
	tmpl := f.bins.template(n)
	f.stock.limits.give(n)
	room := f.bins.roomOf(bin)
	room.Sub(tmpl.Room[n.target])
	room.Add(tmpl.Room[shape])
	n.target, n.min = shape, min
	f.stock.limits.take(n)
	f.volumes.Limit(int(bin), f.facts.attachables(n.tmpl, shape))
	f.ports.Take(int(bin), tmpl.PortsOf(shape))
	f.retargetDevices(bin)
	for k := range f.bins.domainsOf(bin) {
		if of := f.facts.keyOf(k, n.tmpl).Shape; of != nil && !f.bins.boundOf(bin)[k] {
			f.bins.domainsOf(bin)[k] = of[shape]
		}
	}
	f.bins.alive.Add(int(bin))
}
