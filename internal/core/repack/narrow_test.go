package repack

import (
	"slices"
	"testing"

	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/quantity"
	"karpenter.sh/karpenter/internal/core/rule/limits"
	"karpenter.sh/karpenter/internal/core/rule/ports"
	"karpenter.sh/karpenter/internal/core/rule/spread"
	"karpenter.sh/karpenter/internal/core/shape"
	"karpenter.sh/karpenter/internal/core/solve"
	"karpenter.sh/karpenter/internal/kit/bug"
)

// inZones is a world of one spot type that costs 80, 100 and 100 in three zones. One class is spread over zones, but its pods do not go
// to the third, and another goes anywhere. The pool also sets a label with two values. Further types are sold in the third zone.
func inZones(further ...shape.Type) *problem.Problem {
	room := quantity.Vec{4000, 16 << 30, 1 << 40, 20}
	types := []shape.Type{{Name: "m", Labels: map[string][]string{"zone": {"a", "b", "c"}}, Alloc: room, Capacity: room, VCPU: 4}}
	for i, z := range []string{"a", "b", "c"} {
		types[0].Offers = append(types[0].Offers, shape.TypeOffer{Labels: map[string]string{"zone": z}, Kind: shape.Spot, Price: []int64{80, 100, 100}[i]})
	}
	types = append(types, further...)
	cat := shape.Build(types, func(string) int { return 0 })
	p := &problem.Problem{Resources: 4, Names: []string{"cpu", "memory", "disk", "pods"}, Tiers: 1, Ports: &ports.Table{}}
	p.Pools = []problem.Pool{{Name: "p", Limit: limits.Pool{Nodes: limits.Unlimited}}}
	p.Templates = []problem.Template{{Name: "p", Catalog: cat, Shapes: bits.Full(len(types)), Mask: bits.Full(5),
		Segments: []problem.Segment{{From: 0, To: 3}, {From: 3, To: 5}}, ShapeMask: []bits.Set{bits.Full(5)}, Room: cat.Alloc}}
	for range further {
		p.Templates[0].ShapeMask = append(p.Templates[0].ShapeMask, bits.Set{4 | 24})
	}
	p.Keys = []problem.Key{{Name: "zone", Values: []string{"a", "b", "c"},
		Tmpl: []problem.KeyOf{{Kind: problem.ByChoice, Choice: []bits.Set{{1 | 24}, {2 | 24}, {4 | 24}}}}}}
	p.Groups = []spread.Group{{Kind: spread.Spread, Key: 0, MaxSkew: 1, Universe: bits.Of(3, 0, 1)}}
	need := quantity.Vec{500, 1 << 30, 0, 1}
	p.Classes = []problem.Class{
		{Name: "web", Count: 4, Need: need, Groups: []int{0}, Terms: []int{1}, Variants: []problem.Variant{{Owns: []int{0}, Reqs: 1}}},
		{Name: "job", Count: 4, Need: need, Terms: []int{0}, Variants: []problem.Variant{{}}},
	}
	p.Labels = problem.Labels{OnNode: []bits.Set{{}, {}}, OnTemplate: [][]problem.Match{{{OK: true}}, {{OK: true, Mask: bits.Set{3 | 24}}}},
		TolNode: []bits.Set{{}}, TolTmpl: []bits.Set{bits.Full(1)}}
	p.Settings = problem.Settings{Large: 64, Terms: problem.Terms{Band: shape.Band{Types: 60, Spot: 1, Fewest: 1, Permille: 500}}}
	return p
}

// questionOfAll is the question of a bound about all pods of a problem.
func questionOfAll(p *problem.Problem) *question {
	at, _ := solve.Place(p)
	q := newQuestion(p, at)
	q.loose, q.proves = true, true
	for i := range p.Classes {
		q.add(problem.Put{Class: problem.ClassID(i), Count: p.Classes[i].Count}, 0, nil)
	}
	q.findKinds()
	return q
}

