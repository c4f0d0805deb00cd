package repack

import (
	"slices"

	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/solve"
	"karpenter.sh/karpenter/internal/core/work"
)

// The result of placing classes one by one depends on their order, and on the order of equal zones. For few pods, many orders can be tried,
// and the cheapest result is kept.

const (
	reorderPods    = 16               // the most pods for which other orders are tried
	reorderClasses = 360              // the most orders of classes: all of up to five
	reorderZones   = 6                // the most orders of zones: all of up to three
	reorderWork    = work.Second / 25 // the most work for all of them
	reorderVain    = 200              // the most orders in a row without a better plan
	stride         = 1009             // a prime that divides no number of preferences
)

// reorder places a few pods in other orders, and puts the best placement into r. It returns that placement, or nil if none was better than
// r. It does nothing if pods are many, no proofs are wanted, or r is proven to be the cheapest.
func reorder(p *problem.Problem, at *solve.Placement, r *problem.Result) (best *solve.Placement) {
	pods := 0
	for i := range p.Classes {
		pods += p.Classes[i].Count
	}
	proven := len(r.Placed) == 0 && r.Config >= r.Cost && !leavesAny(r)
	if pods > reorderPods || p.Settings.Unproven || proven {
		return nil
	}
	end, vain := at.Meter().Spent()+reorderWork, 0
	for _, preference := range preferences(len(p.Classes), at.Zones()) {
		if at.Meter().Cut() || at.Meter().Spent() > end || vain == reorderVain {
			return best
		}
		vain++
		if idea := at.Another(preference); at.Take(r, idea) {
			best, vain = idea, 0
		}
	}
	return best
}

// preferences returns the orders that are tried, mixed so that neighbours differ in all respects: if the work ends early, the orders that
// were tried are a good sample of all.
func preferences(classes, zones int) (out []solve.Preference) {
	for _, size := range []solve.Size{solve.Usual, solve.Cheapest, solve.Roomiest} {
		for _, z := range orders(zones, reorderZones) {
			for _, c := range orders(classes, reorderClasses) {
				out = append(out, solve.Preference{Classes: c, Zones: z, Size: size})
			}
		}
	}
	mixed := make([]solve.Preference, 0, len(out))
	for i, at := 0, 0; i < len(out); i++ {
		mixed = append(mixed, out[at])
		at = (at + stride) % len(out)
	}
	return mixed
}

// orders returns up to most orders of n things: all that there are, or some at equal distances. Each is a list of the numbers 0 to n-1.
func orders(n, most int) [][]int32 {
	if n == 0 {
		return [][]int32{nil}
	}
	all := 1
	for k := 2; k <= n; k++ {
		all *= k
	}
	count := min(all, most)
	out := make([][]int32, count)
	for i := range out {
		out[i] = order(n, i*(all/count))
	}
	return out
}

// order returns the permutation of 0 to n-1 that has this number in lexicographic order.
func order(n, number int) []int32 {
	left := make([]int32, n)
	for i := range left {
		left[i] = int32(i)
	}
	var out []int32
	block := 1
	for k := 2; k < n; k++ {
		block *= k
	}
	for k := n - 1; k >= 0; k-- {
		at := number / block
		number %= block
		out = append(out, left[at])
		left = slices.Delete(left, at, at+1)
		if k > 0 {
			block /= k
		}
	}
	return out
}
