// Package pack finds cheap fleets for classes of equal items over priced machine cells, and proves how cheap a fleet can be.
//
// It knows nothing of Kubernetes. A [Problem] is numbers: item classes with a need per dimension and a count, cells with room
// per dimension and a price, and what ties them together (which classes may use which cells, how many of a class one node may
// hold, which classes may not meet, how many nodes of a cell exist, which sums are limited). [Solve] returns patterns: so
// many equal nodes of a cell, each holding so many items of each class.
//
// How it works. The volume LP buys the demanded totals as if items were liquid; the fluid LP knows which items fit where but may
// still cut them; it sees classes in buckets and divides those that lie across the border between two kinds of machine. Their prices tell
// what an item is worth. Greedy runs fill, one after another, the node whose contents are worth
// most per dollar, under several guides. Column generation then solves the configuration LP, in which every column is a pattern that
// really fits: a master simplex prices the classes, a bounded knapsack per cell looks for a pattern worth more than its node, until
// there is none. Diving rounds the result, and local search takes a few nodes apart and packs their items again as long as the budget
// lasts. A few items are solved to the optimum by enumeration. Large cells are for classes that fit nowhere else; whether they are worth
// opening to all is asked last.
//
// What it promises.
//   - Every fleet respects the problem; [verify.Check] says so in plain code. Items without a place are counted in Result.Left.
//   - Bounds are proofs, not estimates. A [Certificate] gives each item a worth in whole nano-dollars such that no cell can hold
//     items worth more than its price; then no fleet costs less than all items are worth. [verify.Verify] proves that again with integers and none of our code.
//   - Same problem, same options, same result, on every processor: products are rounded before they are added (no fused
//     multiply-add), random choices come from a fixed sequence, ties go to the lower index.
//   - It ends after Options.Most units of work, before that where more would change little (see budget.go), or as soon as Options.Meter
//     cuts it, but never without a first fleet and a bound; the best fleet so far is returned, and what the meter cut, a meter with
//     the limit CutAt cuts again at the same point.
//
// What it refuses: preferences, affinity between classes and everything else that depends on more than one node. Callers keep such
// classes out or turn them into cells first.
//
// Units: dimensions are any whole numbers below 2^53; prices and worths are nano-dollars per hour.
package pack
