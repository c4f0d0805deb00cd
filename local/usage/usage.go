// Package usage says how much of a machine pods and nodes use, as metrics.k8s.io, which kubectl top and the
// HorizontalPodAutoscaler ask.
//
// Nothing is measured. A container uses what its pod's annotations say, those by which KWOK gets the same, or else a share of
// its requests. What it uses now it has used ever since it began: load comes and goes with the annotation.
package usage

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/metrics/pkg/apis/metrics"
)

// What pods are annotated with: the usage of each of their containers.
const (
	CPUAnnotation    = "kwok.x-k8s.io/usage-cpu"
	MemoryAnnotation = "kwok.x-k8s.io/usage-memory"
)

// share is which part of its requests a container uses without an annotation, in percent.
const share = 50

var (
	// least is what a container uses that requests nothing.
	least = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1m"), corev1.ResourceMemory: resource.MustParse("1Mi")}
	// system is what a node uses without pods: its kernel, kubelet and container runtime.
	system = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("20m"), corev1.ResourceMemory: resource.MustParse("200Mi")}
)

// Of is what the containers of a pod use. A pod that does not run uses nothing.
func Of(p *corev1.Pod) []metrics.ContainerMetrics {
	if p.Status.Phase != corev1.PodRunning {
		return nil
	}
	var all []metrics.ContainerMetrics
	for _, c := range running(p) {
		all = append(all, metrics.ContainerMetrics{Name: c.Name, Usage: corev1.ResourceList{
			corev1.ResourceCPU:    used(corev1.ResourceCPU, p.Annotations[CPUAnnotation], c),
			corev1.ResourceMemory: used(corev1.ResourceMemory, p.Annotations[MemoryAnnotation], c),
		}})
	}
	return all
}

// running are the containers that a pod has for as long as it runs.
func running(p *corev1.Pod) []corev1.Container {
	all := p.Spec.Containers
	for _, c := range p.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			all = append(all[:len(all):len(all)], c)
		}
	}
	return all
}

// used is how much of a resource a container uses. A word that is no amount says nothing.
func used(name corev1.ResourceName, said string, c corev1.Container) resource.Quantity {
	if amount, err := resource.ParseQuantity(said); err == nil && amount.Sign() >= 0 {
		return amount
	}
	requested, known := c.Resources.Requests[name]
	if !known {
		return least[name].DeepCopy()
	}
	if name == corev1.ResourceCPU {
		return *resource.NewMilliQuantity(requested.MilliValue()*share/100, resource.DecimalSI)
	}
	return *resource.NewQuantity(requested.Value()*share/100, resource.BinarySI)
}

// OfNode is what a node uses that has these pods.
func OfNode(pods []corev1.Pod) corev1.ResourceList {
	sum := system.DeepCopy()
	for i := range pods {
		for _, c := range Of(&pods[i]) {
			for name, amount := range c.Usage {
				total := sum[name]
				total.Add(amount)
				sum[name] = total
			}
		}
	}
	return sum
}
