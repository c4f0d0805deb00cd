// Package solve places pods on existing nodes, opens new nodes for the rest, and says why a pod found no place.
// It sees numbers only. Place returns a Placement, which can be improved, and a Result. Read trial.go, kinds.go and place.go first.
//
//	class     equal pods; a variant is one way to read them: a required term, or with fewer preferences (problem.Class)
//	template  what a pool's next node is like: shapes (machine types), a mask of choices (see ../README.md), a tier (pool weight)
//	bin       a node: existing ones are numbered first, then new ones. A new bin has a target, the shape that it is filled for.
//	          The target may change until the end, when every shape that holds the pods is listed
//	group     one spread, affinity or anti-affinity; pods that carry it own it, pods that its selector matches are counted
//	domain    a value of a topology key, settled for a new bin when the first pod comes for which it matters
//	trial     one question: may one more pod join a bin? Each kind of constraint narrows the trial or refuses
//	arrival   DaemonSet pods that groups count; "daemons" are always pods of DaemonSets
//
// # Parts
//
//	facts     what follows from the problem alone, worked out once for all placements (facts.go)
//	bins      the nodes: what is free on each, what a new one may still become, its pods (bins.go)
//	census    how many pods of each group are in each domain (counts.go, domains.go, hosts.go, daemons.go)
//	stock     what pools' limits and reservations leave to buy, and at what price (limits.go, price.go)
//	fleet     all of these together; places pods and opens nodes (fleet.go)
//	ties      the groups of each class, as touches by topology key (touch.go, reach.go)
//	opener    chooses the machine of a new node (open.go, choose.go, candidates.go)
//	schedule  simulates in which order kube-scheduler binds the pods (schedule.go, unknown.go)
//	state     a placement in the making: the parts above and the stages below (state.go, place.go, queue.go)
//
// # Stages
//
//  1. Classes are placed one by one: on free room first, then on new nodes, chosen by price for what they are worth
//     (place.go).
//  2. The plan is played in kube-scheduler's order. Pods that it would refuse get another place or none (queue.go).
//  3. Finishing lists, for each new node, every machine that could hold its pods, and prices the launch (finish.go).
//  4. Package repack looks for cheaper fleets through Placement (placement.go), under the same rules. Take keeps the better.
//
// Check verifies a result with none of the code that found it (check.go).
//
// Invariants: pods are only added to a state, so a refusal that is marked final is remembered and not asked again. The
// same problem gives the same result; the Memory of an earlier result is part of the problem.
package solve
