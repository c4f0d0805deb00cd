// Package solve places pods on existing nodes, opens new nodes for the rest, and says why a pod found no place.
//
// It sees numbers only. A Problem holds pods grouped into classes, existing nodes, and templates of new nodes. Place
// returns a Placement, which can be improved, and a Result.
//
// # Parts
//
// A bin is an existing node or a new one, numbered in this order. A new bin has a target: the shape that it is filled
// for. The target may change until the end, when every shape that holds the pods is listed.
//
//	facts     what follows from the problem alone, worked out once for all placements (facts.go)
//	bins      the nodes: what is free on each, what a new one may still become, its pods (bins.go)
//	census    how many pods of each group are in each domain (counts.go, domains.go, hosts.go, daemons.go)
//	stock     what pools' limits and reservations leave to buy, and at what price (limits.go, price.go)
//	fleet     all of these together; places pods and opens nodes (fleet.go)
//	ties      the groups that a class has to do with (touch.go, reach.go)
//	opener    chooses the machine of a new node (open.go, choose.go, candidates.go)
//	schedule  in which order kube-scheduler will take the pods, and whether the plan holds then (schedule.go, unknown.go)
//	state     a placement in the making: the parts above and the stages below
//
// One question, whether one more pod may join a bin, is a trial (trial.go). Each kind of constraint narrows it or
// refuses; kinds.go lists the kinds, and each kind has a file.
//
// # Stages
//
//  1. Classes are placed one by one: on free room first, then on new nodes, chosen by price for what they are worth
//     (place.go).
//  2. The plan is played in kube-scheduler's order. Pods that it would refuse get another place or none (queue.go).
//  3. Finishing lists, for each new node, every machine that could hold its pods, and prices what a launch would pay
//     (finish.go).
//  4. Package repack looks for cheaper fleets through Placement (placement.go). Its pods pass the same rules. Take keeps
//     the better of both.
//
// Check verifies a result with none of the code that found it (check.go).
//
// # Invariants
//
// Pods are only added, so a refusal that is marked final is remembered and never asked again. The same problem gives
// the same result; the Memory of an earlier result is part of the problem.
package solve
