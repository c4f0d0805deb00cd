package hardware

import (
	"math"
	"regexp"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	"karpenter.sh/karpenter/internal/aws/awsdata"
)

// namePattern takes an instance type's name apart: category letters, an optional memory size as in u-6tb1, the generation.
var namePattern = regexp.MustCompile(`^([a-z]+)(-[0-9]+tb)?([0-9]+)[^.]*\.`)

// Labels returns the values that a node of type t may have for each label that the type and the family decide. A label
// that stands here with no value is never on such nodes.
func Labels(t *awsdata.InstanceType, region, family string) map[string][]string {
	l := labelSet{}
	l.put(corev1.LabelInstanceTypeStable, t.Name)
	l.put(corev1.LabelArchStable, Arch(t))
	l.put(corev1.LabelTopologyRegion, region)
	l.system(t, family)
	l.name(t.Name)
	l.processor(t)
	l.network(t)
	l.storage(t)
	l.accelerators(t)
	l.put(awsv1.LabelInstanceTenancy, "default", "dedicated")
	return l
}

type labelSet map[string][]string

// put records the possible values of a label; empty ones mean that the label is absent.
func (l labelSet) put(key string, values ...string) { l[key] = values }

// text records a word. A word that EC2 does not give is absent: no label has an empty value.
func (l labelSet) text(key, value string) {
	if value == "" {
		l[key] = nil
		return
	}
	l.put(key, value)
}

// number records a count; zero means that the label is absent.
func (l labelSet) number(key string, n int64) {
	if n == 0 {
		l[key] = nil
		return
	}
	l.put(key, strconv.FormatInt(n, 10))
}

// system records the labels about the operating system.
func (l labelSet) system(t *awsdata.InstanceType, family string) {
	build := WindowsBuild(family)
	switch {
	case build == "":
		l.put(corev1.LabelOSStable, string(corev1.Linux))
		l.put(corev1.LabelWindowsBuild)
	case Arch(t) == "amd64":
		l.put(corev1.LabelOSStable, string(corev1.Windows))
		l.put(corev1.LabelWindowsBuild, build)
	default: // there is no Windows image for other architectures
		l.put(corev1.LabelOSStable)
		l.put(corev1.LabelWindowsBuild, build)
	}
}

// name records the labels that are parts of a type's name.
func (l labelSet) name(name string) {
	l.put(awsv1.LabelInstanceCategory)
	l.put(awsv1.LabelInstanceGeneration)
	if m := namePattern.FindStringSubmatch(name); m != nil {
		l.put(awsv1.LabelInstanceCategory, m[1])
		l.put(awsv1.LabelInstanceGeneration, m[3])
	}
	l.put(awsv1.LabelInstanceFamily)
	l.put(awsv1.LabelInstanceSize)
	flex := false
	if family, size, ok := strings.Cut(name, "."); ok && !strings.Contains(size, ".") {
		l.put(awsv1.LabelInstanceFamily, family)
		l.put(awsv1.LabelInstanceSize, size)
		flex = strings.Contains(family, "-flex")
	}
	l.put(awsv1.LabelInstanceCapabilityFlex, strconv.FormatBool(flex))
}

func (l labelSet) processor(t *awsdata.InstanceType) {
	l.put(awsv1.LabelInstanceCPU, strconv.Itoa(t.VCPU.Default))
	l.text(awsv1.LabelInstanceCPUManufacturer, kebab(t.Processor.Manufacturer))
	mhz := int64(math.Round(t.Processor.ClockGHz * 1000))
	l.put(awsv1.LabelInstanceCPUSustainedClockSpeedMhz, strconv.FormatInt(mhz, 10))
	l.put(awsv1.LabelInstanceMemory, strconv.FormatInt(t.Memory.MiB, 10))
	l.put(awsv1.LabelInstanceHypervisor, t.Hypervisor)
	l.put(awsv1.LabelNitroSandbox, strconv.FormatBool(t.NitroEnclaves == "supported"))
}

