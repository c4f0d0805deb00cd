package repack

import (
	"slices"

	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/rule/devices"
)

// mostGear is the most sets of kinds of devices that are counted.
const mostGear = 8

// A gear describes devices to the packer. Each set of kinds of devices that a pod asks for is one more dimension. In it a pod needs as many
// devices as it needs of this set or of a set within it. These numbers are a necessary condition only: the rules check the devices
// themselves when a node is filled.
type gear struct {
	sets  [][]bool  // by kind of device: it belongs to the set
	needs [][]int64 // by class and set; nil for a class whose demand numbers do not express
}

// gearOf returns the sets and needs of all classes; nothing if the problem has no devices.
func gearOf(p *problem.Problem) gear {
	var g gear
	if p.Devices == nil {
		return g
	}
	g.needs = make([][]int64, len(p.Classes))
	demands := make([][]devices.Demand, len(p.Classes))
	for i := range p.Classes {
		if list, ok := devices.Demands(p.Classes[i].Devices); ok && g.add(list) {
			demands[i] = list
			g.needs[i] = []int64{}
		}
	}
	for i := range g.needs {
		if g.needs[i] != nil {
			g.needs[i] = g.needOf(demands[i])
		}
	}
	return g
}

// add adds the sets of some demands. It returns false, and adds none, if there would be more than mostGear.
func (g *gear) add(list []devices.Demand) bool {
	before := len(g.sets)
	for i := range list {
		if !slices.ContainsFunc(g.sets, list[i].Same) {
			g.sets = append(g.sets, list[i].Kinds)
		}
	}
	if len(g.sets) > mostGear {
		g.sets = g.sets[:before]
		return false
	}
	return true
}

// needOf returns, by set, how many devices of it some demands need.
func (g *gear) needOf(list []devices.Demand) []int64 {
	out := make([]int64, len(g.sets))
	for s, kinds := range g.sets {
		for i := range list {
			if list[i].Within(kinds) {
				out[s] += list[i].Count
			}
		}
	}
	return out
}

// counts reports whether numbers express what a class asks of devices.
func (g *gear) counts(class problem.ClassID) bool { return g.needs == nil || g.needs[class] != nil }

// need appends to a vector what a class needs of each set; 0 if numbers do not express it.
func (g *gear) need(to []int64, class problem.ClassID) []int64 {
	if g.counts(class) && g.needs != nil {
		return append(to, g.needs[class]...)
	}
	return append(to, make([]int64, len(g.sets))...)
}

// room appends to a vector how many free devices of each set a shape of a template has.
func (g *gear) room(to []int64, t *problem.Template, shape int) []int64 {
	for _, kinds := range g.sets {
		n := int64(0)
		if t.Devices != nil && t.Devices[shape] != nil {
			n = t.Devices[shape].Free(kinds)
		}
		to = append(to, n)
	}
	return to
}
