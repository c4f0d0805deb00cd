package hardware

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	"karpenter.sh/karpenter/internal/aws/awsdata"
)

const (
	mib = int64(1) << 20
	gib = int64(1) << 30

	// windowsPods is the number of pods of a Windows node: its plug-in hands out addresses, not interfaces.
	windowsPods = 110
	// arm64Firmware is the memory that an arm64 machine's firmware keeps before the system sees it.
	arm64Firmware = 64
)

// capacityOf returns what a node of type t will report, with its memory estimated.
func capacityOf(t *awsdata.InstanceType, c *Class) corev1.ResourceList {
	out := corev1.ResourceList{
		corev1.ResourceCPU:              *resource.NewQuantity(int64(t.VCPU.Default), resource.DecimalSI),
		corev1.ResourceMemory:           *resource.NewQuantity(memoryOf(t, c), resource.BinarySI),
		corev1.ResourceEphemeralStorage: ephemeralStorage(t, c),
		corev1.ResourcePods:             *resource.NewQuantity(int64(podsOf(t, c)), resource.DecimalSI),
	}
	for name, n := range devices(t, c) {
		if n > 0 {
			out[name] = *resource.NewQuantity(int64(n), resource.DecimalSI)
		}
	}
	return out
}

// memoryOf estimates the memory in bytes that a node of type t will report.
func memoryOf(t *awsdata.InstanceType, c *Class) int64 {
	size := t.Memory.MiB
	if t.Processor.Architectures[0] == "arm64" {
		size -= arm64Firmware
	}
	return (size - int64(math.Ceil(float64(size)*c.VMMemoryOverheadPercent))) * mib
}

// podsOf returns how many pods a node of type t will hold: maxPods, its formula, or what its network addresses allow,
// and never more than podsPerCore times its CPUs.
func podsOf(t *awsdata.InstanceType, c *Class) int {
	pods := defaultPods(t, c)
	if c.Kubelet.MaxPods != nil {
		pods = int(*c.Kubelet.MaxPods)
	}
	if f := c.Kubelet.MaxPodsFormula; f != nil {
		if n, err := f.Pods(machineOf(t, pods)); err == nil { // FormulaErrors reports an error to the class's owner
			pods = int(n)
		}
	}
	if per := c.Kubelet.PodsPerCore; per != nil && *per > 0 && c.Family != awsv1.AMIFamilyBottlerocket { // which has no such setting
		pods = min(pods, int(*per)*t.VCPU.Default)
	}
	return pods
}

// defaultPods returns how many pods a node of type t holds if the class says nothing.
func defaultPods(t *awsdata.InstanceType, c *Class) int {
	if WindowsBuild(c.Family) != "" {
		return windowsPods
	}
	return interfacePods(t, c, c.ReservedENIs)
}

// interfacePods returns how many pods the addresses of the default card's interfaces allow. Each interface keeps one
// address for itself, and two pods on the host's network need none. reserved interfaces are not for pods.
func interfacePods(t *awsdata.InstanceType, c *Class, reserved int) int {
	enis := defaultCardInterfaces(t) - reserved
	for _, n := range c.Interfaces {
		if n.EFAOnly && n.Card == 0 {
			enis--
		}
	}
	if enis <= 0 {
		return 0
	}
	return enis*(t.Network.IPv4PerInterface-1) + 2
}

// defaultCardInterfaces returns how many interfaces the default network card takes.
func defaultCardInterfaces(t *awsdata.InstanceType) int {
	for _, card := range t.Network.Cards {
		if card.Index == t.Network.DefaultCard {
			return card.MaxInterfaces
		}
	}
	return t.Network.MaxInterfaces
}

// ephemeralStorage returns the size of the disk that pods write to. The first that exists counts: instance store as
// RAID0, the class's root mapping, its mapping of the family's device, the family's default.
func ephemeralStorage(t *awsdata.InstanceType, c *Class) resource.Quantity {
	if c.RAID0 && t.Storage != nil && t.Storage.TotalGB > 0 {
		return *resource.NewQuantity(t.Storage.TotalGB*1_000_000_000, resource.DecimalSI)
	}
	for _, b := range c.BlockDevices {
		if b.Root && b.Size != nil {
			return *b.Size
		}
	}
	if c.Family == awsv1.AMIFamilyCustom {
		if n := len(c.BlockDevices); n > 0 && c.BlockDevices[n-1].Size != nil {
			return *c.BlockDevices[n-1].Size
		}
		return *resource.NewQuantity(20*gib, resource.BinarySI)
	}
	device, size := ephemeralDevice(c.Family)
	for _, b := range c.BlockDevices {
		if b.Name == device && b.Size != nil {
			return *b.Size
		}
	}
	return *resource.NewQuantity(size*gib, resource.BinarySI)
}

// ephemeralDevice returns the device on which a family's nodes keep container data, and its default size in GiB. For
// Custom it is not known.
func ephemeralDevice(family string) (device string, sizeGiB int64) {
	switch {
	case family == awsv1.AMIFamilyBottlerocket:
		return "/dev/xvdb", 20
	case WindowsBuild(family) != "":
		return "/dev/sda1", 50
	}
	return "/dev/xvda", 20
}

// devices counts the resources that device plugins and network controllers will report.
func devices(t *awsdata.InstanceType, c *Class) map[corev1.ResourceName]int {
	out := map[corev1.ResourceName]int{
		awsv1.ResourceAWSPodENI: awsdata.Branches(t.Name),
		awsv1.ResourceEFA:       efaInterfaces(t, c),
	}
	if t.GPU != nil {
		for _, g := range t.GPU.GPUs {
			out[gpuResource(g.Manufacturer)] += gpuCount(g)
		}
	}
	if t.Neuron != nil {
		for _, d := range t.Neuron.Devices {
			out[awsv1.ResourceAWSNeuron] += d.Count
			out[awsv1.ResourceAWSNeuronCore] += d.Count * d.Core.Count
		}
	}
	if WindowsBuild(c.Family) != "" && Arch(t) == "amd64" {
		out[awsv1.ResourcePrivateIPv4Address] = t.Network.IPv4PerInterface - 1
	}
	delete(out, "")
	return out
}

// gpuResource returns the resource of a manufacturer's device plugin, "" if there is none.
func gpuResource(manufacturer string) corev1.ResourceName {
	switch manufacturer {
	case "NVIDIA":
		return awsv1.ResourceNVIDIAGPU
	case "AMD":
		return awsv1.ResourceAMDGPU
	case "Habana":
		return awsv1.ResourceHabanaGaudi
	}
	return ""
}

// gpuCount returns the number of GPUs that a node's device plugin sees. Machines with a slice of a GPU have no whole
// GPU, but show one logical GPU.
func gpuCount(g awsdata.GPU) int {
	if g.Count == 0 {
		return g.Logical
	}
	return g.Count
}

// efaInterfaces returns how many EFA interfaces a machine has for pods: those that the class configures, or all if it
// configures none.
func efaInterfaces(t *awsdata.InstanceType, c *Class) int {
	if len(c.Interfaces) == 0 {
		return t.Network.EFA.Max
	}
	n := 0
	for _, i := range c.Interfaces {
		if i.EFAOnly {
			n++
		}
	}
	return n
}