func (l labelSet) network(t *awsdata.InstanceType) {
	l.put(awsv1.LabelInstanceEncryptionInTransit, strconv.FormatBool(t.Network.EncryptionInTransit))
	l.number(awsv1.LabelInstanceNetworkBandwidth, networkMbps(&t.Network))
}

// networkMbps returns a machine's baseline bandwidth; 0 for old types for which EC2 only says "Low" or "High". With
// several cards, the figure of each may be that of all together, so the text about the whole machine decides.
func networkMbps(n *awsdata.Network) int64 {
	rest, ok := strings.CutSuffix(n.Performance, " Gigabit")
	if !ok {
		return 0
	}
	if len(n.Cards) > 1 {
		times, each, ok := strings.Cut(rest, "x ")
		if !ok {
			times, each = "1", rest
		}
		cards, err1 := strconv.ParseFloat(times, 64)
		gbps, err2 := strconv.ParseFloat(each, 64)
		if err1 == nil && err2 == nil {
			return int64(math.Round(cards * gbps * 1000))
		}
	}
	sum := 0.0
	for _, card := range n.Cards {
		sum += card.BaselineGbps
	}
	return int64(math.Round(sum * 1000))
}

// storage records the bandwidth to EBS and the size of local disks.
func (l labelSet) storage(t *awsdata.InstanceType) {
	l.put(awsv1.LabelInstanceEBSBandwidth)
	if t.EBS.Optimized == "default" {
		l.number(awsv1.LabelInstanceEBSBandwidth, t.EBS.OptimizedInfo.MaxMbps)
	}
	l.put(awsv1.LabelInstanceLocalNVME)
	if t.Storage != nil && t.Storage.NVMe != "unsupported" {
		l.number(awsv1.LabelInstanceLocalNVME, t.Storage.TotalGB)
	}
}

// accelerators records the labels about GPUs and accelerators, only for machines with exactly one kind: a label can
// name only one.
func (l labelSet) accelerators(t *awsdata.InstanceType) {
	for _, key := range []string{
		awsv1.LabelInstanceGPUName, awsv1.LabelInstanceGPUManufacturer, awsv1.LabelInstanceGPUCount, awsv1.LabelInstanceGPUMemory,
		awsv1.LabelInstanceAcceleratorName, awsv1.LabelInstanceAcceleratorManufacturer, awsv1.LabelInstanceAcceleratorCount,
	} {
		l.put(key)
	}
	if t.GPU != nil && len(t.GPU.GPUs) == 1 {
		g := t.GPU.GPUs[0]
		l.put(awsv1.LabelInstanceGPUName, kebab(g.Name))
		l.put(awsv1.LabelInstanceGPUManufacturer, kebab(g.Manufacturer))
		l.put(awsv1.LabelInstanceGPUCount, strconv.Itoa(gpuCount(g)))
		l.put(awsv1.LabelInstanceGPUMemory, strconv.FormatInt(g.Memory.MiB, 10))
	}
	switch {
	case t.Neuron != nil && len(t.Neuron.Devices) == 1:
		d := t.Neuron.Devices[0]
		l.accelerator(d.Name, "aws", d.Count)
	case t.Neuron == nil && t.Inference != nil && len(t.Inference.Accelerators) == 1:
		a := t.Inference.Accelerators[0]
		l.accelerator(a.Name, a.Manufacturer, a.Count)
	}
}

func (l labelSet) accelerator(name, manufacturer string, count int) {
	l.put(awsv1.LabelInstanceAcceleratorName, kebab(name))
	l.put(awsv1.LabelInstanceAcceleratorManufacturer, kebab(manufacturer))
	l.put(awsv1.LabelInstanceAcceleratorCount, strconv.Itoa(count))
}

// kebab writes a name as a label value, such as radeon-pro-v520.
func kebab(s string) string { return strings.ReplaceAll(strings.ToLower(s), " ", "-") }
