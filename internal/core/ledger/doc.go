// Package ledger divides what machines cost among the pods that ran on them, so that the parts add up to what was paid.
//
// A [Meter] looks at each snapshot and charges machines to a [Book] (meter.go). A Book is stored as a [File] (file.go), and read as [Bill]s
// (read.go). An account is what money is charged to: a workload, a DaemonSet, the system, or a kind of idle room (book.go).
//
// # Amounts
//
// A Book has integers by clock hour (UTC), machine and account: money in nano-dollars an hour times seconds, and parts in millionths of
// the machine times seconds. When it is read, the money of a machine in an hour becomes its bill in nano-dollars, rounded once, and
// the bill is divided among the accounts in proportion to their parts, by largest remainder. So for every hour
//
//	Σ parts of a machine = its bill       each part ≥ 0
//	Σ bills of machines  = the bill
//	list − bill          = what spot, reserved capacity and commitments saved
//
// hold exactly, and every table that adds parts up, by whatever key, has the same sum.
//
// # How a machine is divided
//
// A piece is a time during which the pods of a machine do not change. It is divided in proportion to weights: CPU, memory and accelerators
// at fixed reference prices (weigh.go). Parts do not depend on what the machine costs, so a book does not grow when prices change.
//
//	system    capacity that the machine keeps from pods
//	pods      requests, for each workload; pods of DaemonSets and static pods apart
//	idle      the rest, as starting, ready or draining
//
// If requests exceed what the machine has for pods, nothing is idle and all parts shrink alike. A pod counts from its binding to
// the look at which it is gone or has ended; a machine from its launch to the look at which its claim is gone.
//
// # Prices
//
// An on-demand machine is charged at its price at the beginning of each clock hour, a spot machine at its price at the beginning of each
// hour since its launch. A price is read once for its hour and not changed later.
//
// # Commitments
//
// A book has the commitments that the cluster pays, and the machines of the cluster that are in no book (Terms, cover.go). When it is read,
// each hour is billed in AWS's order (core/tariff). A machine has a Slice for each commitment that covers part of it. The unused part of a
// commitment is a Bill without a machine. The slices of a commitment add up to its fee for the hour, less what other machines used.
//
// # Gaps
//
// After a restart, a Meter charges the time in which no process looked, by the known launch and the stored price of each machine.
// Machines that went in this time are charged as a gap, for at most the time between two writes of the book: their claims cannot go
// while no controller runs. Seconds that are charged like this are counted as estimated.
package ledger
