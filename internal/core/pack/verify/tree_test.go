package verify

import (
	"testing"

	"karpenter.sh/karpenter/internal/core/bits"
)

// Five items of one unit: a node of three costs 10, one of six 19. The configuration LP buys five sixths of the large one for 15.8; whole
// nodes cost 19 or 20.
func fiveItems() (*Problem, Certificate) {
	p := &Problem{
		Classes: []Class{{Need: []int64{1}, Count: 5}},
		Cells:   []Cell{{Room: []int64{3}, Price: 10_000}, {Room: []int64{6}, Price: 19_000}},
	}
	// With at most 0 large nodes an item is worth a third of the small one, and with at most one node in all that is not enough.
	return p, Certificate{Bound: 19_000, Worth: []int64{0}, Trees: []Tree{{Classes: [][]int{{0}}, Branches: []Branch{
		{Less: 1, More: 2, Rule: Rule{Price: 19_000, Class: -1, Most: 0}},
		{Less: 3, More: 4, Rule: Rule{Price: 10_000, Class: -1, Most: 1}},
		{Worth: []int64{0}, Toll: []int64{19_000}},
		{Worth: []int64{19_000}, Toll: []int64{95_000, 47_000}},
		{Worth: []int64{0}, Toll: []int64{0, 10_000}},
	}}}}
}

func TestATreeProvesWhatIsWhole(t *testing.T) {
	p, c := fiveItems()
	if err := Verify(p, c); err != nil {
		t.Error(err)
	}
}

func TestATreeThatProvesNothingIsRefused(t *testing.T) {
	for name, spoil := range map[string]func(p *Problem, c *Certificate){
		"a bound that is too high":                func(_ *Problem, c *Certificate) { c.Bound++ },
		"worths that are too high":                func(_ *Problem, c *Certificate) { c.Trees[0].Branches[3].Worth[0] += 1_000 },
		"a reward that is too high":               func(_ *Problem, c *Certificate) { c.Trees[0].Branches[2].Toll[0]++ },
		"a tax that is too low":                   func(_ *Problem, c *Certificate) { c.Trees[0].Branches[3].Toll[1] -= 1_000 },
		"a tax below nothing":                     func(_ *Problem, c *Certificate) { c.Trees[0].Branches[2].Toll[0] = -1 },
		"a rule about more nodes than there are":  func(_ *Problem, c *Certificate) { c.Trees[0].Branches[1].Rule.Most = 2 },
		"a branch that is missing":                func(_ *Problem, c *Certificate) { c.Trees[0].Branches[0].More = 9 },
		"a branch that is its own":                func(_ *Problem, c *Certificate) { c.Trees[0].Branches[1].Less = 1 },
		"a branch that is left out":               func(_ *Problem, c *Certificate) { c.Trees[0].Branches[0].More = 0 },
		"a leaf of another tree":                  func(_ *Problem, c *Certificate) { c.Trees[0].Branches[2].Toll = nil },
		"a class that there is not":               func(_ *Problem, c *Certificate) { c.Trees[0].Classes[0][0] = 1 },
		"a class twice":                           func(_ *Problem, c *Certificate) { c.Trees[0].Classes[0] = []int{0, 0} },
		"the same tree twice":                     func(_ *Problem, c *Certificate) { c.Trees = append(c.Trees, c.Trees[0]); c.Bound *= 2 },
		"a cheaper cell":                          func(p *Problem, _ *Certificate) { p.Cells = append(p.Cells, Cell{Room: []int64{5}, Price: 18_000}) },
		"a cell that classes outside may use too": func(p *Problem, c *Certificate) { p.Classes = append(p.Classes, p.Classes[0]); c.Worth = []int64{0, 0} },
	} {
		t.Run(name, func(t *testing.T) {
			p, c := fiveItems()
			spoil(p, &c)
			if Verify(p, c) == nil {
				t.Error("it is accepted")
			}
		})
	}
}

// twoPlaces are two items in a place of their own each, and a tree that asks first whether the first place has a node.
func twoPlaces() (*Problem, Certificate) {
	in := func(cell int) bits.Set {
		s := bits.Make(2)
		s.Add(cell)
		return s
	}
	p := &Problem{
		Classes: []Class{{Need: []int64{1}, Count: 1, Cells: in(0)}, {Need: []int64{1}, Count: 1, Cells: in(1)}},
		Cells:   []Cell{{Room: []int64{3}, Price: 10_000}, {Room: []int64{3}, Price: 10_000}},
	}
	return p, Certificate{Bound: 20_000, Worth: []int64{0, 0}, Trees: []Tree{{Classes: [][]int{{0}, {1}}, Branches: []Branch{
		{Less: 1, More: 2, Rule: Rule{Price: 10_000, Class: 0, Most: 0}},
		{Worth: []int64{20_000, 10_000}, Toll: []int64{10_000}},
		{Worth: []int64{0, 10_000}, Toll: []int64{10_000}},
	}}}}
}

// A rule about the nodes of some cells taxes and rewards those and no others.
func TestARuleMayBeAboutAPlace(t *testing.T) {
	p, c := twoPlaces()
	if err := Verify(p, c); err != nil {
		t.Error(err)
	}
	for name, spoil := range map[string]func(c *Certificate){
		"a tax on another place":        func(c *Certificate) { c.Trees[0].Branches[1].Worth[1]++ },
		"a reward for another place":    func(c *Certificate) { c.Trees[0].Branches[0].Rule.Class = 1 },
		"a number of items below none":  func(c *Certificate) { c.Trees[0].Branches[0].Rule.Least = -1 },
		"a reward for any node instead": func(c *Certificate) { c.Trees[0].Branches[0].Rule.Class = -1 },
	} {
		p, c := twoPlaces()
		if spoil(&c); Verify(p, c) == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

// What a rule about contents rewards is seen by the search of a node: two items of one class together are worth more than they are alone.
func TestStepsCountFromTheirNumberOn(t *testing.T) {
	v := newProver(1, []int64{2, 3}, []int64{10, 12}, []int{3, 3}, nil)
	v.steps = [][]step{{{2, 5}, {3, -100}}, {{1, -1}}}
	for _, tc := range []struct {
		room, want int64
		forced     int
	}{
		{4, 25, -1}, {6, 25, -1}, {7, 36, -1}, {3, 11, -1}, {3, 11, 1}, {4, 25, 0}, {2, 0, 1},
	} {
		if got := v.upperBound([]int64{tc.room}, []int{0, 1}, 0, tc.forced, 1000); got != tc.want {
			t.Errorf("room %d with class %d: %d, want %d", tc.room, tc.forced, got, tc.want)
		}
	}
}

// Where a branch cannot be kept to, tolls are a thousand times the price of a node. They must not turn round.
func TestTollsBeyondAllPricesDoNotOverflow(t *testing.T) {
	v := newProver(1, []int64{1}, []int64{9_000_000}, []int{2}, nil)
	v.steps = [][]step{{{1, -35_000_000_000}}}
	if got := v.upperBound([]int64{2}, []int{0}, 0, -1, 1000); got != 0 {
		t.Errorf("at most %d, want 0", got)
	}
}
