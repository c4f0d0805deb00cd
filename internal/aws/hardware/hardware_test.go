package hardware

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	"karpenter.sh/karpenter/internal/aws/awsdata"
)

func typeNamed(t testing.TB, name string) *awsdata.InstanceType {
	t.Helper()
	i := slices.IndexFunc(awsdata.Types(), func(it *awsdata.InstanceType) bool { return it.Name == name })
	if i < 0 {
		t.Fatalf("no type %s in the data", name)
	}
	return awsdata.Types()[i]
}

func classOf(family string) *Class {
	return &Class{Family: family, VMMemoryOverheadPercent: DefaultVMMemoryOverheadPercent}
}

func ptr[T any](v T) *T { return &v }

// figures are written as people read them: quantities by resource name.
type figures map[corev1.ResourceName]string

func (f figures) compare(t *testing.T, what string, got corev1.ResourceList) {
	t.Helper()
	for name, q := range got {
		want, ok := f[name]
		if !ok {
			t.Errorf("%s has %s = %s, want none", what, name, q.String())
		} else if q.Cmp(resource.MustParse(want)) != 0 {
			t.Errorf("%s has %s = %s, want %s", what, name, q.String(), want)
		}
	}
	for name := range f {
		if _, ok := got[name]; !ok {
			t.Errorf("%s lacks %s", what, name)
		}
	}
}

// allocatable is capacity without overhead, as pods see it.
func allocatable(capacity corev1.ResourceList, overheads ...corev1.ResourceList) corev1.ResourceList {
	out := capacity.DeepCopy()
	for _, o := range overheads {
		for name, q := range o {
			v := out[name]
			v.Sub(q)
			out[name] = v
		}
	}
	return out
}

