// Package podclass groups pods with equal scheduling input.
//
// A Class is everything of a pod that decides where it may run, except its labels, interned: two pods have the same
// *Class pointer exactly when their scheduling input is equal. Labels are interned on their own, because most of them
// (StatefulSet ordinals, hashes) matter to no selector; package compile finds out which ones do.
//
// An Interner belongs to one writer. A class without holders is forgotten after a while, so that pods with a
// volume or selector of their own do not pile up for ever.
package podclass

import corev1 "k8s.io/api/core/v1"

// A Class is one interned scheduling input.
type Class struct {
	ID uint32 // dense, in order of first sight, never reused within one Interner
	// Namespace and Spec are the input: a copy of the spec of the first pod seen, cut down to what scheduling reads (names,
	// images, env, probes are gone; container resources, ports, restart policies, volumes that can bind to a place,
	// node selector, affinity, tolerations, spread, overhead, priority, resource claims, scheduler name remain).
	// While a container is being resized its requests are the larger of what it has and what it asks for.
	// The affinity that the DaemonSet controller adds to name one node is gone too: it is not part of the question.
	Namespace string
	Spec      *corev1.PodSpec

	entry[digest]
}

// Labels is one interned label set.
type Labels struct {
	ID  uint32
	Map map[string]string // never changed
	// Template identifies the labels that the pod's template decides: without those that admission adds when a pod is bound. From
	// Kubernetes 1.35 on it copies the topology labels of the node.
	Template Identity

	entry[digest]
}
