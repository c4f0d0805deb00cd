package kubescore

import "testing"

const gib = 1 << 30

// The numbers are worked out by hand from the formulas of kube-scheduler's plugins.
func TestScoresOfNodeResources(t *testing.T) {
	for name, tc := range map[string]struct {
		has, used, pod  Request
		least, balanced int64
	}{
		// 75 % of the CPU and 87.5 % of the memory are left: (75+87)/2. Uneven by 12.5 %: 93 after 100, 50+(50-7)/2.
		"an empty node": {Request{4000, 8 * gib}, Request{}, Request{1000, gib}, 81, 71},
		// 25 % and 50 % are left: (25+50)/2. Before 75 % and 50 % were left, now the other way about: 87 and 87, 50+50/2.
		"one that gets no more even": {Request{4000, 8 * gib}, Request{1000, 4 * gib}, Request{2000, 0}, 37, 75},
		// Nothing of the CPU is left, half of the memory: (0+50)/2. Before 50 % and 0 % were used (75), now 100 % and 50 % (75).
		"a full one": {Request{2000, 4 * gib}, Request{1000, 0}, Request{1000, 2 * gib}, 25, 75},
		// 50 % and 50 % are left. Before 50 % and 0 % were used (75), now both 50 % (100): 50+(50+25)/2.
		"one that gets even": {Request{2000, 4 * gib}, Request{1000, 0}, Request{0, 2 * gib}, 50, 87},
		// Only memory is known: all of it counts, and one thing is always even.
		"a node without CPU": {Request{0, 4 * gib}, Request{}, Request{0, gib}, 75, 75},
	} {
		t.Run(name, func(t *testing.T) {
			after := tc.used.Plus(tc.pod)
			if got := leastAllocated(after, tc.has); got != tc.least {
				t.Errorf("leastAllocated = %d, want %d", got, tc.least)
			}
			if got := balancedAllocation(tc.used, after, tc.has); got != tc.balanced {
				t.Errorf("balancedAllocation = %d, want %d", got, tc.balanced)
			}
		})
	}
}

func TestScoresOfTaints(t *testing.T) {
	for name, tc := range map[string]struct{ taints, most, want int64 }{
		"nobody has one":        {0, 0, 100},
		"none, others have one": {0, 1, 100},
		"the only one":          {1, 1, 0},
		"one of three":          {1, 3, 67},
		"two of three":          {2, 3, 34},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Welcome(tc.taints, tc.most); got != tc.want {
				t.Errorf("Welcome = %d, want %d", got, tc.want)
			}
		})
	}
}