// The memory column is SizeInMiB (64 less on arm64) less 7.5 % rounded up; pods are interfaces of the first card times
// addresses less one, plus two; kube-reserved memory is 11 MiB a pod and 255.
func TestCapacityAndOverhead(t *testing.T) {
	for name, tc := range map[string]struct {
		instanceType string
		class        *Class
		capacity     figures
		kubeReserved figures
		allocatable  figures
		volumes      int
	}{
		"m5.large is the plain case": {
			"m5.large", classOf(awsv1.AMIFamilyAL2023),
			figures{"cpu": "2", "memory": "7577Mi", "pods": "29", "ephemeral-storage": "20Gi", awsv1.ResourceAWSPodENI: "9"},
			figures{"cpu": "70m", "memory": "574Mi", "ephemeral-storage": "1Gi"},
			figures{"cpu": "1930m", "memory": "6903Mi", "pods": "29", "ephemeral-storage": "17Gi", awsv1.ResourceAWSPodENI: "9"},
			25, // 27 less the root volume and the spare interface
		},
		"c7g.16xlarge loses 64 MiB to arm64 firmware": {
			"c7g.16xlarge", classOf(awsv1.AMIFamilyAL2023),
			figures{"cpu": "64", "memory": "121182Mi", "pods": "737", "ephemeral-storage": "20Gi", awsv1.ResourceAWSPodENI: "107", awsv1.ResourceEFA: "1"},
			figures{"cpu": "230m", "memory": "8362Mi", "ephemeral-storage": "1Gi"},
			figures{"cpu": "63770m", "memory": "112720Mi", "pods": "737", "ephemeral-storage": "17Gi", awsv1.ResourceAWSPodENI: "107", awsv1.ResourceEFA: "1"},
			25,
		},
		"g5.12xlarge has four NVIDIA GPUs and its disks do not count without RAID0": {
			"g5.12xlarge", classOf(awsv1.AMIFamilyAL2023),
			figures{"cpu": "48", "memory": "181862Mi", "pods": "737", "ephemeral-storage": "20Gi", awsv1.ResourceAWSPodENI: "107", awsv1.ResourceNVIDIAGPU: "4", awsv1.ResourceEFA: "1"},
			figures{"cpu": "190m", "memory": "8362Mi", "ephemeral-storage": "1Gi"},
			figures{"cpu": "47810m", "memory": "173400Mi", "pods": "737", "ephemeral-storage": "17Gi", awsv1.ResourceAWSPodENI: "107", awsv1.ResourceNVIDIAGPU: "4", awsv1.ResourceEFA: "1"},
			20,
		},
		"p4d.24xlarge counts only the interfaces of its first network card": {
			"p4d.24xlarge", classOf(awsv1.AMIFamilyAL2023),
			figures{"cpu": "96", "memory": "1091174Mi", "pods": "737", "ephemeral-storage": "20Gi", awsv1.ResourceAWSPodENI: "62", awsv1.ResourceNVIDIAGPU: "8", awsv1.ResourceEFA: "4"},
			figures{"cpu": "310m", "memory": "8362Mi", "ephemeral-storage": "1Gi"},
			figures{"cpu": "95690m", "memory": "1082712Mi", "pods": "737", "ephemeral-storage": "17Gi", awsv1.ResourceAWSPodENI: "62", awsv1.ResourceNVIDIAGPU: "8", awsv1.ResourceEFA: "4"},
			27,
		},
		"inf2.48xlarge has twelve devices of two cores": {
			"inf2.48xlarge", classOf(awsv1.AMIFamilyAL2023),
			figures{"cpu": "192", "memory": "727449Mi", "pods": "737", "ephemeral-storage": "20Gi", awsv1.ResourceAWSPodENI: "107", awsv1.ResourceAWSNeuron: "12", awsv1.ResourceAWSNeuronCore: "24"},
			figures{"cpu": "550m", "memory": "8362Mi", "ephemeral-storage": "1Gi"},
			figures{"cpu": "191450m", "memory": "718987Mi", "pods": "737", "ephemeral-storage": "17Gi", awsv1.ResourceAWSPodENI: "107", awsv1.ResourceAWSNeuron: "12", awsv1.ResourceAWSNeuronCore: "24"},
			26,
		},
		"t4g.nano leaves 15 MiB to pods": {
			"t4g.nano", classOf(awsv1.AMIFamilyAL2023),
			figures{"cpu": "2", "memory": "414Mi", "pods": "4", "ephemeral-storage": "20Gi"},
			figures{"cpu": "70m", "memory": "299Mi", "ephemeral-storage": "1Gi"},
			figures{"cpu": "1930m", "memory": "15Mi", "pods": "4", "ephemeral-storage": "17Gi"},
			25,
		},
		"m5.metal": {
			"m5.metal", classOf(awsv1.AMIFamilyAL2023),
			figures{"cpu": "96", "memory": "363724Mi", "pods": "737", "ephemeral-storage": "20Gi", awsv1.ResourceAWSPodENI: "120"},
			figures{"cpu": "310m", "memory": "8362Mi", "ephemeral-storage": "1Gi"},
			figures{"cpu": "95690m", "memory": "355262Mi", "pods": "737", "ephemeral-storage": "17Gi", awsv1.ResourceAWSPodENI: "120"},
			29,
		},
		"a Windows node of m5.large holds 110 pods and reserves memory for them": {
			"m5.large", classOf(awsv1.AMIFamilyWindows2022),
			figures{"cpu": "2", "memory": "7577Mi", "pods": "110", "ephemeral-storage": "50Gi", awsv1.ResourceAWSPodENI: "9", awsv1.ResourcePrivateIPv4Address: "9"},
			figures{"cpu": "70m", "memory": "1465Mi", "ephemeral-storage": "1Gi"},
			figures{"cpu": "1930m", "memory": "6012Mi", "pods": "110", "ephemeral-storage": "44Gi", awsv1.ResourceAWSPodENI: "9", awsv1.ResourcePrivateIPv4Address: "9"},
			26,
		},
		"g6f.large shows one logical GPU for its eighth of one": {
			"g6f.large", classOf(awsv1.AMIFamilyAL2023),
			figures{"cpu": "2", "memory": "7577Mi", "pods": "20", "ephemeral-storage": "20Gi", awsv1.ResourceAWSPodENI: "10", awsv1.ResourceNVIDIAGPU: "1"},
			figures{"cpu": "70m", "memory": "475Mi", "ephemeral-storage": "1Gi"},
			figures{"cpu": "1930m", "memory": "7002Mi", "pods": "20", "ephemeral-storage": "17Gi", awsv1.ResourceAWSPodENI: "10", awsv1.ResourceNVIDIAGPU: "1"},
			31,
		},
	} {
		t.Run(name, func(t *testing.T) {
			it := Describe(typeNamed(t, tc.instanceType), "us-east-1", tc.class)
			tc.capacity.compare(t, "capacity", it.Capacity)
			tc.kubeReserved.compare(t, "kube-reserved", it.Overhead.KubeReserved)
			free := allocatable(it.Capacity, it.Overhead.KubeReserved, it.Overhead.SystemReserved, it.Overhead.EvictionThreshold)
			tc.allocatable.compare(t, "allocatable", free)
			if got := it.VolumeLimits[EBSDriver]; got != tc.volumes {
				t.Errorf("volume limit = %d, want %d", got, tc.volumes)
			}
		})
	}
}

