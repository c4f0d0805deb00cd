// Package tariff computes what AWS bills for one clock hour of machines under Reserved Instances and Savings Plans.
//
// # Model
//
// A Line is machine-seconds of one type at one on-demand price. A Commitment is paid for whether it is used or not, and
// covers part of the lines. It holds a number of units for each hour, and each second of a line takes some of them:
//
//	kind                 holds for an hour                      a second of a line takes
//	zonal RI             machines × 3600 seconds                1, exact type and zone
//	regional RI          machines × 3600 seconds                1, exact type
//	flexible RI          machines × factor × 3600               the factor of the line's size, same family
//	Savings Plans        dollars an hour × 3600                 the plan's rate for the type
//
// # Order
//
// AWS applies them in stages: zonal RIs, regional RIs of one size, flexible RIs from the smallest size up, EC2 Instance
// Savings Plans, Compute Savings Plans. In each stage the account that owns a commitment comes before all others. Savings Plans take
// the line with the highest percentage saved first, then the lowest rate. Spot lines are never covered. What is not
// used in the hour is lost.
//
// The order is greedy. It is optimal for one plan and not for two plans with different rates, so a bill may be above the
// cheapest way to cover the same lines. Reach is an upper bound on what commitments can cover in any order; a bill is never
// below Fees plus the price of the lines at list, less Reach.
//
// # Exactness and work
//
// Covered seconds are fractions (math/big), and the total is rounded once, to the nano-dollar, half to even. With L lines and C
// commitments a bill takes O(L·C·log(L·C)).
//
// # Conventions where AWS publishes nothing
//
// Families with accelerators, hpc and u7 have no size flexibility. A bare-metal type without a published factor has none either.
// Savings are compared with the price of the line, after private discounts. Remaining ties go by the id of the commitment,
// then by the key of the line.
//
// # Files
//
//	tariff.go   lines, commitments and the bill of an hour
//	book.go     the commitments of a cluster with its machines, as plans use them
//	object.go   reads CommitmentDiscounts
//	factor.go   AWS's normalisation factors of sizes
package tariff
