package class

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	"karpenter.sh/karpenter/internal/kit/bounded"
)

// signals are the eviction signals of the kubelet.
var signals = []string{
	"imagefs.available", "imagefs.inodesFree", "memory.available", "nodefs.available", "nodefs.inodesFree", "pid.available",
}

// reservable are the resources that can be kept for daemons.
var reservable = []string{"cpu", "ephemeral-storage", "memory", "pid"}

// CheckKubelet lists the errors of a kubelet configuration that do not depend on the AMI family; nil if there are none.
func CheckKubelet(k *awsv1.KubeletConfiguration) []string {
	fields, err := k.Fields()
	if err != nil {
		return []string{err.Error()}
	}
	var bad []string
	if _, ok := fields["registerWithTaints"]; ok {
		bad = append(bad, "registerWithTaints is set by Karpenter; use the taints of the NodePool")
	}
	bad = append(bad, checkSchema(fields)...)
	m, err := k.Managed()
	if err != nil {
		return append(bad, err.Error())
	}
	bad = append(bad, checkEviction(m, fields)...)
	bad = append(bad, checkReserved("kubeReserved", m.KubeReserved)...)
	bad = append(bad, checkReserved("systemReserved", m.SystemReserved)...)
	bad = append(bad, checkImageGC(m)...)
	bad = append(bad, checkNumbers(m)...)
	bad = append(bad, checkDNS(m)...)
	return bad
}

// checkEviction lists the errors in eviction thresholds and grace periods.
func checkEviction(m *awsv1.ManagedKubelet, fields map[string]any) []string {
	var bad []string
	minimum := map[string]string{}
	if raw, ok := fields["evictionMinimumReclaim"]; ok {
		text, _ := json.Marshal(raw)
		_ = json.Unmarshal(text, &minimum) // a wrong type is reported by the schema
	}
	for _, of := range []struct {
		name       string
		thresholds map[string]string
		grace      bool
	}{
		{"evictionHard", m.EvictionHard, false}, {"evictionSoft", m.EvictionSoft, false},
		{"evictionMinimumReclaim", minimum, false}, {"evictionSoftGracePeriod", m.EvictionSoftGracePeriod, true},
	} {
		for _, signal := range slices.Sorted(maps.Keys(of.thresholds)) {
			if !slices.Contains(signals, signal) {
				bad = append(bad, fmt.Sprintf("%s: %q is no eviction signal; use one of %s", of.name, signal, strings.Join(signals, ", ")))
			}
			value := of.thresholds[signal]
			if of.grace {
				if d, err := time.ParseDuration(value); err != nil || d < 0 {
					bad = append(bad, fmt.Sprintf("%s: %s: %q is no duration", of.name, signal, value))
				}
			} else if !validThreshold(value) {
				bad = append(bad, fmt.Sprintf("%s: %s: %q is neither a percentage from 0%% to 100%% nor a quantity",
					of.name, signal, value))
			}
		}
	}
	return append(bad, checkPairs(m)...)
}

// checkPairs lists soft thresholds without a grace period, and grace periods without a soft threshold.
func checkPairs(m *awsv1.ManagedKubelet) []string {
	var bad []string
	for _, signal := range slices.Sorted(maps.Keys(m.EvictionSoft)) {
		if _, ok := m.EvictionSoftGracePeriod[signal]; !ok {
			bad = append(bad, fmt.Sprintf("evictionSoft: %s has no evictionSoftGracePeriod", signal))
		}
	}
	for _, signal := range slices.Sorted(maps.Keys(m.EvictionSoftGracePeriod)) {
		if _, ok := m.EvictionSoft[signal]; !ok {
			bad = append(bad, fmt.Sprintf("evictionSoftGracePeriod: %s has no evictionSoft", signal))
		}
	}
	return bad
}

// validThreshold reports whether a text is a percentage from 0 to 100 or a quantity.
func validThreshold(value string) bool {
	if percent, ok := strings.CutSuffix(value, "%"); ok {
		p, err := strconv.ParseFloat(percent, 64)
		return err == nil && p >= 0 && p <= 100
	}
	q, err := bounded.ParseQuantity(value)
	return err == nil && q.Sign() >= 0
}

