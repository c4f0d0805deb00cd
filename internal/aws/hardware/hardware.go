// Package hardware turns what EC2 says about an instance type, and what a node class asks for, into what Karpenter needs to
// know: labels, capacity, what system daemons keep, volumes that can be attached.
//
// It is pure: the same type and the same class give the same answer, with no call to AWS. What depends on place and
// price (zones, capacity types, reservations) is not here but in package offer.
package hardware

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/aws/awsdata"
	"karpenter.sh/karpenter/internal/aws/formula"
)

// A Class holds what of a node class and of the settings decides about the machines of every type.
type Class struct {
	Family                  string // resolved AMI family
	Kubelet                 Kubelet
	BlockDevices            []BlockDevice // the class's own, not the family's defaults
	RAID0                   bool          // instance store disks become the node's ephemeral storage
	Interfaces              []Interface   // configured network interfaces; empty for EC2's default
	ReservedENIs            int
	VMMemoryOverheadPercent float64 // 0.075 is 7.5 %
}

// Kubelet is the part of the kubelet's configuration that decides about capacity.
type Kubelet struct {
	MaxPods        *int32
	MaxPodsFormula *formula.Formula // instead of MaxPods
	PodsPerCore    *int32
	// KubeReserved and SystemReserved hold the keys that the class sets to a quantity.
	KubeReserved, SystemReserved corev1.ResourceList
	// KubeFormulas and SystemFormulas hold the keys that the class sets to a formula.
	KubeFormulas, SystemFormulas map[string]*formula.Formula
	// EvictionHard holds thresholds by signal: a quantity, or a percentage such as "5%".
	EvictionHard map[string]string
}

// A BlockDevice is one mapping of the class.
type BlockDevice struct {
	Name  string
	Size  *resource.Quantity // nil when the class gives none
	Root  bool
	IsEBS bool
}

// An Interface is one configured network interface.
type Interface struct {
	Card, Device int
	EFAOnly      bool
}

// WindowsBuild returns the build number of a Windows family, "" for the others.
func WindowsBuild(family string) string {
	switch family {
	case awsv1.AMIFamilyWindows2019:
		return "10.0.17763"
	case awsv1.AMIFamilyWindows2022:
		return "10.0.20348"
	case awsv1.AMIFamilyWindows2025:
		return "10.0.26100"
	}
	return ""
}

// Usable reports whether Karpenter can launch a type at all: a hardware virtual machine of a known architecture.
func Usable(t *awsdata.InstanceType) bool {
	return slices.Contains(t.VirtualizationTypes, "hvm") && Arch(t) != ""
}

// Arch returns the Kubernetes name of a type's architecture, "" if Kubernetes does not run on it.
func Arch(t *awsdata.InstanceType) string {
	for _, a := range t.Processor.Architectures {
		switch a {
		case "x86_64":
			return "amd64"
		case "arm64":
			return "arm64"
		}
	}
	return ""
}

// Describe returns what a machine of type t is for class c, without offerings and the labels that they decide.
func Describe(t *awsdata.InstanceType, region string, c *Class) *cloud.InstanceType {
	it := Size(t, c, 0)
	it.Labels = Labels(t, region, c.Family)
	return it
}

// Size is Describe without labels. memory, when positive, is the memory in bytes that nodes of this type were seen
// to have.
func Size(t *awsdata.InstanceType, c *Class, memory int64) *cloud.InstanceType {
	capacity := capacityOf(t, c)
	// Percentages are of the estimate, so that a node seen once does not change what is reserved.
	overhead := overheadOf(t, c, capacity)
	if memory > 0 {
		capacity[corev1.ResourceMemory] = *resource.NewQuantity(memory, resource.BinarySI)
	}
	return &cloud.InstanceType{
		Name:         t.Name,
		Capacity:     capacity,
		Overhead:     overhead,
		VolumeLimits: map[string]int{EBSDriver: volumeLimit(t, c)},
		Devices:      deviceSlices(t),
		Exotic:       exotic(t),
	}
}

// exotic reports whether t is bare metal or carries accelerators: such a machine is launched only where no ordinary one does.
func exotic(t *awsdata.InstanceType) bool {
	_, size, _ := strings.Cut(t.Name, ".")
	return t.BareMetal || strings.Contains(size, "metal") ||
		t.GPU != nil || t.Neuron != nil || t.Inference != nil || t.FPGA != nil || t.Media != nil
}

// Compatible returns why no machine of type t can be launched for class c with the features that it asks for (w), ""
// if it can.
func Compatible(t *awsdata.InstanceType, c *Class, w Wishes) string {
	family, _, _ := strings.Cut(t.Name, ".")
	switch {
	case family == "a1" && c.Family == awsv1.AMIFamilyAL2023:
		return "a1 processors lack instructions that AL2023 needs"
	case w.PlacementStrategy != "" && !slices.Contains(t.Placement.Strategies, w.PlacementStrategy):
		return "the type supports no " + w.PlacementStrategy + " placement groups"
	case w.NestedVirtualization && !slices.Contains(t.Processor.Features, "nested-virtualization"):
		return "the type supports no nested virtualization"
	case w.Enclaves && t.NitroEnclaves != "supported":
		return "the type supports no Nitro enclaves"
	case w.ConnectionTracking && t.Hypervisor != "nitro":
		return "connection tracking can be set on Nitro only"
	}
	return interfacesFit(t, c.Interfaces)
}

// Wishes are features that a class asks of a machine.
type Wishes struct {
	PlacementStrategy    string
	NestedVirtualization bool
	ConnectionTracking   bool
	Enclaves             bool
}

// interfacesFit returns why a type cannot have the wanted interfaces, "" if it can.
func interfacesFit(t *awsdata.InstanceType, wanted []Interface) string {
	efa := 0
	for _, n := range wanted {
		i := slices.IndexFunc(t.Network.Cards, func(card awsdata.Card) bool { return card.Index == n.Card })
		switch {
		case i < 0:
			return "the type has too few network cards"
		case n.Device >= t.Network.Cards[i].MaxInterfaces:
			return "the network card has too few interfaces"
		}
		if n.EFAOnly {
			efa++
		}
	}
	switch {
	case len(wanted) > 0 && t.Network.ENA != "required" && t.Network.ENA != "supported":
		return "the type has no enhanced networking"
	case efa > t.Network.EFA.Max:
		return "the type has too few EFA interfaces"
	}
	return ""
}
