package boot

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"karpenter.sh/karpenter/internal/aws/awsdata"
	"karpenter.sh/karpenter/internal/kit/bounded"
)

const (
	kib = int64(1) << 10
	mib = int64(1) << 20
	gib = int64(1) << 30
)

// kubelet starts the kubelet and returns the node that it registers.
func kubelet(m Machine, s *settings) (*Node, error) {
	if err := allowedLabels(s.flags.labels); err != nil {
		return nil, err
	}
	if s.flags.maxPods != nil && *s.flags.maxPods < 0 {
		return nil, fmt.Errorf("invalid configuration: maxPods %d must not be negative", *s.flags.maxPods)
	}
	n := &Node{Labels: labels(m, s), Taints: s.flags.taints, OS: "linux", OSImage: string(m.Family)}
	if m.Family == Windows {
		n.OS = "windows"
	}
	n.Capacity = capacity(m, s)
	var err error
	n.Allocatable, err = allocatable(m, s, n.Capacity)
	return n, err
}

// kubeletLabels are the keys of Kubernetes' own namespaces that a kubelet may give itself.
var kubeletLabels = []string{
	corev1.LabelHostname, corev1.LabelTopologyZone, corev1.LabelTopologyRegion, corev1.LabelFailureDomainBetaZone,
	corev1.LabelFailureDomainBetaRegion, corev1.LabelInstanceType, corev1.LabelInstanceTypeStable, corev1.LabelOSStable,
	corev1.LabelArchStable, "beta.kubernetes.io/os", "beta.kubernetes.io/arch",
}

// allowedLabels refuses what the kubelet refuses at start: keys of Kubernetes' own domains outside a short list, and
// malformed keys and values.
func allowedLabels(labels map[string]string) error {
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		domain, _, ok := strings.Cut(k, "/")
		own := ok && (within(domain, "kubernetes.io") || within(domain, "k8s.io"))
		free := within(domain, "kubelet.kubernetes.io") || within(domain, "node.kubernetes.io")
		if own && !free && !slices.Contains(kubeletLabels, k) {
			return fmt.Errorf("unknown 'kubernetes.io' or 'k8s.io' labels specified with --node-labels: [%s]", k)
		}
		if errs := validation.IsQualifiedName(k); len(errs) > 0 {
			return fmt.Errorf("invalid label key %q: %s", k, errs[0])
		}
		if errs := validation.IsValidLabelValue(labels[k]); len(errs) > 0 {
			return fmt.Errorf("invalid value of label %q: %s", k, errs[0])
		}
	}
	return nil
}

func within(domain, parent string) bool {
	return domain == parent || strings.HasSuffix(domain, "."+parent)
}

// labels are the kubelet's own, those of the user data, and those that the cloud's controller adds, by their old names too.
func labels(m Machine, s *settings) map[string]string {
	os := "linux"
	if m.Family == Windows {
		os = "windows"
	}
	out := map[string]string{
		corev1.LabelHostname:           m.NodeName,
		corev1.LabelOSStable:           os,
		corev1.LabelArchStable:         m.Arch,
		corev1.LabelInstanceTypeStable: m.Type.Name,
		corev1.LabelTopologyZone:       m.Zone,
		corev1.LabelTopologyRegion:     m.Region,
		"topology.k8s.aws/zone-id":     m.ZoneID,
	}
	for now, before := range map[string]string{
		corev1.LabelOSStable: "beta.kubernetes.io/os", corev1.LabelArchStable: "beta.kubernetes.io/arch",
		corev1.LabelInstanceTypeStable: corev1.LabelInstanceType,
		corev1.LabelTopologyZone:       corev1.LabelFailureDomainBetaZone, corev1.LabelTopologyRegion: corev1.LabelFailureDomainBetaRegion,
	} {
		out[before] = out[now]
	}
	if m.Family == Windows {
		out[corev1.LabelWindowsBuild] = m.Build
	}
	maps.Copy(out, s.flags.labels)
	return out
}

func capacity(m Machine, s *settings) corev1.ResourceList {
	disk := m.RootGiB*gib - 21524*kib // what a fresh XFS keeps for itself
	if s.raid0 && m.Type.Storage != nil {
		disk = m.Type.Storage.TotalGB * 1e9
	}
	out := corev1.ResourceList{
		corev1.ResourceCPU:              *resource.NewQuantity(int64(m.Type.VCPU.Default), resource.DecimalSI),
		corev1.ResourceMemory:           *resource.NewQuantity(VisibleMemory(m.Type), resource.BinarySI),
		corev1.ResourceEphemeralStorage: *resource.NewQuantity(max(disk, 0), resource.BinarySI),
		corev1.ResourcePods:             *resource.NewQuantity(int64(pods(m, s)), resource.DecimalSI),
	}
	for name, n := range devices(m) {
		if n > 0 {
			out[name] = *resource.NewQuantity(int64(n), resource.DecimalSI)
		}
	}
	return out
}

// VisibleMemory is what the kernel of a machine of this type reports, in bytes. EC2 keeps some for firmware and the
// kernel some for its page tables; the constants are fitted to t4g.small, t4g.medium, t4g.xlarge and m5.large, measured.
func VisibleMemory(t *awsdata.InstanceType) int64 {
	m := float64(t.Memory.MiB)
	fixed := min(231.07, 0.03*m)
	if slices.Contains(t.Processor.Architectures, "arm64") {
		fixed = min(137.6, 0.0672*m)
	}
	return (t.Memory.MiB*mib - int64(math.Round((0.0288*m+fixed)*float64(mib)))) / (4 * kib) * (4 * kib)
}

