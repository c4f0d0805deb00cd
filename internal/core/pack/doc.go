// Package pack finds cheap fleets for classes of equal items over priced machine cells, and proves how cheap a fleet can be.
//
// It knows nothing of Kubernetes. A [Problem] is numbers: item classes with a need per dimension and a count, cells with
// room per dimension and a price, and what ties them together (which classes may use which cells, how many of a class one
// node may hold, which classes may not meet, how many nodes of a cell exist, which sums are limited). [Solve] returns
// patterns: so many equal nodes of a cell, each holding so many items of each class.
//
// # Symbols
//
//	k    a class of n_k equal items, each with need a_k
//	c    a cell with room R_c and price p_c
//	P    a pattern of c: it holds P_k items of k, fits (Σ P_k·a_k ≤ R_c) and costs p_c
//	w_k  the worth of one item of k, at least 0
//	u_c  the price of a unit of each dimension of room in c, at least 0
//
// Dimensions are whole numbers below 2^53. Prices and worths are nano-dollars an hour.
//
// # Words
//
//	part     a piece of the problem that shares nothing with the others (reduce.go). A run searches one part; a solution is all runs
//	group    classes of a part that may use the same cells
//	load     what one node holds; nodes are a number of nodes with the same load
//	pricing  worths of items, with the prices of room that belong to them
//	supply   what is left of stock and limits while a fleet is built
//	guide    parameters of a greedy run
//	stake    price less bound: the most that more work can save
//
// # Three linear programs
//
// All bounds rest on one inequality. Assume that no pattern of any cell holds items that are worth more than the cell
// costs: Σ w_k·P_k ≤ p_c. Then every fleet that holds every item costs at least Σ w_k·n_k. Stock and limits add terms
// that are subtracted; see [Certificate]. Each linear program looks for worths with the largest sum:
//
//	program  worths                                            condition                  file
//	volume   w_k = u·a_k, one u for all cells of equal groups  Σ u·R_c ≤ p_c              volume.go
//	fluid    w_k = min of u_c·a_k over the cells that hold k   u_c·R_c ≤ p_c              fluid.go
//	config   w_k is free                                       Σ w_k·P_k ≤ p_c for all P  master.go
//
// Each gives at least as good a bound as the one above it, up to numerical tolerance.
//
// Volume allows a node to be put together from parts of different machines. Example: an item needs one core and 4 GiB.
// Machine C has four cores and 4 GiB, machine M one core and 16 GiB, and each costs 4. By volume the item is worth 1.6, as
// if the cores of C and the memory of M were one machine. The fluid program keeps items within one machine: either machine
// holds one item, so it is worth 4.
//
// Fluid allows items to be cut. Example: items need three cores of a machine with four, which costs 4. By fluid the item
// is worth 3, as if a third of another item used the fourth core. The configuration program counts whole items: no
// pattern holds more than one, so the item is worth 4.
//
// Configuration allows nodes to be cut: it may buy a third of a machine. With many nodes this matters little, because
// rounding costs about one node for each kind of machine. With a handful of nodes it is most of the gap, and branch.go
// divides the question until every number of nodes is whole.
//
// The fluid program groups classes by their shape into buckets, and divides a bucket whose classes want different
// machines. The configuration program has one column for each pattern. It generates columns when it needs them: a bounded
// knapsack for each cell (knapsack.go) looks for a pattern that is worth more than its node. divide.go solves knapsacks
// that are too hard for this by branch and bound.
//
// # Why prices come first
//
// The greedy, the search and column generation all ask whether an item is worth its place on a node. Their answer is only
// as good as the prices. One price per core, right on average, is wrong for machines of another shape: a greedy that uses
// it fills memory-rich nodes with items that want cores. So the linear programs run before the first node is opened, and
// every later stage works with their result, a pricing: the worths of items and the prices of room.
//
// The pricing with the best bound is not always the best guide, because the programs see averages and a node holds whole
// items. A run therefore keeps several pricings, tries the greedy with each, and remembers which one led to the best fleet.
// Bounds come from the pricing with the best bound, repairs use the pricing of the best fleet.
//
// # Large cells
//
// A caller may mark a cell as so many steps too large (Cell.Over). Such a cell is for items that fit nothing smaller; other
// items may use it only where that lowers the bill by a given share. The stages keep such a cell closed, except for a node
// that one of those items is on. size.go then opens large cells to all items, step by step, and keeps the wider fleet only
// where it pays. A certificate says how many steps were open, because its bound holds only for fleets under that rule.
//
// # Stages
//
//	reduce.go     splits the problem into parts that share nothing, merges equal classes, drops dominated cells
//	solve.go      runs the stages of one part: volume, fluid, then configuration, and the fleets that each leads to
//	enumerate.go  few items: finds the optimum by trying all contents
//	greedy.go     opens node after node, each of the cell whose contents are worth most per dollar; fill.go chooses the
//	              contents; tree.go finds the most valuable class that fits, among thousands
//	warm.go       begins with a known fleet
//	round.go      dives: buys whole nodes of the configuration program and solves what is left
//	size.go       opens cells that are too large (see above)
//	search.go     takes a few nodes apart and packs their items again
//	branch.go     small parts: branch and price. contents.go has the rules about contents on which it branches. Every fleet
//	              obeys one side of each rule, so the lowest bound of all branches is a bound for all fleets
//	certify.go    rounds worths down, which keeps the inequality true
//	memory.go     reuses the prices and the fleet of the question before
//	answers.go    remembers questions that were searched already
//	budget.go     counts work, and compares it with what is at stake
//
// # Invariants
//
//   - Every fleet respects the problem; [verify.Check] tests this. Items without a place are counted in Result.Left.
//   - Bounds are proofs. A [Certificate] gives each item a worth in whole nano-dollars such that no cell can hold items worth
//     more than its price. [verify.Verify] proves this again with integers and none of the code of this package.
//   - The same problem with the same options gives the same result on every processor: products are rounded before they are
//     added, random choices come from a fixed sequence, and ties go to the lower index.
//   - It ends. It stops after Options.Most units of work, earlier where more work would change little (budget.go), or when
//     Options.Meter cuts it. It never stops before it has a first fleet and a bound, and it returns the best fleet so far. A
//     meter with the limit CutAt cuts a repeated run at the same point.
//
// The package does not handle preferences, affinity between classes, or anything else that depends on more than one node.
// Callers leave such classes out or turn them into cells.
package pack
