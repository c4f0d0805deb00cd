package hardware

import (
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	"karpenter.sh/karpenter/internal/aws/awsdata"
	"karpenter.sh/karpenter/internal/testing/awsmodel/boot"
)

var update = flag.Bool("update", false, "rewrite the reference page")

// The page says what the formulas give. With -update it is written anew.
func TestReference(t *testing.T) {
	file := filepath.Join("..", "..", "..", "docs", "reference", "allocatable.md")
	page := allocatablePage()
	if *update {
		if err := os.WriteFile(file, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != page {
		t.Error("docs/reference/allocatable.md is not what the formulas give; run go test ./internal/aws/hardware -update")
	}
}

func allocatablePage() string {
	var b strings.Builder
	b.WriteString(`# What pods get of each instance type

<!-- Written by go test ./internal/aws/hardware -update; the formulas and the data of EC2 are the source. -->

For AL2023 with the kubelet's default settings, an EBS root volume of 20 GiB and ` + "`VM_MEMORY_OVERHEAD_PERCENT=0.075`" + `: what a node has
after what the kubelet and the system keep, and after the eviction threshold. Memory is an estimate that is a little lower than
what nodes turn out to have. Every type leaves 17 GiB of disk to pods. Types that AL2023 does not run on are missing.

| Type | vCPU | CPU | Memory (MiB) | Pods | EBS volumes | Devices |
|---|--:|--:|--:|--:|--:|---|
`)
	class := classOf(awsv1.AMIFamilyAL2023)
	for _, t := range awsdata.Types() {
		if !Usable(t) || Compatible(t, class, Wishes{}) != "" {
			continue
		}
		it := Describe(t, "us-east-1", class)
		free := allocatable(it.Capacity, it.Overhead.KubeReserved, it.Overhead.SystemReserved, it.Overhead.EvictionThreshold)
		fmt.Fprintf(&b, "| %s | %d | %dm | %d | %d | %d | %s |\n", t.Name, t.VCPU.Default, free.Cpu().MilliValue(), free.Memory().Value()/mib,
			free.Pods().Value(), it.VolumeLimits[EBSDriver], deviceCell(free))
	}
	return b.String()
}

func deviceCell(free corev1.ResourceList) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(free)) {
		if strings.Contains(string(name), "/") {
			q := free[name]
			out = append(out, fmt.Sprintf("%s %s", q.String(), name))
		}
	}
	return strings.Join(out, ", ")
}

// Every type's figures once more, in floating point and by other words: what the formulas come to for AL2023.
func TestAllocatableOfEveryType(t *testing.T) {
	class := classOf(awsv1.AMIFamilyAL2023)
	for _, it := range awsdata.Types() {
		if !Usable(it) {
			continue
		}
		d := Describe(it, "us-east-1", class)
		free := allocatable(d.Capacity, d.Overhead.KubeReserved, d.Overhead.SystemReserved, d.Overhead.EvictionThreshold)
		pods := naivePods(it)
		for name, want := range map[corev1.ResourceName]int64{
			corev1.ResourceCPU:              naiveCPU(it.VCPU.Default),
			corev1.ResourceMemory:           1000 * mib * (naiveMemory(it) - int64(255+11*pods) - 100),
			corev1.ResourcePods:             1000 * int64(pods),
			corev1.ResourceEphemeralStorage: 1000 * 17 * gib, // 20 GiB less 1 GiB reserved and 10 % threshold
		} {
			q := free[name]
			got := 1000 * q.Value()
			if name == corev1.ResourceCPU {
				got = q.MilliValue()
			}
			if got != want {
				t.Errorf("%s: allocatable %s = %d thousandths, want %d", it.Name, name, got, want)
			}
		}
	}
}

// naiveCPU goes through the cores one by one.
func naiveCPU(cores int) int64 {
	reserved := 0.0
	for core := 1; core <= cores; core++ {
		switch {
		case core == 1:
			reserved += 60
		case core == 2:
			reserved += 10
		case core <= 4:
			reserved += 5
		default:
			reserved += 2.5
		}
	}
	return int64(1000*cores) - int64(reserved)
}

func naiveMemory(t *awsdata.InstanceType) int64 {
	size := float64(t.Memory.MiB)
	if Arch(t) == "arm64" {
		size -= 64
	}
	return int64(math.Floor(size - size*0.075 + 1e-6))
}

func naivePods(t *awsdata.InstanceType) int {
	interfaces := t.Network.MaxInterfaces
	if i := slices.IndexFunc(t.Network.Cards, func(c awsdata.Card) bool { return c.Index == t.Network.DefaultCard }); i >= 0 {
		interfaces = t.Network.Cards[i].MaxInterfaces
	}
	return interfaces*t.Network.IPv4PerInterface - interfaces + 2
}

// The node that a machine of the model becomes has at least what was planned with, whatever the type.
func TestNoNodeHasLessThanWasPlannedWith(t *testing.T) {
	class := classOf(awsv1.AMIFamilyAL2023)
	for _, it := range awsdata.Types() {
		if !Usable(it) {
			continue
		}
		if planned, real := memoryOf(it, class), boot.VisibleMemory(it); planned > real {
			t.Errorf("%s: planned with %d MiB, the node has %d MiB", it.Name, planned/mib, real/mib)
		}
	}
}
