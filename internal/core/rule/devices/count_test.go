package devices

import (
	"math"
	"slices"
	"testing"
)

func TestDemands(t *testing.T) {
	one := Option{Count: 2, Fits: fits(0)}
	tainted := Option{Count: 1, Fits: []Fit{{Selected: true, Within: true}, {Selected: true, Tolerated: true, Within: true}}}
	small := Option{Count: 1, Fits: []Fit{{Selected: true, Tolerated: true}, {Selected: true, Tolerated: true, Within: true}}}
	with := func(edit func(*Claim)) *Claim { c := claim(1, one); edit(c); return c }
	for name, tc := range map[string]struct {
		claims []*Claim
		want   []Demand
		no     bool
	}{
		"nothing":                         {},
		"two of a kind":                   {claims: []*Claim{claim(1, one)}, want: []Demand{{[]bool{true, false}, 2}}},
		"several claims":                  {claims: []*Claim{claim(1, one), claim(2, Option{Count: 1, Fits: fits(0, 1)})}, want: []Demand{{[]bool{true, false}, 2}, {[]bool{true, true}, 1}}},
		"taints are told apart":           {claims: []*Claim{claim(1, tainted)}, want: []Demand{{[]bool{false, true}, 1}}},
		"what is too small is none":       {claims: []*Claim{claim(1, small)}, want: []Demand{{[]bool{false, true}, 1}}},
		"alternatives":                    {claims: []*Claim{claim(1, one, one)}, no: true},
		"all there is":                    {claims: []*Claim{claim(1, Option{All: true, Fits: fits(0)})}, no: true},
		"an administrator":                {claims: []*Claim{claim(1, Option{Count: 1, Admin: true, Fits: fits(0)})}, no: true},
		"a claim of several pods":         {claims: []*Claim{with(func(c *Claim) { c.Shared = true })}, no: true},
		"one that is allocated":           {claims: []*Claim{with(func(c *Claim) { c.At = 3 })}, no: true},
		"devices that go together":        {claims: []*Claim{with(func(c *Claim) { c.Constraints = []Constraint{{}} })}, no: true},
		"a selector that fails":           {claims: []*Claim{claim(1, Option{Count: 1, Fits: []Fit{{Bad: &Refusal{}}, {}}})}, no: true},
		"one claim of which says not all": {claims: []*Claim{claim(1, one), claim(2, one, one)}, no: true},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := Demands(tc.claims)
			if ok == tc.no || !slices.EqualFunc(got, tc.want, func(a, b Demand) bool { return a.Count == b.Count && a.Same(b.Kinds) }) {
				t.Errorf("Demands = %v, %v; want %v, %v", got, ok, tc.want, !tc.no)
			}
		})
	}
}

func TestFree(t *testing.T) {
	s := New(&Inventory{Devices: []Device{{Kind: 0}, {Kind: 0}, {Kind: 1}, {Kind: 2, Multiple: true}}}, &Effort{})
	s.Use(0, nil)
	s.Use(3, nil)
	for name, tc := range map[string]struct {
		kinds []bool
		want  int64
	}{
		"one of two is in use":            {[]bool{true, false, false}, 1},
		"of two kinds":                    {[]bool{true, true, false}, 2},
		"none":                            {[]bool{false, false, false}, 0},
		"what is shared does not run out": {[]bool{false, false, true}, math.MaxInt32},
	} {
		t.Run(name, func(t *testing.T) {
			if got := s.Free(tc.kinds); got != tc.want {
				t.Errorf("Free = %d, want %d", got, tc.want)
			}
		})
	}
}
