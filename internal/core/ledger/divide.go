package ledger

import (
	"cmp"
	"math/bits"
	"slices"
)

// divide splits a total in proportion to weights, by largest remainder; of equal remainders the first gets one more. The parts add up to
// the total. Total and weights must not be negative. If all weights are 0, all parts are 0.
func divide(total int64, weights []int64) []int64 {
	parts, rest := make([]int64, len(weights)), make([]uint64, len(weights))
	var whole uint64
	for _, w := range weights {
		whole += uint64(w)
	}
	if whole == 0 {
		return parts
	}
	left := total
	for i, w := range weights {
		hi, lo := bits.Mul64(uint64(total), uint64(w))
		quotient, remainder := bits.Div64(hi, lo, whole)
		parts[i], rest[i] = int64(quotient), remainder
		left -= parts[i]
	}
	if left == 0 {
		return parts
	}
	order := make([]int, len(weights))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(rest[b], rest[a]) })
	for _, i := range order[:left] {
		parts[i]++
	}
	return parts
}

// portion returns a whole times a part over all, rounded down. The part is at most all.
func portion(whole, part, all int64) int64 {
	hi, lo := bits.Mul64(uint64(whole), uint64(part))
	quotient, _ := bits.Div64(hi, lo, uint64(all))
	return int64(quotient)
}
