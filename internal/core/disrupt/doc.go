// Package disrupt plans which nodes should go, what replaces them, and in which order.
//
// From one snapshot it finds the candidates (nodes that may be removed at all), and lets each method propose steps:
// empty nodes, drifted nodes, and consolidation, which looks for the cheapest fleet that holds the pods of everything
// that may move, N nodes to M nodes for any N and M. A Step is a value: what goes, what is opened first, what it saves.
// Steps of one proposal share no node and no opening, so they can be carried out side by side, and together they fit
// the budgets of their pools: at once, or when the steps before them have left room, for which those of consolidation wait (Queue).
//
// One walk over the world makes a survey, a row for each of our nodes; everything else reads that. Propose plans a
// pass, and Confirm looks at a step again in the newest world. Both take a Memory and give one back: what failed,
// what was moved, and whether the last answer may be used again.
//
// # What a node costs, and what a move costs
//
// Everything here is a comparison of two sums of money. On one side stands what a step takes off the hourly bill, with a little for each
// node that there will be fewer, since a node costs something by itself that is on no bill (Step.Gains). On the other stands what its
// moves are reckoned to cost: a pod that is evicted starts anew somewhere, loses its caches, and may find its budget used up when it
// matters. That is on no bill, so it is given a price in the only unit that grows with a cluster and its machines, the cost of an
// average pod for an hour, times what speaks for and against moving now (toll.go).
//
// A step whose saving lasts a day is worth about a hundred times a step that is undone in a quarter of an hour. How
// long a saving lasts is not known when it is made; how many pods come by themselves is, and how many were moved
// lately. A restless cluster makes moves dear, a fleet that is far from its target makes them cheap, a fleet that
// was moved much today makes them dear again. Where pods come all the time the target moves as well, and no
// distance makes them cheap.
//
// # The shape of a pass
//
//	survey      one row for each of our nodes: what it costs, what keeps it, which pods must have a place, which spares rest on it
//	empty       nodes without anything to move go, each by itself; they use budgets up first, because they disturb no pod
//	drift       nodes that are no longer what was asked for, as many as budgets allow, at any price
//	consolidate what may move is priced (waste.go), the cheapest fleet is the target, and steps lead there as far as budgets allow
//	remember    whether a pass over the same world could find anything else
//
// Each stage hands the next what it removes, as room that is not to be counted on. That is all that stages share: no stage undoes or
// improves what an earlier one decided, so the order is the priority.
//
// # Why steps fall apart
//
// The engine is asked about many nodes at once, because only a whole fleet has a cheapest form: two half-empty nodes may be one, which
// neither shows alone. But a step of fifty nodes waits for its slowest machine, and fails as a whole. So an answer is cut into the
// smallest parts that can be carried out alone: two nodes are in one part only if some machine that is opened takes pods of both. A part
// that does not pay stays behind, the others are done without it; what was planned together still has its places, because no part uses
// another one's.
//
// # What must not happen
//
//   - Two steps count on the same room, or one on room that another removes. Within an answer the engine sees to that;
//     across answers, what was promised is closed (choice.promised) and what goes is gone (choice.gone); what steps of
//     earlier passes count on is kept for them (World.Coming).
//   - A node that was just bought goes before its pods come. A promise of room is kept in the store and looked at first
//     (promises), and a node must have been vacant for a while before it counts as empty.
//   - The same nodes are moved to and fro. A replacement is never what is replaced (removedPrices), a saving has to be
//     a part of the price (MinSaving), and pods that were moved speak against being moved again.
//   - A step that fails is proposed again at once. Its nodes are left alone for a minute, then for two, and so on (Memory.Failed).
//   - A user does not learn why nothing happens. Every brake is a Refusal with a code, and WhyStays lists them all for one node.
//
// The package decides and does nothing. The loop that carries a step out confirms it first against the newest
// snapshot, and notes steps that failed (Memory.Failed), so that they are not proposed again at once.
package disrupt
