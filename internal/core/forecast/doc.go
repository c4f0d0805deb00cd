// Package forecast learns at what times of the day pods come, and says how many are expected.
//
// Levels finds out which pods are arrivals: a workload has more pods than at any time in the last quarter of an hour. A pod that takes the
// place of another one is none, whether it was evicted, restarted or rolled out. A History counts the arrivals of one NodePool or
// CapacityBuffer by class and by five minutes of the day, for four weeks. What is expected is a quantile of what came in the same five
// minutes of earlier days, of which older ones count less.
//
// A History is bounded: so many days, so many classes, so many bytes. Times are arguments; they are read in the time zone that they carry.
package forecast