// eniPods is the image's own default for the number of pods: one address of each interface is the interface's.
func eniPods(t *awsdata.InstanceType) int {
	interfaces := t.Network.MaxInterfaces
	for _, c := range t.Network.Cards {
		if c.Index == t.Network.DefaultCard {
			interfaces = c.MaxInterfaces
		}
	}
	return interfaces*(t.Network.IPv4PerInterface-1) + 2
}

func pods(m Machine, s *settings) int {
	n := eniPods(m.Type)
	if m.Family == Windows {
		n = 110
	}
	if s.flags.maxPods != nil {
		n = *s.flags.maxPods
	}
	if s.flags.podsPerCore > 0 && m.Family != Bottlerocket {
		n = min(n, s.flags.podsPerCore*m.Type.VCPU.Default)
	}
	return n
}

// devices are the extended resources that the device plugins of an ordinary EKS cluster announce.
func devices(m Machine) map[corev1.ResourceName]int {
	out := map[corev1.ResourceName]int{}
	if m.Type.GPU != nil {
		names := map[string]corev1.ResourceName{"NVIDIA": "nvidia.com/gpu", "AMD": "amd.com/gpu", "Habana": "habana.ai/gaudi"}
		for _, g := range m.Type.GPU.GPUs {
			if name, ok := names[g.Manufacturer]; ok {
				out[name] += cmp.Or(g.Count, g.Logical) // a slice of a GPU is seen as one
			}
		}
	}
	if m.Type.Neuron != nil {
		for _, d := range m.Type.Neuron.Devices {
			out["aws.amazon.com/neuron"] += d.Count
			out["aws.amazon.com/neuroncore"] += d.Count * d.Core.Count
		}
	}
	if m.Family == Windows { // the VPC resource controller's, for addresses of the one interface that it uses
		out["vpc.amazonaws.com/PrivateIPv4Address"] = m.Type.Network.IPv4PerInterface - 1
	}
	out["vpc.amazonaws.com/efa"] = m.EFA
	out["vpc.amazonaws.com/pod-eni"] = awsdata.Branches(m.Type.Name)
	return out
}

func allocatable(m Machine, s *settings, capacity corev1.ResourceList) (corev1.ResourceList, error) {
	reserved := reserves(m, s)
	maps.Copy(reserved.hard, s.flags.evictionHard)
	if m.Family == AL2 && s.flags.evictionHard != nil || m.Family == Windows && s.flags.evictionHard != nil {
		reserved.hard = s.flags.evictionHard // a flag replaces the whole map
	}
	out := capacity.DeepCopy()
	for _, list := range []map[string]string{reserved.kube, s.flags.systemReserved} {
		for _, k := range slices.Sorted(maps.Keys(list)) {
			if k == "pid" {
				continue
			}
			q, err := bounded.ParseQuantity(list[k])
			if err != nil {
				return nil, fmt.Errorf("reserved %s=%s: %w", k, list[k], err)
			}
			subtract(out, corev1.ResourceName(k), q)
		}
	}
	for signal, name := range map[string]corev1.ResourceName{"memory.available": corev1.ResourceMemory,
		"nodefs.available": corev1.ResourceEphemeralStorage} {
		q, err := threshold(reserved.hard[signal], capacity[name])
		if err != nil {
			return nil, fmt.Errorf("eviction-hard %s: %w", signal, err)
		}
		subtract(out, name, q)
	}
	return out, nil
}

func subtract(list corev1.ResourceList, name corev1.ResourceName, q resource.Quantity) {
	have := list[name]
	have.Sub(q)
	if have.Sign() < 0 {
		have = resource.Quantity{}
	}
	list[name] = have
}

type reserve struct{ kube, hard map[string]string }

// reserves are the defaults of each family's image, with what the user data sets for kube-reserved laid over them.
func reserves(m Machine, s *settings) reserve {
	r := reserve{
		kube: map[string]string{
			"cpu":               fmt.Sprintf("%dm", reservedCPU(m.Type.VCPU.Default)),
			"ephemeral-storage": "1Gi",
		},
		hard: map[string]string{"memory.available": "100Mi", "nodefs.available": "10%"},
	}
	perPods := eniPods(m.Type)
	if m.Family == Bottlerocket || m.Family == Windows {
		perPods = pods(m, s)
	}
	r.kube["memory"] = fmt.Sprintf("%dMi", 255+11*perPods)
	if s.flags.kubeReserved != nil && (m.Family == AL2 || m.Family == Windows) {
		r.kube = map[string]string{} // a flag replaces the whole map
	}
	maps.Copy(r.kube, s.flags.kubeReserved)
	return r
}

// reservedCPU is 6 % of the first core, 1 % of the second, 0.5 % of the next two and 0.25 % of the rest, in millicores.
func reservedCPU(cores int) int {
	out := 0
	last := 0
	for _, tier := range []struct{ upTo, perTenThousand int }{{1, 600}, {2, 100}, {4, 50}, {math.MaxInt, 25}} {
		in := min(cores, tier.upTo) - last
		if in <= 0 {
			break
		}
		out += in * 1000 * tier.perTenThousand / 10000
		last = tier.upTo
	}
	return out
}

func threshold(value string, of resource.Quantity) (resource.Quantity, error) {
	if value == "" {
		return resource.Quantity{}, nil
	}
	if p, ok := strings.CutSuffix(value, "%"); ok {
		f, err := strconv.ParseFloat(p, 64)
		if err != nil || f < 0 || f > 100 {
			return resource.Quantity{}, fmt.Errorf("%q is not a percentage", value)
		}
		if f == 100 {
			return resource.Quantity{}, nil // disabled
		}
		return *resource.NewQuantity(int64(f/100*float64(of.Value())), resource.BinarySI), nil
	}
	return bounded.ParseQuantity(value)
}
