// Package solve places pods on existing nodes and opens new ones, class after class, and says why some found no place.
//
// It sees numbers only. A Problem holds pods grouped into classes, existing nodes, and templates of new ones; Place
// returns a Placement and a Result. What follows from the problem alone are facts (facts.go), nodes with their pods
// a fleet (fleet.go), the question whether a pod may join a node a trial (trial.go), which each kind of constraint
// narrows (kinds.go has the lists, and each kind a file).
//
// The stages: classes are placed one by one, on free room first, then on new nodes whose machine is chosen by price
// per worth (place.go, open.go, choose.go); that is played in the order in which kube-scheduler will take the pods,
// and what does not hold is mended (queue.go), with new nodes kept out of domains that pods do not reckon with
// (strange.go); finishing lists, for each new node, every machine that could hold its pods, and prices what a
// launch would pay (finish.go). Package repack, which knows cheaper fleets, sees and does what placement.go lets
// it: its pods pass the same rules, and Take decides whether its idea is the better one. Check verifies a result
// with none of the machinery that found it (check.go).
//
// A bin is an existing node or a new one, numbered in this order. A new bin has a target, the shape that it is filled for;
// the target may change at the end, when every shape that holds the pods is listed. Refusals that stay true while pods
// are only added are remembered; the others are asked again. The same problem gives the same result; the Memory of an earlier
// result, from which a problem that is nearly the same starts, is part of the problem.
package solve