func TestPodsAndReservedMemory(t *testing.T) {
	with := func(family string, edit func(*Class)) *Class {
		c := classOf(family)
		edit(c)
		return c
	}
	maxPods := func(n int32) func(*Class) { return func(c *Class) { c.Kubelet.MaxPods = &n } }
	reserved := func(n int) func(*Class) { return func(c *Class) { c.ReservedENIs = n } }
	perCore := func(n int32) func(*Class) { return func(c *Class) { c.Kubelet.PodsPerCore = &n } }
	efaOnly := func(c *Class) { c.Interfaces = []Interface{{0, 0, false}, {0, 1, true}} }
	for name, tc := range map[string]struct {
		instanceType string
		class        *Class
		pods         string
		memory       string
	}{
		"m5.xlarge":      {"m5.xlarge", classOf(awsv1.AMIFamilyAL2023), "58", "893Mi"},
		"t3.large":       {"t3.large", classOf(awsv1.AMIFamilyAL2023), "35", "640Mi"},
		"m6idn.32xlarge": {"m6idn.32xlarge", classOf(awsv1.AMIFamilyAL2023), "394", "4589Mi"},
		"an EFA-only interface on card 0 takes no pods":    {"m6idn.32xlarge", with(awsv1.AMIFamilyAL2023, efaOnly), "345", "4050Mi"},
		"AL2 reserves by interfaces, not maxPods":          {"t3.large", with(awsv1.AMIFamilyAL2, maxPods(10)), "10", "640Mi"},
		"AL2023 reserves by interfaces, not maxPods":       {"t3.large", with(awsv1.AMIFamilyAL2023, maxPods(10)), "10", "640Mi"},
		"Custom reserves by interfaces, not maxPods":       {"t3.large", with(awsv1.AMIFamilyCustom, maxPods(10)), "10", "640Mi"},
		"Bottlerocket reserves by maxPods":                 {"t3.large", with(awsv1.AMIFamilyBottlerocket, maxPods(10)), "10", "365Mi"},
		"Windows reserves by maxPods":                      {"t3.large", with(awsv1.AMIFamilyWindows2019, maxPods(10)), "10", "365Mi"},
		"a reserved interface costs AL2023 pods only":      {"t3.large", with(awsv1.AMIFamilyAL2023, reserved(1)), "24", "640Mi"},
		"a reserved interface costs Bottlerocket both":     {"t3.large", with(awsv1.AMIFamilyBottlerocket, reserved(1)), "24", "519Mi"},
		"Windows does not count interfaces":                {"t3.large", with(awsv1.AMIFamilyWindows2022, reserved(1)), "110", "1465Mi"},
		"reserving more interfaces than exist leaves none": {"t3.large", with(awsv1.AMIFamilyAL2023, reserved(1000)), "0", "640Mi"},
		"podsPerCore limits pods":                          {"t3.large", with(awsv1.AMIFamilyAL2023, perCore(4)), "8", "640Mi"},
		"podsPerCore never raises pods":                    {"t3.large", with(awsv1.AMIFamilyAL2023, perCore(40)), "35", "640Mi"},
		"podsPerCore of zero is off":                       {"t3.large", with(awsv1.AMIFamilyAL2023, perCore(0)), "35", "640Mi"},
		"Bottlerocket ignores podsPerCore":                 {"t3.large", with(awsv1.AMIFamilyBottlerocket, perCore(4)), "35", "640Mi"},
	} {
		t.Run(name, func(t *testing.T) {
			it := Describe(typeNamed(t, tc.instanceType), "us-east-1", tc.class)
			if got := it.Capacity.Pods().String(); got != tc.pods {
				t.Errorf("pods = %s, want %s", got, tc.pods)
			}
			if got := it.Overhead.KubeReserved.Memory().String(); got != tc.memory {
				t.Errorf("kube-reserved memory = %s, want %s", got, tc.memory)
			}
		})
	}
}

