// Package provision finds places for pods that wait: it collects them into a batch, asks the engine for a plan, and creates the
// NodeClaims of the plan through package open.
//
// The loop reads the present state from a snapshot, and does not depend on events. A pod is due (asks for a plan) when it is new, when
// the place that was planned for it is gone, and otherwise every ten seconds as long as it waits, so that no pod is lost between two
// batches. Plans stay in the store as seats; a pod whose node is still booting is not planned for again. A pod that got the seat of a
// deleted pod (of the same owner) is looked at once, like any new pod.
//
// Words:
//
//	placed, opened  the plan puts a pod on a node that exists, or on a new one
//	refused         the plan has no place for a pod, with the reasons
//	left out        the plan was stopped before it came to a pod
//	left aside      a class of pods or a pool over which the engine panicked, for a while
//	spurned, lost   a place to which the scheduler of a pod does not bind it although the node is ready
//	held            a pod that gets no place for a while, because its last places were spurned
//	on trial        a pool whose last machines did not get ready: one machine at a time
//
// Read loop.go (batches) and due.go (which pods, when), then turn.go (one turn). aside.go, spurned.go and trial.go change a plan;
// summary.go, journal.go and leftout.go report it; asked.go and record.go keep questions for reports of bugs.
package provision
