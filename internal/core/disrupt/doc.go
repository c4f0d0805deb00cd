// Package disrupt plans which nodes should go, what replaces them, and in which order.
//
// From one snapshot it finds the candidates (nodes that may be removed at all), and lets each method propose steps:
// empty nodes, drifted nodes, and consolidation, which looks for the cheapest fleet that holds the pods of everything
// that may move, N nodes to M nodes for any N and M. A Step is a value: what goes, what is opened first, what it saves.
// Steps of one proposal share no node and no opening, so they can be carried out side by side, and together they fit
// the budgets of their pools.
//
// One walk over the world makes a Survey, a row for each of our nodes; everything else reads that. Propose plans a pass, and Confirm looks at a
// step again in the newest world. Both take a Memory and give one back: what failed, what was moved, and whether the last answer may be used again.
//
// The package decides and does nothing. Whoever carries a step out confirms it first against the newest snapshot, and notes steps that failed
// (Memory.Failed), so that they are not proposed again at once.
package disrupt
