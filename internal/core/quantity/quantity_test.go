package quantity

import "testing"

func TestVectors(t *testing.T) {
	for name, tc := range map[string]struct {
		need, room Vec
		fits       bool
		times      int
	}{
		"equal amounts fit once":                            {Vec{2, 4}, Vec{2, 4}, true, 1},
		"one entry too large does not fit":                  {Vec{2, 5}, Vec{9, 4}, false, 0},
		"the scarcest entry decides how often":              {Vec{1, 2}, Vec{9, 7}, true, 3},
		"an entry of zero does not limit":                   {Vec{1, 0}, Vec{5, 0}, true, 5},
		"an overdrawn entry holds what does not ask for it": {Vec{1, 0}, Vec{4, -1}, true, 4},
		"an overdrawn entry holds nothing that asks for it": {Vec{1, 1}, Vec{4, -1}, false, 0},
		"the largest amount fits into the same":             {Vec{Max, 1}, Vec{Max, 1}, true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.need.Fits(tc.room); got != tc.fits {
				t.Errorf("Fits = %v, want %v", got, tc.fits)
			}
			if got := tc.need.Times(tc.room, 10); got != tc.times {
				t.Errorf("Times = %d, want %d", got, tc.times)
			}
		})
	}
}

func TestSumsStopAtMax(t *testing.T) {
	v := Vec{Max, -Max}
	for range 5000 {
		v.Add(Vec{Max, -Max})
	}
	if v[0] != Max || v[1] != -Max {
		t.Errorf("sum = %v", v)
	}
}

func TestNamesKeepTheirColumns(t *testing.T) {
	n := NewNames()
	if n.Intern("cpu") != CPU || n.Intern("pods") != Pods || n.Intern("x") != fixed || n.Intern("x") != fixed || n.Lookup("y") != -1 {
		t.Error("columns moved")
	}
}
