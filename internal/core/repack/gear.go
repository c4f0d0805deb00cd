package repack

import (
	"slices"

	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/rule/devices"
)

// mostGear is how many sets of kinds of devices are counted.
const mostGear = 8

// A gear describes devices to the packer: each set of kinds that a pod asks for is one more dimension, of which a pod needs as many as it
// needs of that set or of some within it. No node holds more than that; whether it holds as much the rules say when it is filled.
type gear struct {
	sets  [][]bool
	needs [][]int64 // by class; nil where numbers do not say all
}

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

// add makes sets of what is asked for, unless they get too many.
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

// counts reports whether numbers say all about what a class asks of devices.
func (g *gear) counts(class problem.ClassID) bool { return g.needs == nil || g.needs[class] != nil }

// need appends what a class needs.
func (g *gear) need(to []int64, class problem.ClassID) []int64 {
	if g.counts(class) && g.needs != nil {
		return append(to, g.needs[class]...)
	}
	return append(to, make([]int64, len(g.sets))...)
}

// room appends what a shape of a template has.
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
