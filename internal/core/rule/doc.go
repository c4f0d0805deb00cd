// Package rule contains one package for each kind of constraint that keeps counts: ports, volumes and devices by bin, spread
// (topology spread, affinity and anti-affinity) by domain, limits by pool. Each knows bins, domains and pools as numbers
// and does not import the others.
//
// The rules by which these counts decide where a pod may be are in package solve, a file for each kind; see kinds.go there.
// Room, labels and taints have no package here: their numbers are in the problem.
package rule
