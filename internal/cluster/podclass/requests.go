package podclass

import (
	"maps"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Requests returns what a pod counts for, as kube-scheduler computes it: for each resource the larger of the sum of containers and
// sidecars and of each step of the start (an init container with the sidecars before it). Pod-level resources replace that if they are
// set. Overhead is added.
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

// What a container without a request counts for when kube-scheduler scores nodes, and when a new node is sized (Assumed).
var (
	assumedCPU    = resource.MustParse("100m")
	assumedMemory = resource.MustParse("200Mi")
)

// Assumed returns what a pod counts for if containers without a CPU or memory request have one, and whether that is more than Requests.
func Assumed(spec *corev1.PodSpec) (list corev1.ResourceList, more bool) {
	filled := *spec
	fill := func(containers []corev1.Container) []corev1.Container {
		out := slices.Clone(containers)
		for i := range out {
			requests := corev1.ResourceList{}
			maps.Copy(requests, out[i].Resources.Requests)
			for name, least := range map[corev1.ResourceName]resource.Quantity{
				corev1.ResourceCPU: assumedCPU, corev1.ResourceMemory: assumedMemory,
			} {
				if _, asked := requests[name]; !asked {
					requests[name] = least
				}
			}
			out[i].Resources.Requests = requests
		}
		return out
	}
	filled.Containers, filled.InitContainers = fill(spec.Containers), fill(spec.InitContainers)
	list = Requests(&filled)
	asked := Requests(spec)
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		had, is := asked[name], list[name]
		more = more || is.Cmp(had) > 0
	}
	return list, more
}

// ofWholePods reports whether a resource may be set at pod level: CPU, memory and huge pages.
func ofWholePods(name corev1.ResourceName) bool {
	const pages = corev1.ResourceHugePagesPrefix
	return name == corev1.ResourceCPU || name == corev1.ResourceMemory || len(name) > len(pages) && name[:len(pages)] == pages
}

// addList adds a list to sum. A sum that is far beyond any machine does not grow further, so that it cannot overflow.
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