func TestAllocatableIsNeverAboveRealNodes(t *testing.T) {
	for name, real := range map[string]figures{
		"t4g.small":  {"memory": "1408312Ki", "cpu": "1930m"},
		"t4g.medium": {"memory": "3377496Ki", "cpu": "1930m"},
		"t4g.xlarge": {"memory": "15136012Ki", "cpu": "3920m"},
		"m5.large":   {"memory": "7220184Ki", "cpu": "1930m"},
	} {
		it := Describe(typeNamed(t, name), "us-east-1", classOf(awsv1.AMIFamilyAL2023))
		free := allocatable(it.Capacity, it.Overhead.KubeReserved, it.Overhead.EvictionThreshold)
		for r, limit := range real {
			q := free[r]
			if q.Cmp(resource.MustParse(limit)) > 0 {
				t.Errorf("%s: allocatable %s is %s, a real node has %s", name, r, q.String(), limit)
			}
		}
	}
}

func TestEvictionThresholds(t *testing.T) {
	for name, tc := range map[string]struct {
		hard         map[string]string
		memory, disk string
	}{
		"defaults":                         {nil, "100Mi", "2Gi"},
		"a quantity":                       {map[string]string{"memory.available": "500Mi", "nodefs.available": "1Gi"}, "500Mi", "1Gi"},
		"percentages round up to bytes":    {map[string]string{"memory.available": "5%", "nodefs.available": "0.1%"}, "397253018", "21474837"},
		"a hundred percent turns it off":   {map[string]string{"memory.available": "100%", "nodefs.available": "100%"}, "0", "0"},
		"next to nothing":                  {map[string]string{"memory.available": "1e-1000000%", "nodefs.available": "1e-300%"}, "0", "1"},
		"less than nothing":                {map[string]string{"memory.available": "-5%"}, "0", "2Gi"},
		"no percentage":                    {map[string]string{"memory.available": "1/3%"}, "0", "2Gi"},
		"zero percent":                     {map[string]string{"memory.available": "0%"}, "0", "2Gi"},
		"other signals reserve nothing":    {map[string]string{"pid.available": "10%"}, "100Mi", "2Gi"},
		"text that is no threshold is off": {map[string]string{"memory.available": "much"}, "0", "2Gi"},
	} {
		t.Run(name, func(t *testing.T) {
			c := classOf(awsv1.AMIFamilyAL2023)
			c.Kubelet.EvictionHard = tc.hard
			got := Describe(typeNamed(t, "m5.large"), "us-east-1", c).Overhead.EvictionThreshold
			figures{"memory": tc.memory, "ephemeral-storage": tc.disk}.compare(t, "eviction threshold", got)
		})
	}
}

