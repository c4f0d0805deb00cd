// Package devices is the drivers of devices as the local cluster has them: a moment after a node is ready they
// publish what its machine has. Devices are ResourceSlices and nothing else. Who gets which is the affair of
// Kubernetes itself, as everywhere, and a slice goes with its node.
package devices

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/aws/awsdata"
	"karpenter.sh/karpenter/internal/aws/hardware"
	"karpenter.sh/karpenter/local/join"
)

// of are the slices that drivers publish on a node, nil before they run there.
func of(n *corev1.Node, machines map[string]*awsdata.InstanceType) (out []*resourcev1.ResourceSlice) {
	machine := machines[n.Labels[corev1.LabelInstanceTypeStable]]
	if _, played := n.Annotations[join.Annotation]; !played || machine == nil || !ready(n) {
		return nil
	}
	class, err := hardware.ClassOf(nil, hardware.Settings{})
	if err != nil {
		return nil
	}
	for _, s := range hardware.Size(machine, class, 0).Devices {
		out = append(out, sliceOf(n, machine, &s))
	}
	return out
}

func ready(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// sliceOf is what a driver publishes: what was known of the devices before, and what it found out on the machine.
func sliceOf(n *corev1.Node, machine *awsdata.InstanceType, s *cloud.DeviceSlice) *resourcev1.ResourceSlice {
	out := &resourcev1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name:            n.Name + "-" + s.Driver,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: n.UID, Controller: new(true)}},
		},
		Spec: resourcev1.ResourceSliceSpec{
			Driver: s.Driver, NodeName: &n.Name, Pool: resourcev1.ResourcePool{Name: n.Name, Generation: 1, ResourceSliceCount: 1},
			SharedCounters: s.Counters,
		},
	}
	for i := range s.Devices {
		d := *s.Devices[i].DeepCopy()
		if d.Attributes == nil {
			d.Attributes = map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{}
		}
		for _, name := range s.Later {
			if name == memory {
				d.Capacity = map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{memory: {Value: memoryOf(machine)}}
			} else {
				d.Attributes[resourcev1.QualifiedName(name)] = found(name, n.Name, machine, int64(i))
			}
		}
		out.Spec.Devices = append(out.Spec.Devices, d)
	}
	return out
}

// memory is a capacity. All else that is found out is an attribute.
const memory = "memory"

// memoryOf is what the firmware of a GPU leaves.
func memoryOf(machine *awsdata.InstanceType) resource.Quantity {
	const kept = 512 // MiB
	size := int64(0)
	if machine.GPU != nil {
		for _, g := range machine.GPU.GPUs {
			size = max(size, g.Memory.MiB-kept)
		}
	}
	return *resource.NewQuantity(size<<20, resource.BinarySI)
}

// found is what a driver finds out about the i-th device.
func found(name, node string, machine *awsdata.InstanceType, i int64) resourcev1.DeviceAttribute {
	text := func(s string) resourcev1.DeviceAttribute {
		s = s[:min(len(s), resourcev1.DeviceAttributeMaxValueLength)]
		return resourcev1.DeviceAttribute{StringValue: &s}
	}
	switch name {
	case "minor", "deviceId", "topology_x", "topology_y":
		return resourcev1.DeviceAttribute{IntValue: &i}
	case "driverVersion", "cudaDriverVersion", "neuronDriverVersion":
		return resourcev1.DeviceAttribute{VersionValue: new("1.0.0")}
	case "instanceType":
		return text(machine.Name)
	case "productName":
		if machine.GPU != nil && len(machine.GPU.GPUs) > 0 {
			return text("NVIDIA " + machine.GPU.GPUs[0].Name)
		}
	case "brand", "addressingMode", "topology", "resource.kubernetes.io/pcieRoot":
		return text("simulated") // all devices of a machine have it in common
	}
	return text(fmt.Sprintf("%d-%s", i, cmp.Or(node, machine.Name)))
}
