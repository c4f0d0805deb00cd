// Package lp holds two simplex methods for small linear programs: [Simplex] for programs with few rows whose columns come one after
// another, and [Fractional] for the knapsack whose items can be cut.
//
// Both promise the same result on every processor: products are rounded before they are added (float64 around them forbids fused
// multiply-add), and ties go to the lower index. What they return is as exact as floating point; a proof takes
// the prices as hints and computes the proof from them.
package lp
