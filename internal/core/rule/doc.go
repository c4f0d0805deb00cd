// Package rule is the home of what kinds of constraints keep count of, one package parallel: ports and volumes by
// bin, spread (topology spread, affinity and anti-affinity) by domain, limits by pool. Each knows bins, domains and
// pools as numbers and nothing of its neighbours.
//
// What a kind has to say when pods are placed stands in package solve, a file for each kind; see kinds.go there.
// Room, labels and taints keep no count of their own: they are columns of the problem.
package rule