// checkReserved lists the errors in resources reserved for daemons. Amounts may be expressions, so only signs are
// checked.
func checkReserved(name string, amounts map[string]string) []string {
	var bad []string
	for _, key := range slices.Sorted(maps.Keys(amounts)) {
		if !slices.Contains(reservable, key) {
			bad = append(bad, fmt.Sprintf("%s: %q cannot be reserved; use one of %s", name, key, strings.Join(reservable, ", ")))
		}
		if strings.HasPrefix(amounts[key], "-") {
			bad = append(bad, fmt.Sprintf("%s: %s: %q is negative", name, key, amounts[key]))
		}
	}
	return bad
}

// checkImageGC lists the errors in the limits of image garbage collection.
func checkImageGC(m *awsv1.ManagedKubelet) []string {
	var bad []string
	high, low := m.ImageGCHighThresholdPercent, m.ImageGCLowThresholdPercent
	if high != nil && (*high < 0 || *high > 100) {
		bad = append(bad, "imageGCHighThresholdPercent must be from 0 to 100")
	}
	if low != nil && (*low < 0 || *low > 100) {
		bad = append(bad, "imageGCLowThresholdPercent must be from 0 to 100")
	}
	if high != nil && low != nil && *high <= *low {
		bad = append(bad, "imageGCHighThresholdPercent must be greater than imageGCLowThresholdPercent")
	}
	return bad
}

// checkDNS lists the values of clusterDNS that are not IP addresses.
func checkDNS(m *awsv1.ManagedKubelet) []string {
	var bad []string
	for _, address := range m.ClusterDNS {
		if _, err := netip.ParseAddr(address); err != nil {
			bad = append(bad, fmt.Sprintf("clusterDNS: %q is not an IP address", address))
		}
	}
	return bad
}

// checkNumbers lists the numbers that are negative. A maxPods that is an expression is checked elsewhere: see expressions.
func checkNumbers(m *awsv1.ManagedKubelet) []string {
	var bad []string
	if m.PodsPerCore != nil && *m.PodsPerCore < 0 {
		bad = append(bad, "podsPerCore must not be negative")
	}
	if m.EvictionMaxPodGracePeriod != nil && *m.EvictionMaxPodGracePeriod < 0 {
		bad = append(bad, "evictionMaxPodGracePeriod must not be negative")
	}
	if m.MaxPods != nil && m.MaxPods.Type == intstr.Int && m.MaxPods.IntVal < 0 {
		bad = append(bad, "maxPods must not be negative")
	}
	return bad
}

// expressions lists the fields that hold an expression instead of a value, sorted.
func expressions(m *awsv1.ManagedKubelet) []string {
	var out []string
	if m.MaxPods != nil && m.MaxPods.Type == intstr.String {
		out = append(out, "maxPods")
	}
	for name, amounts := range map[string]map[string]string{"kubeReserved": m.KubeReserved, "systemReserved": m.SystemReserved} {
		for key, value := range amounts {
			if _, err := bounded.ParseQuantity(value); err != nil {
				out = append(out, name+"."+key)
			}
		}
	}
	slices.Sort(out)
	return out
}

// checkFamily lists what a family of images cannot do of a kubelet configuration.
func checkFamily(family string, k *awsv1.KubeletConfiguration) []string {
	if family == awsv1.AMIFamilyAL2023 || family == awsv1.AMIFamilyCustom {
		return nil
	}
	var bad []string
	if extra, err := k.Passthrough(); err == nil && len(extra) > 0 {
		bad = append(bad, fmt.Sprintf("%s images take no kubelet fields beyond the well-known ones: %s", family,
			strings.Join(extra, ", ")))
	}
	m, err := k.Managed()
	if err != nil {
		return bad
	}
	if family == awsv1.AMIFamilyBottlerocket && m.PodsPerCore != nil {
		bad = append(bad, "Bottlerocket does not support podsPerCore")
	}
	if len(m.ClusterDNS) > 1 {
		bad = append(bad, family+" images take one clusterDNS address only")
	}
	return bad
}
