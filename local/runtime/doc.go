// Package runtime is the container runtime of the nodes that the controller's pods run on: what their image would do, a
// process of this very binary does.
//
// A container gets what its pod says: environment, arguments, probes, restarts, grace, the token of its service account,
// and its limits, as those of Go's runtime. It does not get a file system, a user or a network of its own: volumes and
// security contexts count for nothing, and each of its ports is some free port on the loopback address, which is known to
// package egress. Pods with other images are not touched.
package runtime
