// Package telemetry holds every metric name, every event reason and the shape of the log: what other people's dashboards,
// alerts and scripts read. Each has one table here and stands nowhere else; the reference pages are made from the tables.
//
// Metrics are counted through a Metrics value, events published through an Events value, and the logger travels in the
// context. What describes the present state of the cluster is not kept up to date but read from the newest snapshot when
// it is scraped, see package observe.
package telemetry
