// Package operator puts Karpenter together: settings, telemetry, the store and its watch, services, loops, leader election.
//
// Everything is wired in Run, top to bottom. A replica that does not lead keeps its store warm and does nothing else, so a
// new leader acts at once; a leader that loses its lease stops its loops first and then the program.
package operator
