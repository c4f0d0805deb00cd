// Package replay runs a recording through Karpenter's decisions in simulated time. It answers what the same pods would
// have cost, how long they would have waited and how often they would have been moved, with other pools and settings.
//
// The decisions are the controller's: the package asks engine, disrupt and lifecycle as the controller's loops do, with
// the same batches, delays, budgets and second looks. The world around the loops is modelled as simply as possible:
// machines take a fixed time to boot and to stop; a table says how often they are sold out or interrupted; volumes are
// created where their pod goes; pods run as soon as they are bound and always stop; kube-scheduler is package
// kubescore. A clock jumps from one event to the next, so idle time costs nothing.
//
// Decisions are carried out in the order in which the loops do it, so that of equal choices the same one is taken. Replays differ from a
// cluster in two ways: kube-scheduler chooses among equal nodes by chance, and the controller's planner remembers the time before the
// recording.
//
// Terms:
//
//	life      one wanted pod of the recording; a pod is its present incarnation (pods.go)
//	variant   the pools and settings of one run (replay.go)
//	standing  a machine that exists when the recording begins (fleet.go)
//	pace      the least time between two searches for a cheaper fleet; a pass is one such search (disruption.go)
//	dried     a way to buy that was found to be sold out (market.go)
//	restless  a machine whose claim does not say yet that a pod came or went
//	lot       a hash of a name that decides between equal nodes
//
// Read replay.go and clock.go first, then provision.go (places for pods that wait), disruption.go (steps), machines.go
// and pods.go. meter.go measures the run, edit.go changes pools while it runs. The same recording, pools and settings
// give the same result, byte for byte.
package replay
