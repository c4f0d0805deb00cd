package hardware

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
)

func TestClassOf(t *testing.T) {
	kubelet := func(text string) func(*awsv1.EC2NodeClassSpec) {
		return func(s *awsv1.EC2NodeClassSpec) { s.Kubelet = &awsv1.KubeletConfiguration{Raw: []byte(text)} }
	}
	alias := func(s *awsv1.EC2NodeClassSpec, alias string) {
		s.AMISelectorTerms = []awsv1.AMISelectorTerm{{Alias: alias}}
	}
	for name, tc := range map[string]struct {
		edit func(*awsv1.EC2NodeClassSpec)
		want func(*Class) // nil for a class that cannot be read
	}{
		"nothing": {func(*awsv1.EC2NodeClassSpec) {}, func(*Class) {}},
		"the alias' family": {func(s *awsv1.EC2NodeClassSpec) { alias(s, "bottlerocket@latest") },
			func(c *Class) { c.Family = awsv1.AMIFamilyBottlerocket }},
		"Custom over an alias": {func(s *awsv1.EC2NodeClassSpec) { alias(s, "al2023@latest"); s.AMIFamily = ptr(awsv1.AMIFamilyCustom) },
			func(c *Class) { c.Family = awsv1.AMIFamilyCustom }},
		"what the kubelet keeps": {
			kubelet(`{"maxPods":20,"podsPerCore":4,"kubeReserved":{"cpu":"1","pid":"100"},"systemReserved":{"memory":"1Gi"},"evictionHard":{"memory.available":"5%"},"evictionSoft":{"memory.available":"50%"}}`),
			func(c *Class) {
				c.Kubelet = Kubelet{MaxPods: ptr(int32(20)), PodsPerCore: ptr(int32(4)),
					KubeReserved:   corev1.ResourceList{"cpu": resource.MustParse("1")},
					SystemReserved: corev1.ResourceList{"memory": resource.MustParse("1Gi")},
					EvictionHard:   map[string]string{"memory.available": "5%"}}
			}},
		"an expression leaves the default": {kubelet(`{"maxPods":"vcpus * 8"}`), func(*Class) {}},
		"and one of a reserve stands for none": {kubelet(`{"kubeReserved":{"cpu":"vcpus * 10","memory":"1Gi"}}`), func(c *Class) {
			c.Kubelet.KubeReserved = corev1.ResourceList{"memory": resource.MustParse("1Gi")}
		}},
		"a field of a wrong type": {kubelet(`{"maxPods":true}`), nil},
		"local disks joined":      {func(s *awsv1.EC2NodeClassSpec) { s.InstanceStorePolicy = ptr(awsv1.InstanceStorePolicyRAID0) }, func(c *Class) { c.RAID0 = true }},
		"local disks that Windows leaves alone": {func(s *awsv1.EC2NodeClassSpec) {
			alias(s, "windows2022@latest")
			s.InstanceStorePolicy = ptr(awsv1.InstanceStorePolicyRAID0)
		}, func(c *Class) { c.Family = awsv1.AMIFamilyWindows2022 }},
		"disks, also with nothing in them": {func(s *awsv1.EC2NodeClassSpec) {
			s.BlockDeviceMappings = []*awsv1.BlockDeviceMapping{
				nil, {}, {DeviceName: ptr("/dev/xvdb")}, {DeviceName: ptr("/dev/xvda"), RootVolume: true, EBS: &awsv1.BlockDevice{VolumeSize: ptr(resource.MustParse("9Gi"))}},
			}
		}, func(c *Class) {
			c.BlockDevices = []BlockDevice{{}, {Name: "/dev/xvdb"}, {Name: "/dev/xvda", Root: true, IsEBS: true, Size: ptr(resource.MustParse("9Gi"))}}
		}},
		"interfaces": {func(s *awsv1.EC2NodeClassSpec) {
			s.NetworkInterfaces = []*awsv1.NetworkInterface{{InterfaceType: "interface"}, nil, {NetworkCardIndex: 1, DeviceIndex: 2, InterfaceType: "efa-only"}}
		}, func(c *Class) { c.Interfaces = []Interface{{0, 0, false}, {1, 2, true}} }},
		"an empty list of interfaces is none": {func(s *awsv1.EC2NodeClassSpec) { s.NetworkInterfaces = []*awsv1.NetworkInterface{} }, func(*Class) {}},
	} {
		t.Run(name, func(t *testing.T) {
			nc := &awsv1.EC2NodeClass{}
			tc.edit(&nc.Spec)
			got, err := ClassOf(nc, Settings{ReservedENIs: 1, VMMemoryOverheadPercent: 0.1})
			if tc.want == nil {
				if err == nil {
					t.Errorf("read as %+v, want an error", got)
				}
				return
			}
			want := &Class{Family: awsv1.AMIFamilyAL2023, ReservedENIs: 1, VMMemoryOverheadPercent: 0.1}
			tc.want(want)
			if d := cmp.Diff(want, got); d != "" || err != nil {
				t.Errorf("class differs (-want +got), %v:\n%s", err, d)
			}
		})
	}
}

func TestWishesOf(t *testing.T) {
	for name, tc := range map[string]struct {
		spec awsv1.EC2NodeClassSpec
		want Wishes
	}{
		"nothing":                      {awsv1.EC2NodeClassSpec{}, Wishes{}},
		"nested virtualization":        {awsv1.EC2NodeClassSpec{CPUOptions: &awsv1.CPUOptions{NestedVirtualization: ptr("enabled")}}, Wishes{NestedVirtualization: true}},
		"enclaves":                     {awsv1.EC2NodeClassSpec{EnclaveOptions: &awsv1.EnclaveOptions{Enabled: true}}, Wishes{Enclaves: true}},
		"enclaves, off":                {awsv1.EC2NodeClassSpec{EnclaveOptions: &awsv1.EnclaveOptions{}}, Wishes{}},
		"nested virtualization, off":   {awsv1.EC2NodeClassSpec{CPUOptions: &awsv1.CPUOptions{NestedVirtualization: ptr("disabled")}}, Wishes{}},
		"CPU options without any":      {awsv1.EC2NodeClassSpec{CPUOptions: &awsv1.CPUOptions{}}, Wishes{}},
		"timeouts of idle connections": {awsv1.EC2NodeClassSpec{ConnectionTracking: &awsv1.ConnectionTracking{UDPTimeout: ptr(int32(30))}}, Wishes{ConnectionTracking: true}},
	} {
		if got := WishesOf(&awsv1.EC2NodeClass{Spec: tc.spec}); got != tc.want {
			t.Errorf("%s: wishes = %+v, want %+v", name, got, tc.want)
		}
	}
}
