package hardware

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
)

// DefaultVMMemoryOverheadPercent is the share of a machine's memory that the hypervisor and the kernel are taken to keep.
const DefaultVMMemoryOverheadPercent = 0.075

// Settings of the controller that decide about capacity.
type Settings struct {
	// ReservedENIs is the number of interfaces of each machine that are not for pods.
	ReservedENIs int
	// VMMemoryOverheadPercent is the share of memory that a node does not see: 0.075 is 7.5 %.
	VMMemoryOverheadPercent float64
}

// ClassOf reads what matters here out of a node class; nil stands for AL2023 with every default. It fails for a
// kubelet configuration that cannot be decoded: guessing defaults would plan nodes that do not come.
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
	if c.Kubelet, err = kubeletOf(managed); err != nil {
		return nil, err
	}
	// Windows' bootstrap does not join disks: to count them would plan for room that nodes do not have.
	c.RAID0 = nc.Spec.InstanceStorePolicy != nil && *nc.Spec.InstanceStorePolicy == awsv1.InstanceStorePolicyRAID0 && WindowsBuild(c.Family) == ""
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

// WishesOf reads the features that a node class asks of a machine, as far as they are known: the strategy of its placement group only once
// that was found.
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
	}
}

func kubeletOf(m *awsv1.ManagedKubelet) (Kubelet, error) {
	k := Kubelet{PodsPerCore: m.PodsPerCore, EvictionHard: m.EvictionHard}
	// Text in maxPods is an expression, which needs a gate that is off: the default stands.
	if m.MaxPods != nil && m.MaxPods.Type == intstr.Int {
		k.MaxPods = &m.MaxPods.IntVal
	}
	var err error
	if k.KubeReserved, err = reservedOf(m.KubeReserved); err != nil {
		return k, fmt.Errorf("kubelet.kubeReserved: %w", err)
	}
	if k.SystemReserved, err = reservedOf(m.SystemReserved); err != nil {
		return k, fmt.Errorf("kubelet.systemReserved: %w", err)
	}
	return k, nil
}

// reservedOf reads amounts by resource. Process ids are reserved too, but no pod requests them.
func reservedOf(amounts map[string]string) (corev1.ResourceList, error) {
	var out corev1.ResourceList
	for name, text := range amounts {
		if name == "pid" {
			continue
		}
		q, err := resource.ParseQuantity(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %q is not a quantity", name, text)
		}
		if out == nil {
			out = corev1.ResourceList{}
		}
		out[corev1.ResourceName(name)] = q
	}
	return out, nil
}

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
