// Package lifecycle says what a NodeClaim needs next, from its creation until its machine is gone.
//
// Next is called on every change and gives the same answer until the world changes, so a restarted controller goes on where the
// last one stopped. It never calls anybody: launching, writing and deleting are the shell's, and the outcome of a launch is an argument
// back through Launched and Failed. End is the same for a claim that is being deleted.
package lifecycle
