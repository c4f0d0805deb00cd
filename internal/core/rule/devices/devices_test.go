package devices

import (
	"slices"
	"testing"
)

// two kinds: one of each option may be told apart.
func fits(kinds ...int) []Fit {
	out := make([]Fit, 2)
	for i := range out {
		out[i] = Fit{Selected: slices.Contains(kinds, i), Tolerated: true, Within: true, Takes: []int64{4}}
	}
	return out
}

func claim(id int, options ...Option) *Claim {
	return &Claim{ID: id, Name: "c", At: Nowhere, Requests: []Request{{Name: "r", Options: options}}}
}

// TestWith asks for one claim after the other, and counts how many are served.
func TestWith(t *testing.T) {
	pair := []Device{{Kind: 0}, {Kind: 0}, {Kind: 1}}
	parts := []Device{{Kind: 0, Draws: []Draw{{0, 2}}}, {Kind: 0, Draws: []Draw{{0, 2}}}, {Kind: 0, Draws: []Draw{{0, 1}}}}
	one := Option{Count: 1, Fits: fits(0)}
	never := Constraint{Values: []int32{-1, -1}, On: [][]bool{{true}}}
	for name, tc := range map[string]struct {
		inv   Inventory
		claim *Claim
		want  int
		why   Why
	}{
		"one device a time":                     {Inventory{Devices: pair}, claim(1, one), 2, TooFew},
		"two at once":                           {Inventory{Devices: pair}, claim(1, Option{Count: 2, Fits: fits(0)}), 1, TooFew},
		"any of both kinds":                     {Inventory{Devices: pair}, claim(1, Option{Count: 1, Fits: fits(0, 1)}), 3, TooFew},
		"all that fit":                          {Inventory{Devices: pair}, claim(1, Option{All: true, Fits: fits(0, 1)}), 1, TooFew},
		"all of nothing":                        {Inventory{}, claim(1, Option{All: true, Fits: fits(0)}), 0, TooFew},
		"all where some may be missing":         {Inventory{Devices: pair, Unsure: true}, claim(1, Option{All: true, Fits: fits(0)}), 0, TooFew},
		"some where others may be missing":      {Inventory{Devices: pair, Unsure: true}, claim(1, one), 2, TooFew},
		"the second alternative":                {Inventory{Devices: pair}, claim(1, Option{Count: 2, Fits: fits(1)}, one), 2, TooFew},
		"partitions of one chip":                {Inventory{Devices: parts, Counters: []int64{3}}, claim(1, one), 2, TooFew},
		"partitions of a smaller chip":          {Inventory{Devices: parts, Counters: []int64{1}}, claim(1, one), 1, TooFew},
		"shares of a capacity":                  {Inventory{Devices: []Device{{Kind: 0, Multiple: true, Capacity: []int64{10}}}}, claim(1, one), 2, TooFew},
		"a taint":                               {Inventory{Devices: pair}, claim(1, Option{Count: 1, Fits: []Fit{{Selected: true, Within: true}, {}}}), 0, TooFew},
		"an attribute that nobody has":          {Inventory{Devices: pair}, &Claim{At: Nowhere, Requests: []Request{{Options: []Option{one}}}, Constraints: []Constraint{never}}, 0, TooFew},
		"a selector that fails":                 {Inventory{Devices: pair}, claim(1, Option{Count: 1, Fits: []Fit{{Bad: &Refusal{Why: Invalid}}, {Selected: true, Within: true, Tolerated: true}}}), 0, Invalid},
		"what nobody knows about the allocator": {Inventory{Devices: []Device{{Mixed: true}}}, claim(1, one), 0, TooHard},
		"more than a claim may have":            {Inventory{Devices: make([]Device, 40)}, claim(1, Option{Count: 33, Fits: fits(0)}), 0, TooFew},
		"as many as a claim may have":           {Inventory{Devices: make([]Device, 40)}, claim(1, Option{Count: 32, Fits: fits(0)}), 1, TooFew},
	} {
		t.Run(name, func(t *testing.T) {
			s, effort, n := New(&tc.inv, &Effort{}), 0, 0
			for ; n < 10; n++ {
				next, no := s.With([]*Claim{tc.claim})
				if no != nil {
					if no.Why != tc.why {
						t.Errorf("refused for %d, want %d", no.Why, tc.why)
					}
					break
				}
				s, effort = next, s.effort.Steps
			}
			if n != tc.want {
				t.Errorf("%d times, want %d", n, tc.want)
			}
			if n > 0 && effort == 0 {
				t.Error("it cost nothing")
			}
		})
	}
}

// TestASearchEnds asks for the impossible: 16 pairs of which no two are alike.
func TestASearchEnds(t *testing.T) {
	inv := Inventory{Devices: make([]Device, 40)}
	for i := range inv.Devices {
		inv.Devices[i].Kind = i % 2
	}
	c := claim(1, Option{Count: 20, Fits: fits(0, 1)}, Option{Count: 19, Fits: fits(0, 1)})
	c.Requests = append(c.Requests, Request{Name: "s", Options: []Option{{Count: 1, Fits: []Fit{{}, {}}}}})
	effort := &Effort{}
	if _, no := New(&inv, effort).With([]*Claim{c}); no == nil || no.Why != TooHard || effort.Steps > mostSteps+1 {
		t.Errorf("refused for %+v after %d steps", no, effort.Steps)
	}
}

