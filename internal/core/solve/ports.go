package solve

import (
	"slices"

	"karpenter.sh/karpenter/internal/core/bits"
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

// openPorts gives the daemons of the target their ports.
func (f *fleet) openPorts(bin BinID) {
	f.ports.Grow(int(f.bins()))
	n := f.node(bin)
	f.ports.Take(int(bin), f.template(n).portsOf(n.target))
}

// portsOf are the ports that daemons take on a shape.
func (t *Template) portsOf(shape int) []int {
	if len(t.Daemons) == 0 {
		return nil
	}
	return t.Daemons[t.DaemonOf[shape]].Ports
}

func fitsPorts(c *Class, t *Template, shape int) bool {
	return len(c.Ports) == 0 || !slices.ContainsFunc(t.portsOf(shape), c.Conflict.Has)
}

func (f *fleet) cutPorts(bin BinID, shapes bits.Set) {
	n := f.node(bin)
	for _, put := range n.puts {
		if c := &f.p.Classes[put.Class]; len(c.Ports) > 0 {
			shapes.Only(func(sh int) bool { return fitsPorts(c, f.template(n), sh) })
		}
	}
}
