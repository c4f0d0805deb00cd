// Package rule is the home of the constraint kinds, one package each: ports, volumes, spread (topology spread, affinity and
// anti-affinity), limits. Taints, labels and room need no package: they are columns of the problem.
//
// Each kind keeps its own columns, indexed by class and by bin (an existing node or a new one), and answers two questions:
// may one more pod of this class join this bin, and what changes when it does. The solver knows classes and bins as
// numbers and asks the kinds in a fixed order, facts before choices.
package rule
