// Package forecast learns at what times of the day pods come, and expects as many at these times later.
//
//	levels.go   [Levels] finds arrivals: pods by which a workload has more pods than at any time in the last quarter of an hour. A pod
//	            that replaces another one (after an eviction, a restart or a rollout) is no arrival
//	history.go  [History] counts the arrivals of one NodePool or CapacityBuffer, by class and slot, for four weeks. A slot is five
//	            minutes of a day. A class is the pods of one workload, with its newest template
//	expect.go   [History.Expect]: a quantile of what came in the same slot of earlier days that are alike. Older days count less. A model
//	            says which days are alike: all, weekdays or weekends, or the same day of the week
//	balance.go  [Balance] compares what unused room cost with what it saved, and switches learning off if it does not pay
//	report.go   what users see of all this
//
// The size of a History is bounded: days, classes, slots and bytes. Times are arguments; they are read in their own time zone.
package forecast
