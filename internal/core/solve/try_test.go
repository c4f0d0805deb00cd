package solve

import (
	"testing"

	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/quantity"
	"karpenter.sh/karpenter/internal/core/rule/limits"
	"karpenter.sh/karpenter/internal/core/rule/ports"
	"karpenter.sh/karpenter/internal/core/rule/spread"
	"karpenter.sh/karpenter/internal/core/shape"
)

// ThreeZones is a problem of one template with three zones, and pods that are spread over them and kept apart by host.
func ThreeZones(pods int) *problem.Problem {
	types := []shape.Type{{Name: "m", Labels: map[string][]string{"zone": {"a", "b", "c"}}, Alloc: quantity.Vec{4000, 16 << 30, 1 << 40, 20}, Capacity: quantity.Vec{4000, 16 << 30, 1 << 40, 20}, VCPU: 4}}
	for _, z := range []string{"a", "b", "c"} {
		types[0].Offers = append(types[0].Offers, shape.TypeOffer{Labels: map[string]string{"zone": z}, Kind: shape.OnDemand, Price: 100})
	}
	cat := shape.Build(types, func(string) int { return 0 })
	p := &problem.Problem{Resources: 4, Names: []string{"cpu", "memory", "disk", "pods"}, Tiers: 1, Ports: &ports.Table{}}
	p.Pools = []problem.Pool{{Name: "p", Limit: limits.Pool{Nodes: limits.Unlimited}}}
	p.Templates = []problem.Template{{Name: "p", Catalog: cat, Shapes: bits.Full(1), Mask: bits.Full(3), Segments: []problem.Segment{{From: 0, To: 3}}, ShapeMask: []bits.Set{bits.Full(3)}, Room: cat.Alloc}}
	key := problem.Key{Name: "zone", Values: []string{"a", "b", "c"}, Tmpl: []problem.KeyOf{{Kind: problem.ByChoice, Choice: []bits.Set{{1}, {2}, {4}}}}}
	p.Keys = []problem.Key{key}
	p.Groups = []spread.Group{{Kind: spread.Spread, Key: 0, MaxSkew: 1, Universe: bits.Full(3)}, {Kind: spread.Anti, Key: spread.Host, Required: true}}
	p.Classes = []problem.Class{{Name: "web", Count: pods, Need: quantity.Vec{500, 1 << 30, 0, 1}, Groups: []int{0, 1}, Variants: []problem.Variant{{Owns: []int{0, 1}}}}}
	p.Labels = problem.Labels{OnNode: []bits.Set{{}}, OnTemplate: [][]problem.Match{{{OK: true}}}, TolNode: []bits.Set{{}}, TolTmpl: []bits.Set{bits.Full(1)}}
	p.Settings = problem.Settings{Large: 64, Terms: problem.Terms{Band: shape.DefaultBand}}
	return p
}

func TestTryAllocatesNothing(t *testing.T) {
	p := ThreeZones(30)
	s := newState(factsOf(p))
	s.opener.worth = s.fleet.findWorth()
	s.place()
	trial := func() {
		q := s.ask(s.read(0, 0))
		for bin := range s.fleet.bins.next() {
			s.fleet.try(q, bin)
		}
	}
	if n := testing.AllocsPerRun(100, trial); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if s.fleet.bins.next() != 30 {
		t.Errorf("%d bins for 30 pods that keep apart", s.fleet.bins.next())
	}
}

func BenchmarkTry(b *testing.B) {
	p := ThreeZones(30)
	s := newState(factsOf(p))
	s.opener.worth = s.fleet.findWorth()
	s.place()
	q := s.ask(s.read(0, 0))
	b.ReportAllocs()
	for b.Loop() {
		s.fleet.try(q, 7)
	}
}
