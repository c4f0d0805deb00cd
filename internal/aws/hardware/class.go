package hardware

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	"karpenter.sh/karpenter/internal/aws/formula"
	"karpenter.sh/karpenter/internal/kit/bounded"
)

// DefaultVMMemoryOverheadPercent is the share of a machine's memory that the hypervisor and the kernel are taken to keep.
const DefaultVMMemoryOverheadPercent = 0.075

// Settings of the controller that decide about capacity.
type Settings struct {
	// ReservedENIs is the number of interfaces of each machine that are not for pods.
	ReservedENIs int
	// VMMemoryOverheadPercent is the share of memory that a node does not see: 0.075 is 7.5 %.
	VMMemoryOverheadPercent float64
	// Formulas lets the kubelet's numbers depend on the machine. Without it, what is not a number counts as not set.
	Formulas bool
}

// ClassOf reads a node class; nil stands for AL2023 with every default. It fails for a kubelet configuration that
// cannot be decoded: with guessed defaults, plans would count on nodes that do not come.
func ClassOf(nc *awsv1.EC2NodeClass, s Settings) (*Class, error) {
	c := &Class{Family: awsv1.AMIFamilyAL2023, ReservedENIs: s.ReservedENIs, VMMemoryOverheadPercent: s.VMMemoryOverheadPercent}
	if nc == nil {
		return c, nil
	}
	if nc.Spec.AMIFamily != nil || len(nc.Spec.AMISelectorTerms) > 0 {
		c.Family = nc.AMIFamily()
	}
	managed, err := nc.Spec.Kubelet.Managed()
	if err != nil {
		return nil, err
	}
	if c.Kubelet, err = kubeletOf(managed, s.Formulas); err != nil {
		return nil, err
	}
	// Windows' bootstrap does not join disks: to count them would plan for room that nodes do not have.
	c.RAID0 = nc.Spec.InstanceStorePolicy != nil && *nc.Spec.InstanceStorePolicy == awsv1.InstanceStorePolicyRAID0 &&
		WindowsBuild(c.Family) == ""
	for _, b := range nc.Spec.BlockDeviceMappings {
		if b != nil {
			c.BlockDevices = append(c.BlockDevices, blockDeviceOf(b))
		}
	}
	for _, n := range nc.Spec.NetworkInterfaces {
		if n != nil {
			c.Interfaces = append(c.Interfaces, Interface{
				Card: int(n.NetworkCardIndex), Device: int(n.DeviceIndex), EFAOnly: n.InterfaceType == awsv1.InterfaceTypeEFAOnly,
			})
		}
	}
	return c, nil
}

// WishesOf reads the features that a node class asks of a machine. The strategy of its placement group is known only
// once the group was found.
func WishesOf(nc *awsv1.EC2NodeClass) Wishes {
	if nc == nil {
		return Wishes{}
	}
	cpu := nc.Spec.CPUOptions
	strategy := ""
	if g := nc.Status.PlacementGroup; g != nil {
		strategy = g.Strategy
	}
	return Wishes{
		PlacementStrategy:    strategy,
		NestedVirtualization: cpu != nil && cpu.NestedVirtualization != nil && *cpu.NestedVirtualization == "enabled",
		ConnectionTracking:   nc.Spec.ConnectionTracking != nil,
		Enclaves:             nc.Spec.EnclaveOptions != nil && nc.Spec.EnclaveOptions.Enabled,
	}
}

// kubeletOf reads the part of the kubelet's configuration that decides about capacity. Without formulas, what is not
// a number counts as not set.
func kubeletOf(m *awsv1.ManagedKubelet, formulas bool) (Kubelet, error) {
	k := Kubelet{PodsPerCore: m.PodsPerCore, EvictionHard: m.EvictionHard}
	var err error
	switch {
	case m.MaxPods == nil:
	case m.MaxPods.Type == intstr.Int:
		k.MaxPods = &m.MaxPods.IntVal
	case formulas:
		if k.MaxPodsFormula, err = formula.New(m.MaxPods.StrVal); err != nil {
			return k, fmt.Errorf("kubelet.maxPods: %w", err)
		}
	}
	if k.KubeReserved, k.KubeFormulas, err = reservedOf(m.KubeReserved, formulas); err != nil {
		return k, fmt.Errorf("kubelet.kubeReserved.%w", err)
	}
	if k.SystemReserved, k.SystemFormulas, err = reservedOf(m.SystemReserved, formulas); err != nil {
		return k, fmt.Errorf("kubelet.systemReserved.%w", err)
	}
	return k, nil
}

// reservedOf reads amounts by resource: quantities, and formulas if they count. Process ids are left out of the
// quantities, because no pod requests them.
func reservedOf(amounts map[string]string, formulas bool) (corev1.ResourceList, map[string]*formula.Formula, error) {
	var fixed corev1.ResourceList
	var byMachine map[string]*formula.Formula
	for name, text := range amounts {
		q, err := bounded.ParseQuantity(text)
		switch {
		case err == nil && name != "pid":
			if fixed == nil {
				fixed = corev1.ResourceList{}
			}
			fixed[corev1.ResourceName(name)] = q
		case err != nil && formulas:
			f, err := formula.New(text)
			if err != nil {
				return nil, nil, fmt.Errorf("%s: %w", name, err)
			}
			if byMachine == nil {
				byMachine = map[string]*formula.Formula{}
			}
			byMachine[name] = f
		}
	}
	return fixed, byMachine, nil
}

// blockDeviceOf reads one mapping.
func blockDeviceOf(b *awsv1.BlockDeviceMapping) BlockDevice {
	out := BlockDevice{Root: b.RootVolume, IsEBS: b.EBS != nil}
	if b.DeviceName != nil {
		out.Name = *b.DeviceName
	}
	if b.EBS != nil {
		out.Size = b.EBS.VolumeSize
	}
	return out
}
