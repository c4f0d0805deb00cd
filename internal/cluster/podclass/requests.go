package podclass

import (
	"math"

	corev1 "k8s.io/api/core/v1"
)

// Requests returns what a pod counts for: the larger of its containers with sidecars and of every step of its start, plus
// overhead, with pod-level resources in place of the sum where they are set.
func Requests(spec *corev1.PodSpec) corev1.ResourceList {
	sum := corev1.ResourceList{}
	for i := range spec.Containers {
		addList(sum, spec.Containers[i].Resources.Requests)
	}
	sidecars, start := corev1.ResourceList{}, corev1.ResourceList{}
	for i := range spec.InitContainers {
		c := &spec.InitContainers[i]
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			addList(sidecars, c.Resources.Requests)
			maxList(start, sidecars)
			continue
		}
		step := sidecars.DeepCopy()
		addList(step, c.Resources.Requests)
		maxList(start, step)
	}
	addList(sum, sidecars)
	maxList(sum, start)
	if spec.Resources != nil {
		for name, q := range spec.Resources.Limits {
			if _, set := spec.Resources.Requests[name]; !set && ofWholePods(name) {
				sum[name] = q
			}
		}
		for name, q := range spec.Resources.Requests {
			if ofWholePods(name) {
				sum[name] = q
			}
		}
	}
	addList(sum, spec.Overhead)
	return sum
}

// ofWholePods reports whether a resource may be set for a pod as a whole.
func ofWholePods(name corev1.ResourceName) bool {
	const pages = corev1.ResourceHugePagesPrefix
	return name == corev1.ResourceCPU || name == corev1.ResourceMemory || len(name) > len(pages) && name[:len(pages)] == pages
}

func addList(sum, list corev1.ResourceList) {
	for name, q := range list {
		if old, ok := sum[name]; ok {
			if old.CmpInt64(math.MaxInt64/4) > 0 && q.Sign() > 0 {
				continue // far beyond any machine already
			}
			old.Add(q)
			sum[name] = old
			continue
		}
		sum[name] = q.DeepCopy()
	}
}

func maxList(list, other corev1.ResourceList) {
	for name, q := range other {
		if old, ok := list[name]; !ok || old.Cmp(q) < 0 {
			list[name] = q
		}
	}
}
