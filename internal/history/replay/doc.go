// Package replay runs a recording through Karpenter's decisions in simulated time: what would the same pods have
// cost, how long would they have waited and how often would they have been moved with these pools and settings.
//
// The decisions are the controller's: packages engine, disrupt and lifecycle are asked as its loops ask them, with
// the same batches, delays, budgets and second looks. What the loops stand between is modelled here and as simple
// as it can be: machines take a fixed time to boot and to stop and are sold out and taken back by a table, volumes
// are made where their pod goes, pods start when they are bound and always stop, kube-scheduler is package
// kubescore. Loops have no clock that could be turned, so a stepping clock calls the decisions when they are due,
// and time in which nothing is due costs nothing.
//
// What is found at one moment is carried out as the loops do it: second looks in the order in which they are due,
// seats for the pods that move, and a node is emptied in the turn after. So of choices that are worth the same the
// same one is taken. What differs is what kube-scheduler does with pods that wait for nodes, where it would have to
// draw lots, and what the planner remembers of before the recording.
//
// The same recording, pools and settings give the same result, byte for byte. Nothing here asks for the time of day.
package replay