func TestReservedIsOverriddenPerKey(t *testing.T) {
	c := classOf(awsv1.AMIFamilyAL2023)
	c.Kubelet.KubeReserved = corev1.ResourceList{"cpu": resource.MustParse("2")}
	c.Kubelet.SystemReserved = corev1.ResourceList{"memory": resource.MustParse("1Gi")}
	o := Describe(typeNamed(t, "m5.large"), "us-east-1", c).Overhead
	figures{"cpu": "2", "memory": "574Mi", "ephemeral-storage": "1Gi"}.compare(t, "kube-reserved", o.KubeReserved)
	figures{"memory": "1Gi"}.compare(t, "system-reserved", o.SystemReserved)
}

func TestDiscoveredMemoryReplacesOnlyMemory(t *testing.T) {
	c := classOf(awsv1.AMIFamilyAL2023)
	c.Kubelet.EvictionHard = map[string]string{"memory.available": "5%"}
	it := Size(typeNamed(t, "m5.large"), c, 7900*mib)
	if got := it.Capacity.Memory().String(); got != "7900Mi" {
		t.Errorf("memory = %s, want what nodes were seen to have", got)
	}
	if got := it.Overhead.EvictionThreshold.Memory().Value(); got != 397253018 {
		t.Errorf("eviction threshold = %d, want 5 %% of the estimate", got)
	}
}

func TestEphemeralStorage(t *testing.T) {
	size := func(s string) *resource.Quantity { return ptr(resource.MustParse(s)) }
	for name, tc := range map[string]struct {
		family  string
		raid    bool
		devices []BlockDevice
		itype   string
		want    string
	}{
		"instance store with RAID0":               {awsv1.AMIFamilyAL2023, true, nil, "m5d.large", "75G"},
		"RAID0 without instance store":            {awsv1.AMIFamilyAL2023, true, nil, "m5.large", "20Gi"},
		"the root mapping wins":                   {awsv1.AMIFamilyAL2023, false, []BlockDevice{{Name: "/dev/xvda", Size: size("30Gi")}, {Name: "/dev/xvdb", Size: size("50Gi"), Root: true}}, "m5.large", "50Gi"},
		"the family's device":                     {awsv1.AMIFamilyAL2023, false, []BlockDevice{{Name: "/dev/xvdb", Size: size("50Gi")}, {Name: "/dev/xvda", Size: size("30Gi")}}, "m5.large", "30Gi"},
		"Bottlerocket keeps data on the second":   {awsv1.AMIFamilyBottlerocket, false, []BlockDevice{{Name: "/dev/xvda", Size: size("4Gi")}, {Name: "/dev/xvdb", Size: size("80Gi")}}, "m5.large", "80Gi"},
		"Custom takes the last mapping":           {awsv1.AMIFamilyCustom, false, []BlockDevice{{Name: "/dev/a", Size: size("4Gi")}, {Name: "/dev/b", Size: size("9Gi")}}, "m5.large", "9Gi"},
		"Custom without mappings":                 {awsv1.AMIFamilyCustom, false, nil, "m5.large", "20Gi"},
		"a mapping without size gives no size":    {awsv1.AMIFamilyAL2023, false, []BlockDevice{{Name: "/dev/xvda"}}, "m5.large", "20Gi"},
		"an unknown device leaves the default":    {awsv1.AMIFamilyAL2023, false, []BlockDevice{{Name: "/dev/other", Size: size("90Gi")}}, "m5.large", "20Gi"},
		"Windows has 50 Gi":                       {awsv1.AMIFamilyWindows2025, false, nil, "m5.large", "50Gi"},
		"a root mapping without size is no match": {awsv1.AMIFamilyAL2023, false, []BlockDevice{{Name: "/dev/xvdb", Root: true}, {Name: "/dev/xvda", Size: size("30Gi")}}, "m5.large", "30Gi"},
	} {
		t.Run(name, func(t *testing.T) {
			c := classOf(tc.family)
			c.RAID0, c.BlockDevices = tc.raid, tc.devices
			got := capacityOf(typeNamed(t, tc.itype), c)[corev1.ResourceEphemeralStorage]
			if got.Cmp(resource.MustParse(tc.want)) != 0 {
				t.Errorf("ephemeral storage = %s, want %s", got.String(), tc.want)
			}
		})
	}
}

