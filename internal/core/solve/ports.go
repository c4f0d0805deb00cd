package solve

import (
	"slices"

	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/reason"
)

func (f *fleet) admitPorts(q *trial) verdict {
	if len(q.c.Ports) > 0 && !f.ports.Free(int(q.bin), q.c.Conflict) {
		return verdict{reason.HostPort, true}
	}
	return verdict{}
}

func (f *fleet) takePorts(q *trial) {
	if len(q.c.Ports) > 0 {
		f.ports.Take(int(q.bin), q.c.Ports)
	}
}

// openPorts marks the host ports of the target's daemons as taken on a new bin.
func (f *fleet) openPorts(bin problem.BinID) {
	f.ports.Grow(int(f.bins.next()))
	n := f.bins.node(bin)
	f.ports.Take(int(bin), f.bins.template(n).PortsOf(n.target))
}

func fitsPorts(c *problem.Class, t *problem.Template, shape int) bool {
	return len(c.Ports) == 0 || !slices.ContainsFunc(t.PortsOf(shape), c.Conflict.Has)
}

func (f *fleet) cutPorts(bin problem.BinID, shapes bits.Set) {
	n := f.bins.node(bin)
	for _, put := range n.puts {
		if c := &f.facts.p.Classes[put.Class]; len(c.Ports) > 0 {
			shapes.Only(func(sh int) bool { return fitsPorts(c, f.bins.template(n), sh) })
		}
	}
}
