// Package why answers what would have to be different: for a pod that waits, the smallest change of a pool or of the pod itself that
// gives it a place.
//
// Nothing is guessed from the refusal. Each change is made on a copy of the question, the engine plans with it, and only what really
// places the pod is named, with where it goes then and what that costs. Changes are tried one by one; where none helps, two and three of
// them together, those of one pool and of the pod; more than three is no advice. The pods that are edited are those of one owner that ask
// for the same: users do not edit one replica alone.
package why
