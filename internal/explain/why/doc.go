// Package why finds what a user can change: for a pod that waits, the smallest change of a pool or of the pod itself that gives it a place.
//
// Nothing is guessed from the refusal. Each change is made on a copy of the question, and the engine plans with it. A change is named only
// if the plan places the pod, with the place and the price. Changes are tried one by one. If none helps, two and three of them together are
// tried, those of one pool and of the pod; more than three are no advice. All pods of one owner that request the same are edited together,
// because users edit a workload and not one replica.
//
// Terms:
//
//	change  one edit of a pool or of the pod, such as a limit that is raised (change.go).
//	        It begins as wide as it goes, such as without any limit (space.go).
//	cure    changes that together give the pod a place; each is narrowed to what is needed
//	idle    a pool that launches nothing because of its node class
//	quick   a plan without search for a cheaper fleet, to find out whether a change helps; prove makes a full one
//
// Read Ask in pod.go first. order.go sorts reasons for the answer.
package why