// TestASearchAmongManyDevicesEnds has a node with as many devices as nobody has, and a claim for devices that belong together, of which no two do.
func TestASearchAmongManyDevicesEnds(t *testing.T) {
	const many = 50_000
	inv := Inventory{Devices: make([]Device, many)}
	c := claim(1, Option{Count: 2, Fits: make([]Fit, many)})
	k := Constraint{Values: make([]int32, many), On: [][]bool{{true}}}
	for i := range inv.Devices {
		inv.Devices[i].Kind = i
		c.Requests[0].Options[0].Fits[i] = Fit{Selected: true, Tolerated: true, Within: true}
		k.Values[i] = int32(i)
	}
	c.Constraints = []Constraint{k}
	effort := &Effort{}
	if _, no := New(&inv, effort).With([]*Claim{c}); no == nil || no.Why != TooHard || effort.Steps > mostSteps+1 {
		t.Errorf("refused for %+v after %d steps", no, effort.Steps)
	}
	last := claim(2, Option{Count: 1, Fits: make([]Fit, many)})
	last.Requests[0].Options[0].Fits[many-1] = Fit{Selected: true, Tolerated: true, Within: true}
	looking := &Effort{}
	if _, no := New(&inv, looking).With([]*Claim{last}); no != nil {
		t.Errorf("the last of all devices is not found: %+v", no)
	}
	if looking.Steps < many/freeLooks {
		t.Errorf("looking at %d devices cost %d steps, want at least one for every %d", many, looking.Steps, freeLooks)
	}
}

// TestAskingForAllOfManyDevicesIsWork has claims that want all devices of a node over and over, of which it has as many as nobody has.
func TestAskingForAllOfManyDevicesIsWork(t *testing.T) {
	inv := Inventory{Devices: make([]Device, 50_000)}
	c := claim(1)
	for range 100 {
		c.Requests[0].Options = append(c.Requests[0].Options, Option{All: true, Fits: fits(0)})
	}
	effort := &Effort{}
	if _, no := New(&inv, effort).With([]*Claim{c}); no == nil || no.Why != TooHard || effort.Steps > mostSteps+1 {
		t.Errorf("refused for %+v after %d steps", no, effort.Steps)
	}
}

// TestAmountsDoNotWrapAround has devices that are allocated in full over and over, as somebody may write into the status of claims.
func TestAmountsDoNotWrapAround(t *testing.T) {
	t.Run("shares", func(t *testing.T) {
		inv := Inventory{Devices: []Device{{Multiple: true, Capacity: []int64{Most}}}}
		one := claim(1, Option{Count: 1, Fits: []Fit{{Selected: true, Tolerated: true, Within: true, Takes: []int64{Most}}}})
		s := New(&inv, &Effort{})
		for range 9 {
			if s.Use(0, []int64{Most}); s.shares[0][0] != Most {
				t.Errorf("%d are taken, want %d", s.shares[0][0], int64(Most))
			}
		}
		if _, no := s.With([]*Claim{one}); no == nil {
			t.Error("what is taken many times over is given away")
		}
	})
	t.Run("counters that others have taken", func(t *testing.T) {
		inv := Inventory{Counters: []int64{1}}
		for range 12 {
			inv.Devices = append(inv.Devices, Device{Draws: []Draw{{0, Most}}})
		}
		for used := 1; used < 12; used++ {
			s := New(&inv, &Effort{})
			for d := range used {
				s.Use(d, nil)
			}
			if _, no := s.With([]*Claim{claim(1, Option{Count: 1, Fits: []Fit{{Selected: true, Tolerated: true, Within: true}}})}); no == nil {
				t.Errorf("a counter that is used up %d times over is given away", used)
			}
		}
	})
}

func TestAnAdministratorTakesNothing(t *testing.T) {
	s := New(&Inventory{Devices: []Device{{}}}, &Effort{})
	s.Use(0, nil)
	next, no := s.With([]*Claim{claim(1, Option{Count: 1, Admin: true, Fits: fits(0)})})
	if no != nil {
		t.Fatalf("refused: %+v", no)
	}
	if _, no := next.With([]*Claim{claim(2, Option{Count: 1, Fits: fits(0)})}); no == nil {
		t.Error("somebody else got the device")
	}
}

func TestASharedClaimIsAllocatedOnce(t *testing.T) {
	s := New(&Inventory{Devices: []Device{{Driver: 3}}}, &Effort{})
	c := claim(1, Option{Count: 1, Fits: fits(0)})
	c.Shared = true
	for range 2 {
		next, no := s.With([]*Claim{c})
		if no != nil {
			t.Fatalf("refused: %+v", no)
		}
		s = next
	}
	if !s.Holds(c) || !slices.Equal(s.Drivers(), []int{3}) {
		t.Errorf("held %t, drivers %v", s.Holds(c), s.Drivers())
	}
}
