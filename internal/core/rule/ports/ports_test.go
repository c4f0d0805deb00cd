package ports

import "testing"

func TestConflicts(t *testing.T) {
	for name, tc := range map[string]struct {
		a, b Port
		want bool
	}{
		"the same port":                           {Port{"TCP", 80, "10.0.0.1"}, Port{"TCP", 80, "10.0.0.1"}, true},
		"another address":                         {Port{"TCP", 80, "10.0.0.1"}, Port{"TCP", 80, "10.0.0.2"}, false},
		"no address means every address":          {Port{"TCP", 80, ""}, Port{"TCP", 80, "10.0.0.2"}, true},
		"the unspecified IPv4 address":            {Port{"TCP", 80, "0.0.0.0"}, Port{"TCP", 80, "10.0.0.2"}, true},
		"the unspecified IPv6 address":            {Port{"TCP", 80, "::"}, Port{"TCP", 80, "10.0.0.2"}, true},
		"another protocol":                        {Port{"TCP", 80, ""}, Port{"UDP", 80, ""}, false},
		"another number":                          {Port{"TCP", 80, ""}, Port{"TCP", 81, ""}, false},
		"a missing protocol is interned as TCP":   {Port{"", 80, ""}, Port{"TCP", 80, ""}, true},
		"the unspecified address is no other one": {Port{"TCP", 80, "0.0.0.0"}, Port{"TCP", 80, ""}, true},
	} {
		t.Run(name, func(t *testing.T) {
			var table Table
			a, b := table.Intern(tc.a), table.Intern(tc.b)
			if got := table.Conflicts([]int{a}).Has(b); got != tc.want {
				t.Errorf("conflict = %v, want %v", got, tc.want)
			}
			var book Book
			book.Grow(2)
			book.Take(1, []int{b})
			if got := !book.Free(1, table.Conflicts([]int{a})); got != tc.want {
				t.Errorf("taken = %v, want %v", got, tc.want)
			}
			if !book.Free(0, table.Conflicts([]int{a})) {
				t.Error("a port of another bin is taken here")
			}
		})
	}
}
