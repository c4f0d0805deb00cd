package hardware

import (
	"maps"
	"math"
	"math/big"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/aws/awsdata"
	"karpenter.sh/karpenter/internal/aws/formula"
	"karpenter.sh/karpenter/internal/kit/bounded"
)

// overheadOf returns what the kubelet keeps of a node's capacity.
func overheadOf(t *awsdata.InstanceType, c *Class, capacity corev1.ResourceList) cloud.Overhead {
	return cloud.Overhead{
		KubeReserved:      kubeReserved(t, c),
		SystemReserved:    systemReserved(t, c),
		EvictionThreshold: evictionThreshold(c.Kubelet.EvictionHard, capacity),
	}
}

// kubeReserved returns what the kubelet reserves for Kubernetes' daemons: the default of the images' bootstrap,
// overridden by the class.
func kubeReserved(t *awsdata.InstanceType, c *Class) corev1.ResourceList {
	out := corev1.ResourceList{
		corev1.ResourceCPU:              *resource.NewMilliQuantity(reservedMilliCPU(t.VCPU.Default), resource.DecimalSI),
		corev1.ResourceMemory:           *resource.NewQuantity(int64(11*reservedForPods(t, c)+255)*mib, resource.BinarySI),
		corev1.ResourceEphemeralStorage: *resource.NewQuantity(gib, resource.BinarySI),
	}
	maps.Copy(out, c.Kubelet.KubeReserved)
	addAmounts(out, c.Kubelet.KubeFormulas, t, c)
	return out
}

// systemReserved returns what the class reserves for system daemons.
func systemReserved(t *awsdata.InstanceType, c *Class) corev1.ResourceList {
	if len(c.Kubelet.SystemFormulas) == 0 {
		return c.Kubelet.SystemReserved
	}
	out := corev1.ResourceList{}
	maps.Copy(out, c.Kubelet.SystemReserved)
	addAmounts(out, c.Kubelet.SystemFormulas, t, c)
	return out
}

// addAmounts adds the values of formulas for a machine, without process ids, which no pod requests.
func addAmounts(to corev1.ResourceList, formulas map[string]*formula.Formula, t *awsdata.InstanceType, c *Class) {
	for name, text := range amounts(formulas, t, c) {
		if q, err := bounded.ParseQuantity(text); err == nil && name != "pid" {
			to[corev1.ResourceName(name)] = q
		}
	}
}

// reservedForPods returns the number of pods for which a family's bootstrap reserves memory. Amazon Linux counts
// interfaces, whatever maxPods is; Bottlerocket and Windows count the real number of pods.
func reservedForPods(t *awsdata.InstanceType, c *Class) int {
	if c.Family == awsv1.AMIFamilyBottlerocket || WindowsBuild(c.Family) != "" {
		return podsOf(t, c)
	}
	return interfacePods(t, c, 0)
}

// reservedMilliCPU returns the CPU that the images' bootstrap reserves by default: 6 % of the first core, 1 % of the
// second, 0.5 % of the next two and 0.25 % of all others.
func reservedMilliCPU(cores int) int64 {
	// so many milli-CPU for each so many of a tier's cores
	tiers := []struct{ cores, milli, each int64 }{{1, 60, 1}, {1, 10, 1}, {2, 5, 1}, {math.MaxInt32, 5, 2}}
	left, total := int64(cores), int64(0)
	for _, tier := range tiers {
		n := min(left, tier.cores)
		total += n * tier.milli / tier.each
		left -= n
	}
	return total
}

// evictionThreshold returns the memory and disk that the kubelet keeps free by evicting. Soft thresholds reserve
// nothing.
func evictionThreshold(hard map[string]string, capacity corev1.ResourceList) corev1.ResourceList {
	memory := *resource.NewQuantity(100*mib, resource.BinarySI)
	disk := percentOf(capacity[corev1.ResourceEphemeralStorage], "10%")
	if v, ok := hard["memory.available"]; ok {
		memory = threshold(v, capacity[corev1.ResourceMemory])
	}
	if v, ok := hard["nodefs.available"]; ok {
		disk = threshold(v, capacity[corev1.ResourceEphemeralStorage])
	}
	return corev1.ResourceList{corev1.ResourceMemory: memory, corev1.ResourceEphemeralStorage: disk}
}

// threshold reads a signal's value: a quantity, or a percentage of what there is. Other text reserves nothing;
// validation of the class reports it.
func threshold(value string, of resource.Quantity) resource.Quantity {
	if strings.HasSuffix(value, "%") {
		return percentOf(of, value)
	}
	q, err := bounded.ParseQuantity(value)
	if err != nil {
		return resource.Quantity{}
	}
	return q
}

// percentOf returns a percentage, rounded up to whole bytes. For the kubelet 100 % means that the signal is off, so
// it is 0.
func percentOf(of resource.Quantity, percent string) resource.Quantity {
	percent = strings.TrimSuffix(percent, "%")
	p, ok := new(big.Rat), false
	if f, err := strconv.ParseFloat(percent, 64); err == nil && f > 0 { // 1e-1000000 is written out otherwise
		p, ok = p.SetString(percent)
	}
	if !ok || p.Cmp(big.NewRat(100, 1)) >= 0 {
		return *resource.NewQuantity(0, resource.BinarySI)
	}
	p.Mul(p, big.NewRat(of.Value(), 100))
	whole := new(big.Int).Add(p.Num(), new(big.Int).Sub(p.Denom(), big.NewInt(1)))
	whole.Quo(whole, p.Denom())
	return *resource.NewQuantity(whole.Int64(), resource.BinarySI)
}
