package repack

import (
	"testing"

	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/pack"
	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/rule/spread"
	"karpenter.sh/karpenter/internal/core/work"
)

// assignmentOf returns an assignment with sizes of these needs, each with one part, and with one cell that all may use.
func assignmentOf(groups []spread.Group, needs ...int64) (a *assignment, parts []*part) {
	a = &assignment{q: &question{p: &problem.Problem{Groups: groups}}, meter: work.NewMeter(0, nil), waiting: make([]int, len(groups))}
	for i, n := range needs {
		cells := bits.Make(1)
		cells.Add(0)
		a.q.problem.Classes = append(a.q.problem.Classes, pack.Class{Need: []int64{n}, Cells: cells})
		a.q.p.Classes = append(a.q.p.Classes, problem.Class{})
		p := &part{item: item{class: problem.ClassID(i)}, size: i}
		parts = append(parts, p)
		a.sizes = append(a.sizes, size{parts: []*part{p}})
	}
	return a, parts
}

func TestPodsJoinANodeInAnyOrder(t *testing.T) {
	const groupSpread, groupAnti = 0, 1
	groups := []spread.Group{{Kind: spread.Spread, Key: spread.Host, MaxSkew: 1}, {Kind: spread.Anti, Key: spread.Host, Required: true}}
	type tied struct{ owned, counted []int }
	spreads, anti := []int{groupSpread}, []int{groupAnti}
	for name, tc := range map[string]struct {
		here []tied
		more tied
		want bool
	}{
		"pods that no rule is about":                        {[]tied{{}}, tied{}, true},
		"two that a spread counts, and no owner":            {[]tied{{nil, spreads}}, tied{nil, spreads}, true},
		"a spread of one that counts itself, and a second":  {[]tied{{spreads, spreads}}, tied{spreads, spreads}, false},
		"an owner that does not count itself, and one":      {[]tied{{spreads, nil}}, tied{nil, spreads}, true},
		"an owner that does not count itself, and two":      {[]tied{{spreads, nil}, {nil, spreads}}, tied{nil, spreads}, false},
		"two that are counted, and then an owner":           {[]tied{{nil, spreads}, {nil, spreads}}, tied{spreads, nil}, false},
		"owners that keep apart from each other":            {[]tied{{anti, anti}}, tied{anti, anti}, false},
		"an owner that is not of those it keeps away":       {[]tied{{anti, nil}}, tied{nil, anti}, false},
		"owners that keep others away, but not each other":  {[]tied{{anti, nil}}, tied{anti, nil}, true},
		"an owner beside a pod that its rule does not mind": {[]tied{{anti, anti}}, tied{}, true},
	} {
		a, parts := assignmentOf(groups, make([]int64, len(tc.here)+1)...)
		s := &seating{a: a, room: []int64{0}}
		for i, x := range tc.here {
			parts[i].owned, parts[i].counted = x.owned, x.counted
			s.add(parts[i])
		}
		last := parts[len(tc.here)]
		last.owned, last.counted = tc.more.owned, tc.more.counted
		if got := s.admits(last); got != tc.want {
			t.Errorf("%s: admitted %v", name, got)
		}
	}
}

// TestPodsChangePlaces has two nodes: on the first a pod that keeps apart from others of its kind, on the second, which is full, a neutral
// one. Another pod that keeps apart gets the place of the neutral one, which moves to the first node.
func TestPodsChangePlaces(t *testing.T) {
	groups := []spread.Group{{Kind: spread.Anti, Key: spread.Host, Required: true}}
	a, parts := assignmentOf(groups, 2, 2, 3)
	first, second, neutral := parts[0], parts[1], parts[2]
	for _, p := range []*part{first, second} {
		p.owned, p.counted = []int{0}, []int{0}
	}
	for _, p := range parts {
		p.left = 1
	}
	nodes := []*seating{{a: a, room: []int64{5}}, {a: a, room: []int64{3}}}
	nodes[0].add(first)
	nodes[1].add(neutral)
	if !a.makePlace(nodes, second) || second.left != 0 || neutral.left != 0 {
		t.Fatalf("left are %d of the second and %d of the neutral pod", second.left, neutral.left)
	}
	if len(nodes[0].pods) != 2 || nodes[0].pods[1] != neutral || len(nodes[1].pods) != 1 || nodes[1].pods[0] != second {
		t.Errorf("%d and %d pods on the nodes", len(nodes[0].pods), len(nodes[1].pods))
	}
	if nodes[0].room[0] != 0 || nodes[1].room[0] != 1 {
		t.Errorf("room %d and %d, want 0 and 1", nodes[0].room[0], nodes[1].room[0])
	}
	fourth := *second
	fourth.left = 1
	if a.makePlace(nodes, &fourth) || fourth.left != 1 || len(nodes[0].pods) != 2 || nodes[0].room[0] != 0 {
		t.Error("a third pod that keeps apart got a place, or the nodes changed")
	}
}

// TestACapIsKeptWhenPodsChangePlaces: one node holds at most so many pods of a size as the packer was told.
func TestACapIsKeptWhenPodsChangePlaces(t *testing.T) {
	a, parts := assignmentOf(nil, 1)
	a.q.problem.Classes[0].PerNode = 1
	s := &seating{a: a, room: []int64{2}}
	if !s.holds(parts[0]) {
		t.Fatal("the first has no place")
	}
	if s.add(parts[0]); s.holds(parts[0]) {
		t.Error("a second has a place")
	}
}

// TestPodsOfANodeAreInTheOrderOfTheQueue: kube-scheduler binds them so.
func TestPodsOfANodeAreInTheOrderOfTheQueue(t *testing.T) {
	a, parts := assignmentOf(nil, 1, 1, 1)
	a.q.p.Queue = []int32{2, 0, 2, 1}
	a.q.problem.Cells = []pack.Cell{{Room: []int64{4}}}
	for i, n := range []int{1, 1, 2} {
		parts[i].left = n
	}
	nodes := a.seat([]pack.Pattern{{Cell: 0, Nodes: 1, Items: []pack.Item{{Class: 0, Count: 1}, {Class: 1, Count: 1}, {Class: 2, Count: 2}}}})
	var got []problem.ClassID
	for _, p := range nodes[0].pods {
		got = append(got, p.class)
	}
	if len(got) != 4 || got[0] != 2 || got[1] != 2 || got[2] != 0 || got[3] != 1 {
		t.Errorf("the order is %v", got)
	}
}