// Other clouds that speak EC2's protocol leave things out.
func TestAManufacturerThatIsNotToldIsNoLabel(t *testing.T) {
	i := slices.IndexFunc(awsdata.Types(), func(t *awsdata.InstanceType) bool { return t.Name == "m5.large" })
	machine := *awsdata.Types()[i]
	machine.Processor.Manufacturer = ""
	if got := Labels(&machine, "us-east-1", "AL2023")[awsv1.LabelInstanceCPUManufacturer]; got != nil {
		t.Errorf("manufacturer = %q, want no label", got)
	}
}

func TestLabels(t *testing.T) {
	for name, tc := range map[string]struct {
		itype string
		want  map[string][]string
	}{
		"g4dn.8xlarge": {"g4dn.8xlarge", map[string][]string{
			awsv1.LabelInstanceCategory: {"g"}, awsv1.LabelInstanceGeneration: {"4"}, awsv1.LabelInstanceFamily: {"g4dn"},
			awsv1.LabelInstanceSize: {"8xlarge"}, awsv1.LabelInstanceCPU: {"32"}, awsv1.LabelInstanceMemory: {"131072"},
			awsv1.LabelInstanceEBSBandwidth: {"9500"}, awsv1.LabelInstanceNetworkBandwidth: {"50000"},
			awsv1.LabelInstanceGPUName: {"t4"}, awsv1.LabelInstanceGPUManufacturer: {"nvidia"}, awsv1.LabelInstanceGPUCount: {"1"},
			awsv1.LabelInstanceGPUMemory: {"16384"}, awsv1.LabelInstanceLocalNVME: {"900"},
			awsv1.LabelInstanceCPUSustainedClockSpeedMhz: {"2500"}, awsv1.LabelInstanceCapabilityFlex: {"false"},
			awsv1.LabelInstanceAcceleratorName: nil, awsv1.LabelInstanceHypervisor: {"nitro"},
			corev1.LabelArchStable: {"amd64"}, corev1.LabelOSStable: {"linux"}, corev1.LabelWindowsBuild: nil,
			corev1.LabelTopologyRegion: {"us-east-1"}, corev1.LabelInstanceTypeStable: {"g4dn.8xlarge"},
		}},
		"inf2.xlarge": {"inf2.xlarge", map[string][]string{
			awsv1.LabelInstanceCPUManufacturer: {"amd"}, awsv1.LabelInstanceNetworkBandwidth: {"2083"},
			awsv1.LabelInstanceAcceleratorName: {"inferentia2"}, awsv1.LabelInstanceAcceleratorManufacturer: {"aws"},
			awsv1.LabelInstanceAcceleratorCount: {"1"}, awsv1.LabelInstanceGPUCount: nil, awsv1.LabelInstanceLocalNVME: nil,
		}},
		"a high-memory name has its terabytes in the middle": {"u-6tb1.112xlarge", map[string][]string{
			awsv1.LabelInstanceCategory: {"u"}, awsv1.LabelInstanceGeneration: {"1"}, awsv1.LabelInstanceFamily: {"u-6tb1"},
		}},
		"bare metal has an empty hypervisor": {"m5.metal", map[string][]string{
			awsv1.LabelInstanceHypervisor: {""}, awsv1.LabelInstanceSize: {"metal"}, awsv1.LabelNitroSandbox: {"false"},
		}},
		"flexible types say so": {"c7i-flex.2xlarge", map[string][]string{
			awsv1.LabelInstanceCapabilityFlex: {"true"}, awsv1.LabelInstanceCategory: {"c"}, awsv1.LabelInstanceGeneration: {"7"},
		}},
		"an old type without a bandwidth figure has no such label": {"m4.large", map[string][]string{
			awsv1.LabelInstanceNetworkBandwidth: nil, awsv1.LabelInstanceHypervisor: {"xen"},
		}},
		"two cards that share 200 Gbit/s are not counted twice": {"m6idn.32xlarge", map[string][]string{
			awsv1.LabelInstanceNetworkBandwidth: {"200000"},
		}},
		"cards that add up": {"p4d.24xlarge", map[string][]string{
			awsv1.LabelInstanceNetworkBandwidth: {"400000"}, awsv1.LabelNitroSandbox: {"true"},
			awsv1.LabelInstanceEncryptionInTransit: {"true"}, awsv1.LabelInstanceTenancy: {"default", "dedicated"},
		}},
		"an unknown manufacturer's accelerator": {"dl2q.24xlarge", map[string][]string{
			awsv1.LabelInstanceAcceleratorName: {"qualcomm-ai100"}, awsv1.LabelInstanceAcceleratorManufacturer: {"qualcomm"},
			awsv1.LabelInstanceAcceleratorCount: {"8"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			all := Labels(typeNamed(t, tc.itype), "us-east-1", awsv1.AMIFamilyAL2023)
			got := map[string][]string{}
			for key := range tc.want {
				values, ok := all[key]
				if !ok {
					t.Errorf("nothing is said about %s", key)
				}
				got[key] = values
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("labels differ (-want +got):\n%s", d)
			}
		})
	}
}

func TestWindowsLabels(t *testing.T) {
	amd := Labels(typeNamed(t, "m5.large"), "us-east-1", awsv1.AMIFamilyWindows2025)
	if d := cmp.Diff([]string{"windows"}, amd[corev1.LabelOSStable]); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"10.0.26100"}, amd[corev1.LabelWindowsBuild]); d != "" {
		t.Error(d)
	}
	if arm := Labels(typeNamed(t, "m6g.large"), "us-east-1", awsv1.AMIFamilyWindows2025); len(arm[corev1.LabelOSStable]) > 0 {
		t.Errorf("an arm64 machine runs %v, want no system, for there is no Windows for it", arm[corev1.LabelOSStable])
	}
}

