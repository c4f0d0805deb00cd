// Package memapi is a small Kubernetes API in memory, for tests of loops in bubbles of simulated time.
//
// It keeps what loops lean on: resource versions and optimistic locks, generations, status as a subresource, finalizers and
// deletion times, graceful deletion and eviction of pods under PodDisruptionBudgets, deletion of what an owner leaves
// behind. It knows no schemas, defaults or admission; what depends on those is tested against a real API server.
// Watchers see every change in order, as late as they like.
package memapi
