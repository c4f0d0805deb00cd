// Package kubescore holds the scores by which kube-scheduler's default profile, version 1.36, tells nodes apart:
// how many unwelcoming taints a node has counts three times as much as how empty it would be and how evenly filled.
//
// Scores for affinity, spread and images are left out, and so is the sampling of nodes in clusters of more than a
// hundred. Who fits where is not decided here.
package kubescore

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resources "k8s.io/component-helpers/resource"
)

// top is the best score, TaintsWeight how much Welcome counts beside the others.
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

// guessed is what kube-scheduler takes a container for that does not say what it needs, when it looks for the emptiest node.
var guessed = corev1.ResourceList{
	corev1.ResourceCPU:    *resource.NewMilliQuantity(100, resource.DecimalSI),
	corev1.ResourceMemory: *resource.NewQuantity(200<<20, resource.BinarySI),
}

// Asked is what a pod asks for, and what kube-scheduler takes it for.
type Asked struct{ Request, Guessed Request }

// Of returns what a pod asks for.
func Of(p *corev1.Pod) Asked {
	return Asked{requestOf(p, resources.PodResourcesOptions{}),
		requestOf(p, resources.PodResourcesOptions{NonMissingContainerRequests: guessed})}
}

func requestOf(p *corev1.Pod, o resources.PodResourcesOptions) Request {
	r := resources.PodRequests(p, o)
	return Request{r.Cpu().MilliValue(), r.Memory().Value()}
}

// A Load is a node: what it has for pods, what they ask for, and what kube-scheduler takes them for.
type Load struct{ Has, Used, Guessed Request }

// Score says how much kube-scheduler likes the node for one more pod, by what it has to give.
func (l *Load) Score(pod Asked) int64 {
	return leastAllocated(l.Guessed.Plus(pod.Guessed), l.Has) + balancedAllocation(l.Used, l.Used.Plus(pod.Request), l.Has)
}

// leastAllocated prefers the node that is emptiest once the pod is there.
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

// balancedAllocation prefers the node whose CPU and memory are more evenly used with the pod than without it.
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

// Welcome is the score of a node with so many taints that would rather not have the pod, where the worst node has most.
func Welcome(taints, most int64) int64 {
	if most == 0 {
		return top
	}
	return top - top*taints/most
}
