// Package repack makes a plan cheaper. It connects package solve, which places pods by the rules, and package pack, which knows numbers but
// no rules. It asks the packer for a cheaper fleet for the pods of the new nodes, places the pods again by its answer, and proves how cheap
// any plan could be. Run (repack.go) is the entry.
//
// # Words
//
//	placement   a plan in the making (solve.Placement); an idea is a placement that may become the result
//	question    a problem for the packer, and how to read its answer (question.go)
//	item        pods of one class and variant that are counted in the same domains; a class of the packer
//	pins        the domains that an item's node has to be in, by topology key
//	reading     a variant of a class: one way to read the terms of its pods
//	want        what one reading of an item leaves of a template: shapes and offers
//	kind        items that want the same of every template
//	cell        what a node can be bought as: a template with one list of machines that a launch may send (cells.go)
//	frozen      a new node that does not change, because the packer cannot express the rules of its pods
//	seating     the pods of a node that assign is about to open (seats.go)
//
// # From a placement to a cheaper one
//
// A question collects the pods of all new nodes that are not frozen. Rules about one host become a cap for each node and pairs of items
// that may not meet. The packer's answer is replayed: nodes are opened in the domains of their items, and the pods pass the same rules as
// at first. If a rule refuses a pod, the answer is dropped. If pods are kept apart on a host in a way that the packer cannot express,
// assign.go asks how many pods of each size a node gets: without such rules, or, if that opens too few nodes, with a limit for each node
// of the rules that force many. seats.go then chooses the pods. Commitments are rows of the question (rows.go).
//
// For a few pods that are spread over zones, askChoosing asks another question first. In every zone are as many of the pods as every plan
// has there; the packer chooses zones for the rest. It does not know that a zone takes at most one of the rest, so these are placed last,
// and a pod that a rule refuses gets another place. If prices differ between zones, the node of such a pod is bought in one zone: once a
// spread counts a pod, the launch of its node may not choose among zones.
//
// reorder.go tries other orders of placing for a few pods.
//
// # Bounds
//
// The packer bounds its own question. That bound holds for every plan if each item has one reading, all cells are known and cost what a
// node costs, and nothing is limited or frozen (plain, exact). Otherwise bound.go asks a looser question, which allows all that a plan
// may do, so that no plan costs less. It keeps only the domains that every plan fills, the host rules that hold in any order, and the size
// policy if no plan has to break it.
//
// That leaves a gap: of pods spread over zones, the rest may all be in one zone in the bound. One tree of branches for each zone, with
// prices for leaving a pod to another zone, was tried: with hundreds of times the work, most of 45 open bounds came from 2-4 % to 0.5-2 %.
package repack
