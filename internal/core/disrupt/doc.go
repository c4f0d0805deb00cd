// Package disrupt plans which nodes should go, what replaces them, and in which order.
//
// From one snapshot it finds the candidates (nodes that may be removed at all), and lets each method propose steps:
// empty nodes, drifted nodes, and consolidation, which looks for the cheapest fleet that holds the pods of everything
// that may move, N nodes to M nodes for any N and M. A Step is a value: what goes, what is opened first, what it saves.
// Steps of one proposal share no node and no opening, so they can be carried out side by side, and together they fit
// the budgets of their pools.
//
// The package decides and does nothing. Whoever carries a step out confirms it first against the newest snapshot
// (Confirm), and tells the Planner of steps that failed (Failed), so that they are not proposed again at once.
package disrupt
