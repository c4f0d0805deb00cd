// Package lifecycle decides what a NodeClaim needs next, from its creation until its machine is gone.
//
// Next is called on every change of a claim or its Node and returns a Step: what package claim has to do now. It reads only its arguments
// and returns the same Step until they change, so a restarted controller goes on where the last one stopped. It makes no calls: package
// claim launches, writes and deletes, and passes the answer to a launch to Launched or Failed. End does the same for a claim that is being
// deleted.
//
// Files: next.go from launch to initialization, launch.go and node.go what a launched claim and a registered Node get, end.go deletion,
// upkeep.go conditions of a running node, reboot.go, repair.go and repairs.go broken nodes, trouble.go and health.go pools whose machines
// fail, orphan.go and inherit.go machines without a claim.
package lifecycle
