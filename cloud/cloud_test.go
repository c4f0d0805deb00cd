package cloud_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"karpenter.sh/karpenter/cloud"
)

func amounts(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

func TestAllocatable(t *testing.T) {
	for name, tc := range map[string]struct {
		capacity, override, want corev1.ResourceList
	}{
		"daemons keep some":                     {amounts("memory", "8Gi"), nil, amounts("memory", "6Gi")},
		"huge pages are memory, of every size":  {amounts("memory", "8Gi", "hugepages-2Mi", "1Gi", "hugepages-1Gi", "2Gi"), nil, amounts("memory", "3Gi", "hugepages-2Mi", "1Gi", "hugepages-1Gi", "2Gi")},
		"more huge pages than memory":           {amounts("memory", "8Gi", "hugepages-2Mi", "7Gi"), nil, amounts("memory", "0", "hugepages-2Mi", "7Gi")},
		"less memory than daemons keep":         {amounts("memory", "1Gi"), nil, amounts("memory", "0")},
		"huge pages of one way to buy it":       {amounts("memory", "8Gi"), amounts("hugepages-2Mi", "1Gi"), amounts("memory", "5Gi", "hugepages-2Mi", "1Gi")},
		"another resource takes no memory away": {amounts("memory", "8Gi", "example.com/hugepages", "4Gi"), nil, amounts("memory", "6Gi", "example.com/hugepages", "4Gi")},
	} {
		t.Run(name, func(t *testing.T) {
			it := &cloud.InstanceType{Capacity: tc.capacity, Overhead: cloud.Overhead{KubeReserved: amounts("memory", "1Gi"), EvictionThreshold: amounts("memory", "1Gi")}}
			got := it.Allocatable(&cloud.Offering{Capacity: tc.override})
			if len(got) != len(tc.want) {
				t.Errorf("Allocatable = %v, want %v", got, tc.want)
			}
			for resource, want := range tc.want {
				if have := got[resource]; have.Cmp(want) != 0 {
					t.Errorf("%s of %s for pods, want %s", have.String(), resource, want.String())
				}
				if room := it.Room(resource); tc.override == nil && room.Cmp(want) != 0 {
					t.Errorf("room for %s of %s, want %s", room.String(), resource, want.String())
				}
			}
			if was := it.Capacity[corev1.ResourceMemory]; was.Cmp(tc.capacity[corev1.ResourceMemory]) != 0 {
				t.Errorf("the capacity became %s", was.String())
			}
		})
	}
}
