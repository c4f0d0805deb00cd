package fakecloud

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
)

// Kind is an instance type for a test's catalogue: Linux on amd64, 4 GiB for each core, room for 110 pods, sold on
// demand at one price in some zones.
func Kind(name string, cores int64, dollars float64, zones ...string) *cloud.InstanceType {
	t := &cloud.InstanceType{
		Name: name,
		Capacity: corev1.ResourceList{
			corev1.ResourceCPU:    *resource.NewQuantity(cores, resource.DecimalSI),
			corev1.ResourceMemory: *resource.NewQuantity(cores*4<<30, resource.BinarySI),
			corev1.ResourcePods:   *resource.NewQuantity(110, resource.DecimalSI),
		},
		Labels: map[string][]string{
			corev1.LabelInstanceTypeStable: {name}, corev1.LabelArchStable: {v1.ArchitectureAmd64}, corev1.LabelOSStable: {"linux"},
			corev1.LabelTopologyZone: zones, v1.CapacityTypeLabelKey: {v1.CapacityTypeOnDemand},
		},
	}
	for _, zone := range zones {
		t.Offerings = append(t.Offerings, cloud.Offering{
			Labels: map[string]string{v1.CapacityTypeLabelKey: v1.CapacityTypeOnDemand,
				corev1.LabelTopologyZone: zone}, Price: cloud.FromDollars(dollars), Available: true,
		})
	}
	return t
}
