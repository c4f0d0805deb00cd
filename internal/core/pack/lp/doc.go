// Package lp has two simplex methods for small linear programs: [Simplex] for programs with few rows whose columns are added over time
// (column generation), and [Fractional] for the knapsack whose items can be cut.
//
// Both give the same result on every processor: products are rounded before they are added (float64 around them forbids fused
// multiply-add), and ties go to the lower index. Results are only as exact as floating point. So proofs of bounds take the prices as hints
// and compute the bound again from them.
package lp
