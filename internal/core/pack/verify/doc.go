// Package verify reports whether a fleet answers a packing problem and whether the bound that goes with it is proven. It also holds what
// such a problem, a fleet and a proof are, so that a reader of this package reads all that a bound rests on.
//
// It is the judge of package pack and shares nothing with it: no code, no shortcut, no estimate. Sums are whole
// numbers that stop before they overflow. [Check] goes through a fleet node by node. [Verify] takes the worths of a
// [Certificate] and searches every cell for contents worth more than a node of it costs; see there for why there is
// no cheaper fleet when it finds none. The search needs hints to be short, prices of room. Where they come from
// does not matter: any prices give a true bound, bad ones only a weak one.
package verify