func TestExotic(t *testing.T) {
	for name, want := range map[string]bool{
		"m5.large": false, "c7g.16xlarge": false, "u-6tb1.112xlarge": false, "m5.metal": true, "g5.12xlarge": true,
		"inf2.48xlarge": true, "dl2q.24xlarge": true, "vt1.3xlarge": true, "c7i.metal-24xl": true,
	} {
		if got := exotic(typeNamed(t, name)); got != want {
			t.Errorf("exotic(%s) = %v, want %v", name, got, want)
		}
	}
}

// EC2 counts 27 attachments of m5.large beside its first interface; m7i has 32 volumes, whatever else is attached.
func TestVolumeLimit(t *testing.T) {
	disks := func(ebs ...bool) func(*Class) {
		return func(c *Class) {
			for _, is := range ebs {
				c.BlockDevices = append(c.BlockDevices, BlockDevice{IsEBS: is})
			}
		}
	}
	nics := func(n int) func(*Class) {
		return func(c *Class) {
			for i := range n {
				c.Interfaces = append(c.Interfaces, Interface{Device: i})
			}
		}
	}
	for name, tc := range map[string]struct {
		itype, family string
		edit          func(*Class)
		want          int
	}{
		"the root volume and a spare interface":           {"m5.large", awsv1.AMIFamilyAL2023, func(*Class) {}, 25},
		"Bottlerocket boots with two volumes":             {"m5.large", awsv1.AMIFamilyBottlerocket, func(*Class) {}, 24},
		"the class's own volumes, of which one is none":   {"m5.large", awsv1.AMIFamilyAL2023, disks(true, true, true, false), 23},
		"a class whose mappings are none":                 {"m5.large", awsv1.AMIFamilyAL2023, disks(false), 25},
		"two interfaces, and the spare one":               {"m5.large", awsv1.AMIFamilyAL2023, nics(2), 24},
		"all interfaces that the card has":                {"m5.large", awsv1.AMIFamilyAL2023, nics(3), 24},
		"Windows attaches no spare interface":             {"m5.large", awsv1.AMIFamilyWindows2022, func(*Class) {}, 26},
		"a limit of their own, whatever interfaces":       {"m7i.large", awsv1.AMIFamilyAL2023, nics(3), 31},
		"more volumes than the machine takes are no debt": {"m5.large", awsv1.AMIFamilyAL2023, disks(slices.Repeat([]bool{true}, 40)...), 0},
	} {
		c := classOf(tc.family)
		tc.edit(c)
		if got := volumeLimit(typeNamed(t, tc.itype), c); got != tc.want {
			t.Errorf("%s: %d volumes, want %d", name, got, tc.want)
		}
	}
}

