// Package telemetry defines every metric name, every event reason and the format of the log, which dashboards, alerts and scripts of
// users read. Each name is in one table of this package; the reference pages are generated from the tables.
//
// Metrics are counted through a Metrics value (metrics_*.go, by subject), events are published through an Events value (events.go,
// reasons.go), and the logger is in the context (log.go). Gauges about the present state of the cluster (gauges.go) are not kept up to
// date, but made from the newest snapshot when they are scraped, see package observe. loops.go watches that loops work. historic.go
// gives metrics the names of earlier releases.
package telemetry
