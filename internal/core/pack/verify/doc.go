// Package verify checks the answers of package pack: whether a fleet answers a packing problem, and whether its bound is proven. It also
// defines problems, fleets and proofs (problem.go, tree.go), so this package contains all that a bound rests on.
//
// It shares no code with package pack. Sums are whole numbers that stop before they overflow. [Check] (check.go) goes through a fleet node
// by node. [Verify] (verify.go) takes the worths of a [Certificate] and proves that no cell can hold items worth more than a node of it
// costs; its comment says why no fleet can then cost less than the bound. node.go is the search in one cell. It is short only with good
// prices of room (hint.go). These are hints: any prices give a true bound, bad ones a weak one. tree.go checks bounds in whole nodes.
package verify