func TestCompatible(t *testing.T) {
	nics := func(ns ...Interface) *Class {
		c := classOf(awsv1.AMIFamilyAL2023)
		c.Interfaces = ns
		return c
	}
	primary := Interface{0, 0, false}
	for name, tc := range map[string]struct {
		itype  string
		class  *Class
		wishes Wishes
		ok     bool
	}{
		"a plain type":                               {"m5.large", classOf(awsv1.AMIFamilyAL2023), Wishes{}, true},
		"a1 cannot run AL2023":                       {"a1.large", classOf(awsv1.AMIFamilyAL2023), Wishes{}, false},
		"a1 can run Bottlerocket":                    {"a1.large", classOf(awsv1.AMIFamilyBottlerocket), Wishes{}, true},
		"a1 can run Custom":                          {"a1.large", classOf(awsv1.AMIFamilyCustom), Wishes{}, true},
		"one EFA interface":                          {"p4d.24xlarge", nics(primary, Interface{0, 1, true}), Wishes{}, true},
		"several EFA interfaces":                     {"p4d.24xlarge", nics(primary, Interface{0, 1, true}, Interface{1, 1, true}), Wishes{}, true},
		"more EFA interfaces than the type has":      {"m6idn.32xlarge", nics(primary, Interface{0, 1, true}, Interface{0, 2, true}, Interface{1, 1, true}), Wishes{}, false},
		"EFA on a type without":                      {"m5.large", nics(primary, Interface{0, 1, true}), Wishes{}, false},
		"a network card that does not exist":         {"m5.large", nics(primary, Interface{1, 0, false}), Wishes{}, false},
		"a device that does not exist":               {"m5.large", nics(primary, Interface{0, 3, false}), Wishes{}, false},
		"interfaces on a type without ENA":           {"m3.large", nics(primary), Wishes{}, false},
		"cluster placement group":                    {"m5.large", classOf(awsv1.AMIFamilyAL2023), Wishes{PlacementStrategy: "cluster"}, true},
		"cluster placement group on a burstable one": {"t3.large", classOf(awsv1.AMIFamilyAL2023), Wishes{PlacementStrategy: "cluster"}, false},
		"nested virtualization where it is missing":  {"m5.large", classOf(awsv1.AMIFamilyAL2023), Wishes{NestedVirtualization: true}, false},
		"enclaves":                             {"m5.xlarge", classOf(awsv1.AMIFamilyAL2023), Wishes{Enclaves: true}, true},
		"enclaves on a type that is too small": {"m5.large", classOf(awsv1.AMIFamilyAL2023), Wishes{Enclaves: true}, false},
		"connection tracking on Nitro":         {"m5.large", classOf(awsv1.AMIFamilyAL2023), Wishes{ConnectionTracking: true}, true},
		"connection tracking on Xen":           {"m4.large", classOf(awsv1.AMIFamilyAL2023), Wishes{ConnectionTracking: true}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Compatible(typeNamed(t, tc.itype), tc.class, tc.wishes); (got == "") != tc.ok {
				t.Errorf("Compatible says %q, want compatible %v", got, tc.ok)
			}
		})
	}
}

func TestUsable(t *testing.T) {
	for name, want := range map[string]bool{"m5.large": true, "m6g.large": true, "mac2-m1ultra.metal": false, "t2.micro": true} {
		if got := Usable(typeNamed(t, name)); got != want {
			t.Errorf("Usable(%s) = %v, want %v", name, got, want)
		}
	}
}
