// Package kubescore computes the scores by which kube-scheduler's default profile, version 1.36, chooses among nodes: TaintToleration (with
// weight TaintsWeight), NodeResourcesLeastAllocated and NodeResourcesBalancedAllocation.
//
// Scores for affinity, spread and images are left out, and so is the sampling of nodes in clusters of more than a hundred. The package does
// not decide where a pod fits.
package kubescore

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resources "k8s.io/component-helpers/resource"
)

// top is the best score. TaintsWeight is the weight of Welcome; the other scores have weight 1.
const (
	top          = 100
	TaintsWeight = 3
)

// A Request is what a pod asks for of CPU (thousandths) and of memory (bytes).
type Request struct{ CPU, Memory int64 }

// Plus adds two requests.
func (r Request) Plus(more Request) Request { return Request{r.CPU + more.CPU, r.Memory + more.Memory} }

// Minus takes one request off another.
func (r Request) Minus(less Request) Request {
	return Request{r.CPU - less.CPU, r.Memory - less.Memory}
}

// guessed is what LeastAllocated assumes for a container without requests.
var guessed = corev1.ResourceList{
	corev1.ResourceCPU:    *resource.NewMilliQuantity(100, resource.DecimalSI),
	corev1.ResourceMemory: *resource.NewQuantity(200<<20, resource.BinarySI),
}

// An Asked is what a pod requests, and what kube-scheduler assumes that it requests.
type Asked struct{ Request, Guessed Request }

// Of returns what a pod requests.
func Of(p *corev1.Pod) Asked {
	return Asked{requestOf(p, resources.PodResourcesOptions{}),
		requestOf(p, resources.PodResourcesOptions{NonMissingContainerRequests: guessed})}
}

// requestOf returns the CPU and memory that a pod requests, computed with options of Kubernetes' own function.
func requestOf(p *corev1.Pod, o resources.PodResourcesOptions) Request {
	r := resources.PodRequests(p, o)
	return Request{r.Cpu().MilliValue(), r.Memory().Value()}
}

// A Load describes a node: what it has for pods, what its pods request, and what kube-scheduler assumes that they
// request.
type Load struct{ Has, Used, Guessed Request }

// Score returns kube-scheduler's score of a node for one more pod, of LeastAllocated and BalancedAllocation.
func (l *Load) Score(pod Asked) int64 {
	return leastAllocated(l.Guessed.Plus(pod.Guessed), l.Has) + balancedAllocation(l.Used, l.Used.Plus(pod.Request), l.Has)
}

// leastAllocated returns a score that is higher the more of the node is free once the pod is there.
func leastAllocated(used, has Request) int64 {
	left := func(used, has int64) int64 {
		if has == 0 || used > has {
			return 0
		}
		return (has - used) * top / has
	}
	switch {
	case has.CPU == 0 && has.Memory == 0:
		return 0
	case has.CPU == 0:
		return left(used.Memory, has.Memory)
	case has.Memory == 0:
		return left(used.CPU, has.CPU)
	}
	return (left(used.CPU, has.CPU) + left(used.Memory, has.Memory)) / 2
}

// balancedAllocation returns a score that is higher the more evenly CPU and memory are used with the pod, compared
// with before.
func balancedAllocation(before, after, has Request) int64 {
	if after == before {
		return 0
	}
	evenness := func(used Request) int64 {
		if has.CPU == 0 || has.Memory == 0 {
			return top
		}
		cpu, memory := min(1, float64(used.CPU)/float64(has.CPU)), min(1, float64(used.Memory)/float64(has.Memory))
		return int64((1 - math.Abs((cpu-memory)/2)) * top)
	}
	return top/2 + (top/2+evenness(after)-evenness(before))/2
}

// Welcome returns the score of a node by its number of PreferNoSchedule taints that the pod does not tolerate. most
// is that number of the worst node.
func Welcome(taints, most int64) int64 {
	if most == 0 {
		return top
	}
	return top - top*taints/most
}