// A bound knows each way to narrow the choices of a node that makes it cheaper: one zone, and the zones that a spread knows.
func TestABoundKnowsTheWaysToNarrowChoices(t *testing.T) {
	q := questionOfAll(inZones())
	all := want{shapes: bits.Full(1), offers: bits.Full(3)}
	var got []uint64
	for _, w := range narrowsOf(q).narrowed(0, &all, narrowsOf(q).closings(0)) {
		got = append(got, w.offers[0])
	}
	slices.Sort(got)
	if want := []uint64{1, 3}; !slices.Equal(slices.Compact(got), want) { // a alone costs 80, a and b 90, all three 93, and b or c 100
		t.Errorf("the choices %b are cheaper than all, want %b", got, want)
	}
	known, _, _ := q.findWants(0)
	for _, offers := range []uint64{1, 3, 7} {
		if !slices.ContainsFunc(known, func(w want) bool { return w.offers[0] == offers }) {
			t.Errorf("no cell has the offers %b: %v", offers, known)
		}
	}
}

// Nothing is narrowed where no pod is counted by a topology key.
func TestNothingNarrowsPodsWithoutRules(t *testing.T) {
	p := inZones()
	p.Classes = p.Classes[1:]
	if got := narrowsOf(questionOfAll(p)).closings(0); len(got) > 0 {
		t.Errorf("closings: %v", got)
	}
}

// A node filter narrows to the choices and machines that pass it, and to machines that do not.
func TestNodeFiltersNarrowChoices(t *testing.T) {
	p := inZones(shape.Type{Name: "n", Labels: map[string][]string{"zone": {"c"}}, Alloc: quantity.Vec{4000, 16 << 30, 1 << 40, 20},
		Capacity: quantity.Vec{4000, 16 << 30, 1 << 40, 20}, VCPU: 4, Offers: []shape.TypeOffer{{Labels: map[string]string{"zone": "c"}, Kind: shape.Spot, Price: 70}}})
	q := questionOfAll(p)
	p.Groups[0].Filter, p.Groups[0].Key = []int{1}, spread.Host
	p.Labels.OnTemplate[1][0].Shapes = bits.Of(2, 0)
	var got [][2]uint64
	for _, w := range narrowsOf(q).closings(0) {
		got = append(got, [2]uint64{w.shapes[0], w.offers[0]})
	}
	if want := [][2]uint64{{1, 3}, {1, 7}, {2, 7}}; !slices.Equal(got, want) {
		t.Errorf("closings to shapes and offers %b, want %b", got, want)
	}
}

// Plans count a zone that has too large machines only where pods had to take one, so a bound says nothing of how many pods a zone gets.
func TestNoPodsArePinnedWhereMachinesAreTooLarge(t *testing.T) {
	for vcpu, pinned := range map[int64]bool{4: true, 128: false} {
		p := inZones(shape.Type{Name: "n", Labels: map[string][]string{"zone": {"c"}}, Alloc: quantity.Vec{8000, 16 << 30, 1 << 40, 20},
			Capacity: quantity.Vec{8000, 16 << 30, 1 << 40, 20}, VCPU: vcpu, Offers: []shape.TypeOffer{{Labels: map[string]string{"zone": "c"}, Kind: shape.Spot, Price: 70}}})
		p.Templates[0].ShapeMask[0] = bits.Set{3 | 24}
		p.Classes[0].Terms[0], p.Classes[0].Variants[0].Reqs = 0, 0
		q := questionOfAll(p)
		if _, least, _ := q.leastByDomain(&q.items[0]); (least != nil) != pinned {
			t.Errorf("%d vCPU: every plan has %v pods in the zones", vcpu, least)
		}
	}
}

// Prices of offers do not depend on the labels that a pool sets beside them.
func TestPricesOfPoolsThatSetLabels(t *testing.T) {
	at, _ := solve.Place(inZones())
	if got := at.Prices(0, bits.Of(3, 0)); !slices.Equal(got, []int64{80}) {
		t.Errorf("prices %v in the first zone", got)
	}
}

// A bound above the cost is a bug, and removed.
func TestABoundAboveTheCostIsABug(t *testing.T) {
	bug.Expect(t)
	p := inZones()
	at, r := solve.Place(p)
	before := bug.Count()
	if bound(p, at, r, 0); bug.Count() != before || r.Config == 0 {
		t.Fatalf("%d bugs, bound %d of %d", bug.Count()-before, r.Config, r.Cost)
	}
	r.Cost = 1
	if bound(p, at, r, 0); bug.Count() != before+2 || r.Volume != 0 || r.Config != 0 || r.Proof.Problem != nil {
		t.Errorf("%d bugs, bounds %d and %d", bug.Count()-before, r.Volume, r.Config)
	}
}
