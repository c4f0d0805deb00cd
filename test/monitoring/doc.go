// Package monitoring tests what ships for Prometheus and Grafana, by Prometheus' own rule format and query engine:
// rules fire when they should and stay quiet when they should, on metrics that Karpenter's code makes; and rules,
// dashboards and the queries that people have name nothing that does not exist.
//
// It is a module of its own, so that nothing else has to build Prometheus.
package monitoring
