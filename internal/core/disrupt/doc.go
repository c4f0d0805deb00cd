// Package disrupt plans which nodes should go, what replaces them, and in which order. It decides and does nothing: the loop that carries
// out a step (internal/control/disruption) confirms it first against the newest snapshot.
//
// A survey has a row (Candidate) for each Karpenter node. Propose plans a pass over it, Confirm looks at a step again in the newest
// world, WhyStays explains one node. All read a World and a Memory. The stages of a pass, in order of priority; none undoes what one
// before it did:
//
//	repair       broken nodes are replaced at any price                              repair.go
//	empty        nodes without anything to move go, each by itself                   methods.go
//	drift        nodes that are not as their pool asks are replaced, at any price    methods.go, static.go, reserved.go, rollout.go
//	consolidate  steps to the cheapest fleet, as far as they pay and budgets allow   consolidate.go, choose.go
//
// A step of consolidation pays if what it gains (Step.Gains: the fall of the bill, and a little for each node less) is at least its toll
// for the pods that it moves (toll.go). The toll is high if pods arrive or were moved lately (churn.go), low if the fleet is far from its
// target. An answer of the engine about many nodes is split into parts, because a step of fifty nodes waits for its slowest machine and
// fails as a whole.
//
// Words:
//
//	candidate     a Karpenter node with what decisions read of it; Block or Held says what keeps it
//	step          one change of the fleet: what is removed, and what is opened before that
//	opening       a new machine in a plan of the engine
//	gone, closed  in a question: nodes that do not exist; nodes that stay and get no pods
//	gated         closed to the pods that consolidation moves
//	part          the smallest piece of an answer that can be carried out alone
//	target        the cheapest fleet that a pass found for everything that may move
//	waste         the part of a node's price that its pods are not worth (waste.go)
//	seat          the place that a plan promised to a pod (package seat); a pod with a seat is awaited
//	spare         a row for a pod for which a buffer keeps room (spares.go)
//	setback       the time in which a node is left alone after its step failed
//	turn          as many nodes as the budgets let go at once; steps of consolidation may wait for their turn (queue.go, ledger.go)
//
// What must not happen, and what prevents it:
//
//   - Two steps count on the same room, or one on room that another removes: choice.promised, choice.gone, World.Coming, entanglement.
//   - A node goes before the pods arrive for which it was bought: promises, Vacancies.
//   - The same nodes are replaced to and fro: removedPrices, Settings.MinSaving, the part of the toll for pods that were moved.
//   - A step that fails is proposed again at once: Memory.Failed.
//   - A user does not learn why nothing happens: everything that stops a step is a Refusal with a code (refusal.go, why.go).
//
// Read world.go, survey.go, step.go and propose.go first, then whatif.go, methods.go, consolidate.go and choose.go.
package disrupt
