// Package pack finds cheap fleets for classes of equal items over priced machine cells, and proves how cheap a fleet can be.
//
// It knows nothing of Kubernetes. A [Problem] is numbers: item classes with a need per dimension and a count, cells with room
// per dimension and a price, and what ties them together (which classes may use which cells, how many of a class one node may
// hold, which classes may not meet, how many nodes of a cell exist, which sums are limited). [Solve] returns patterns: so
// many equal nodes of a cell, each holding so many items of each class.
//
// # Symbols
//
// k is a class of n_k equal items with need a_k, c a cell with room R_c and price p_c, a pattern P of c holds P_k
// items of k, fits (Σ P_k·a_k ≤ R_c) and costs p_c. A worth w_k ≥ 0 is what one item of k is said to be worth, u_c
// ≥ 0 what a unit of each dimension of room in c is.
//
// # Three LPs
//
// All bounds rest on one inequality. If no pattern of any cell holds items worth more than it costs, Σ w_k·P_k ≤
// p_c, then every fleet, which holds every item, costs at least Σ w_k·n_k. Stock and limits add terms that are
// taken off; see [Certificate]. The LPs find such worths.
//
//	volume   w_k = u·a_k, one price of room for all cells that are open to the same groups   Σ u·R_c ≤ p_c                  volume.go
//	fluid    w_k = min over cells that can hold k of u_c·a_k, items may be cut                u_c·R_c ≤ p_c                  fluid.go
//	config   w_k free, items are whole, nodes may be cut                                      Σ w_k·P_k ≤ p_c for all P      master.go
//
// Each bounds at least as well as the one above it, up to the tolerances of its solution. The fluid LP sees classes in
//
//	buckets and divides
//
// those that lie across the border between two kinds of machine; the configuration LP has a column for each pattern and finds them as it
// needs them: a bounded knapsack per cell (knapsack.go) looks for a pattern worth more than its node, and a few that this does
// not come to the end of are divided (divide.go).
//
// What each of them sees that the one above it does not, by two examples. An item needs one core and 4 GiB. A node C has four cores and 4
// GiB, a node M one core and 16 GiB, and each costs 4. By volume the item is worth 1.6: the best prices are 0.8 for a core and 0.2 for a
// GiB, under which both nodes are sold for exactly 4, as if the cores of one could be put together with the memory of the other. In the
// fluid LP the item has to lie in one node, in parts if need be, and is worth 4, because either node holds one. Now let items need three
// cores of a node that has four and costs 4. The fluid LP fills the fourth core with a third of the next item and says 3; in the
// configuration LP no pattern holds more than one, and it says 4.
//
// What is left between the configuration LP and the best fleet is that nodes can be cut: it buys a third of a machine where that is
// cheapest. With many nodes that matters little, because rounding costs about one node for each kind of machine that is bought; with a
// handful of nodes it is what the bill is made of, and branch.go divides the question until no number of nodes is broken.
//
// # Why prices come first
//
// The greedy, the search and column generation all ask the same question: is it worth putting this item here? They can only be as good as
// the answer. A price per core that is right on average is wrong for every machine whose shape is not the average one, and a greedy that
// goes by it fills large-memory nodes with items that want cores. That is why so much work goes into an LP before the first node is
// opened, and why every stage is handed a pricing: the worths say which items are precious, the unit worths say what would be wasted by
// putting them in a given node.
//
// A pricing that proves a good bound is not for that reason a good guide. The LP sees average contents; a node holds whole items, and
// where it holds five of them it matters more that they fit than that they are priced to the last thousandth. So a run keeps several
// pricings, lets the greedy go by each, and remembers which one led to the best fleet; bounds come from the best one, repairs go by the
// winner.
//
// # What large cells are
//
// A caller may say of a cell that it is so many steps too large (Cell.Over): it is there for items that fit nothing smaller, and for
// others only where it lowers the bill by a good deal. To the stages such a cell is closed unless one of its items is why it is there:
// that item is forced onto the node, and others may come along. widen opens these cells to all, step by step, and keeps the wider fleet
// only where it pays. A certificate says how many steps were open, because its bound holds for fleets under that rule alone.
//
// # Stages
//
//	reduce.go     split into parts that share nothing, merge equal classes, drop cells that others dominate; equal parts are solved once
//	solve.go      use: a pricing (worths, unit worths) with the bound that lagrange computes for it. refine: fluid LP
//	              over buckets of equal
//	              width; sharpen: over buckets that are divided. guiding: the pricings greedy runs go by; winner: the
//	              run that led to the best fleet
//	enumerate.go  a few items: the optimum over all multisets
//	greedy.go     node after node, each of the cell whose contents are worth most per dollar; fill.go chooses contents
//	              under a guide, tree.go
//	              finds the most valuable class that fits among thousands
//	warm.go       a known fleet is the first one
//	round.go      diving: whole nodes of the configuration LP are bought, the rest is solved again
//	size.go       widen: too large cells are opened step by step where bounds allow the gain that is asked for. deepen
//	              (solve.go): once that is
//	              decided, knapsacks that could not say that there is nothing are asked for more
//	search.go     takes a few nodes apart at a time and packs their items again, by enumeration or with worths that are a little off
//	branch.go     small parts in whole nodes: branch and price over the columns of the configuration LP, rules about
//	              contents in contents.go.
//	              Every fleet is on one side of each rule, so that the lowest branch bounds all.
//	              Dives turn branches into fleets
//	certify.go    worths are rounded down, which keeps the inequality; pack/verify proves it again with whole numbers
//	              and none of our code
//	memory.go     recall: old prices of room prove a bound for new items in the same cells; refill: nodes that waste
//	              most are packed again
//	answers.go    the very same question is not searched twice
//	budget.go     work, and what is at stake
//
// What it promises.
//   - Every fleet respects the problem; [verify.Check] says so in plain code. Items without a place are counted in Result.Left.
//   - Bounds are proofs, not estimates. A [Certificate] gives each item a worth in whole nano-dollars such that no cell can hold
//     items worth more than its price; then no fleet costs less than all items are worth. [verify.Verify] proves that
//     again with integers and none of our code.
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
