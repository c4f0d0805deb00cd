// Package bootstrap writes the user data that makes a machine join the cluster, for each family of machine images, merged
// with the user's own.
//
// It is pure text work: the same options give the same document, byte for byte, so that equal machines share a launch
// template. If both the user and Karpenter set something, Karpenter's value wins; everything else stays as the user wrote
// it.
package bootstrap

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
)

// Options is what a machine needs to know to join.
type Options struct {
	Cluster Cluster
	Kubelet Kubelet
	Taints  []corev1.Taint
	Labels  map[string]string // those that the kubelet may give itself; see Labels
	RAID0   bool              // put local disks together and keep pods' data there
	// UserData is the user's own, merged as the family allows.
	UserData string
	// BottlerocketVersion is "" when it is not known.
	BottlerocketVersion string
}

// Cluster is what the machine joins.
type Cluster struct {
	Name, Endpoint string
	CABundle       string // base64
	ServiceCIDR    string // AL2023 only
}

// Kubelet is the kubelet's configuration.
type Kubelet struct {
	awsv1.ManagedKubelet
	// MaxPods is the number of pods that the plan counted on.
	MaxPods int
	// Fields is the whole configuration as the user wrote it, for the family that takes it whole.
	Fields map[string]any
}

// Render returns the user data of a machine, not encoded.
func Render(family string, o Options) (string, error) {
	switch family {
	case awsv1.AMIFamilyAL2023:
		return al2023(o)
	case awsv1.AMIFamilyBottlerocket:
		return bottlerocket(o)
	case awsv1.AMIFamilyWindows2019, awsv1.AMIFamilyWindows2022, awsv1.AMIFamilyWindows2025:
		return windows(o), nil
	case awsv1.AMIFamilyCustom:
		return o.UserData, nil
	}
	return al2(o)
}

// Labels returns the labels that the kubelet gives its node: the claim's without those that a kubelet may not set,
// the capacity type, and the mark that taints are registered at boot. Karpenter adds the others when the node
// registers.
func Labels(family string, claim map[string]string, capacityType string) map[string]string {
	out := map[string]string{}
	for key, value := range claim {
		if !reservedDomain(key) {
			out[key] = value
		}
	}
	out[v1.CapacityTypeLabelKey] = capacityType
	if family != awsv1.AMIFamilyCustom {
		out[v1.NodeDoNotSyncTaintsLabelKey] = "true"
	}
	return out
}

// reservedDomain reports whether a label key is of a domain of Kubernetes, most of whose labels a kubelet may not
// set.
func reservedDomain(key string) bool {
	domain, _, ok := strings.Cut(key, "/")
	if !ok {
		return false
	}
	for _, d := range []string{"kubernetes.io", "k8s.io"} {
		if domain == d || strings.HasSuffix(domain, "."+d) {
			return true
		}
	}
	return false
}

// Taints returns the taints that a machine registers with: the claim's own, those for its start, and the taint that keeps
// pods away until Karpenter has seen the node.
func Taints(claim *v1.NodeClaim) []corev1.Taint {
	var out []corev1.Taint
	for _, t := range slices.Concat(claim.Spec.Taints, claim.Spec.StartupTaints, []corev1.Taint{v1.UnregisteredTaint()}) {
		t.TimeAdded = nil
		if !slices.Contains(out, t) {
			out = append(out, t)
		}
	}
	return out
}

// kubeletArgs returns the flags for families that start the kubelet from a script, in a fixed order.
func kubeletArgs(o Options) []string {
	k := o.Kubelet
	args := []string{}
	add := func(flag, value string) { args = append(args, "--"+flag+"="+value) }
	if len(o.Labels) > 0 {
		add("node-labels", quoted(pairs(o.Labels, "=")))
	}
	if len(o.Taints) > 0 {
		texts := make([]string, len(o.Taints))
		for i, t := range o.Taints {
			texts[i] = taintFlag(t)
		}
		add("register-with-taints", quoted(strings.Join(texts, ",")))
	}
	add("max-pods", fmt.Sprint(k.MaxPods))
	addInt(add, "pods-per-core", k.PodsPerCore)
	addMap(add, "system-reserved", k.SystemReserved, "=")
	addMap(add, "kube-reserved", k.KubeReserved, "=")
	addMap(add, "eviction-hard", k.EvictionHard, "<")
	addMap(add, "eviction-soft", k.EvictionSoft, "<")
	addMap(add, "eviction-soft-grace-period", k.EvictionSoftGracePeriod, "=")
	addInt(add, "eviction-max-pod-grace-period", k.EvictionMaxPodGracePeriod)
	addInt(add, "image-gc-high-threshold", k.ImageGCHighThresholdPercent)
	addInt(add, "image-gc-low-threshold", k.ImageGCLowThresholdPercent)
	if k.CPUCFSQuota != nil {
		add("cpu-cfs-quota", fmt.Sprint(*k.CPUCFSQuota))
	}
	return args
}

// addInt adds a flag if its number is set.
func addInt(add func(flag, value string), flag string, n *int32) {
	if n != nil {
		add(flag, fmt.Sprint(*n))
	}
}

// addMap adds a flag if its map is not empty.
func addMap(add func(flag, value string), flag string, m map[string]string, separator string) {
	if len(m) > 0 {
		add(flag, quoted(pairs(m, separator)))
	}
}

// quoted returns a value in double quotes, as the kubelet's service reads its flags.
func quoted(s string) string { return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"` }

// pairs writes a map sorted by key, so that equal maps give equal text.
func pairs(m map[string]string, separator string) string {
	out := make([]string, 0, len(m))
	for _, key := range slices.Sorted(maps.Keys(m)) {
		out = append(out, key+separator+m[key])
	}
	return strings.Join(out, ",")
}

// taintFlag writes a taint as the kubelet's flag takes it.
func taintFlag(t corev1.Taint) string {
	if t.Value == "" {
		return fmt.Sprintf("%s:%s", t.Key, t.Effect)
	}
	return fmt.Sprintf("%s=%s:%s", t.Key, t.Value, t.Effect)
}
