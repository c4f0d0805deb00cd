// Package operator puts Karpenter together: settings, telemetry, the store and its watch, services, loops, leader election.
//
// Everything is wired in Run (run.go), from top to bottom. A replica that does not lead only keeps its store up to date, so that it can
// act at once when it becomes the leader. A leader that loses its lease stops its loops first and then the program.
//
// settings.go has all settings; clients.go the clients of the API server; election.go the lease; serve.go the listeners for metrics,
// probes and the page, with guard.go (who may read) and scrape.go (metrics); history.go, journal.go, record.go and snapshot.go what is
// kept or served of decisions.
package operator
