// Package repack stands between solve, which places pods by the rules, and pack, which knows numbers and nothing of rules: it asks the
// packer for a cheaper fleet, carries the answer out, and proves how cheap a fleet could be.
//
// A question takes the new nodes of a placement apart (question.go). Their pods become items: those of one class
// and variant that are counted in the same domains. What a node can be bought as becomes cells: for each template
// what any set of items leaves of it together, and of that each list of machines that a launch may send (cells.go).
// Host-level rules become caps for each node and pairs of items that keep apart; nodes whose pods are tied by more
// than that are frozen, and stay as they are. The answer is replayed: nodes are opened in the domains of their
// items, and the pods go through the same rules as at first (repack.go). A rule that refuses one spoils the answer.
//
// Where pods of many sizes are held apart on a host, the packer is asked without that rule how many of each size a node gets, and the rule
// decides which (assign.go).
//
// The packer's bound is about its own question. It is ours where every item can be read in one way only, every cell
// is there and costs what a node costs, and nothing is limited or frozen (plain, exact). Else the bound is a
// question of its own (bound.go), which is loose: whatever any plan may do is allowed, so that no plan costs less
// than its bound. Domains are forgotten but for those that every plan fills, and of host-level rules it keeps what
// holds in any order. Machines are as large as the policy about sizes lets them be, where nothing makes a plan
// leave it.
//
// A few pods that are spread over zones are asked about once more before: in every zone are as many of them as
// every plan has there, and the packer says where those go that are left (askChoosing). It does not know that no
// zone takes two of them, so when its answer is placed they come last, the rules are asked, and whom they refuse
// gets another place. Its zones are kept where they make the fleet cheaper, and then each is packed as well as it
// can be. Where a machine does not cost the same in all zones, the node of such a pod is bought in one of them, for
// the packer as for the bound: a launch that chose among all zones would cost less, but it may not stay open where
// a pod is that is counted.
//
// What such a bound does not cover: of pods that are spread over zones those that are left when every zone has as
// many may all be in one zone, as long as they are on different nodes, and the packer bounds all zones in one tree,
// which has as many branches as three have multiplied. One tree for each zone, with a price at which a zone may
// leave such a pod to the others, adds them up instead. It was tried: with 25 rounds for the prices, and a second
// of work for each tree, which is hundreds of times what there is, most of 45 bounds that were open at two to four
// percent came to between half a percent and two, and a handful closed.
package repack
