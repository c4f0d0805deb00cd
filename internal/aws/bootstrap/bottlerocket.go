package bootstrap

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// table is a TOML table.
type table = map[string]any

// bottlerocket returns the settings that Bottlerocket reads at boot, as TOML: those of the user data, overridden by Karpenter's.
func bottlerocket(o Options) (string, error) {
	document := table{}
	if err := toml.Unmarshal([]byte(o.UserData), &document); err != nil {
		return "", fmt.Errorf("user data is not valid TOML: %w", err)
	}
	settings, err := subTable(document, "settings")
	if err != nil {
		return "", err
	}
	kubernetes, err := subTable(settings, "kubernetes")
	if err != nil {
		return "", err
	}
	if err := kubernetesSettings(kubernetes, o); err != nil {
		return "", err
	}
	if o.RAID0 {
		commands, err := subTable(settings, "bootstrap-commands")
		if err != nil {
			return "", err
		}
		commands["000-mount-instance-storage"] = mountInstanceStorage(o.BottlerocketVersion)
	}
	text, err := toml.Marshal(document)
	return string(text), err
}

// subTable returns the table under a key of another table. It makes the table if it is missing.
func subTable(parent table, key string) (table, error) {
	value, ok := parent[key]
	if !ok {
		value = table{}
		parent[key] = value
	}
	child, ok := value.(table)
	if !ok {
		return nil, fmt.Errorf("user data: %q must be a table", key)
	}
	return child, nil
}

// kubernetesSettings writes Karpenter's settings over those in the table settings.kubernetes.
func kubernetesSettings(k table, o Options) error {
	k["cluster-name"] = o.Cluster.Name
	k["api-server"] = o.Cluster.Endpoint
	if o.Cluster.CABundle != "" {
		k["cluster-certificate"] = o.Cluster.CABundle
	}
	k["max-pods"] = o.Kubelet.MaxPods
	if dns := o.Kubelet.ClusterDNS; len(dns) > 0 {
		k["cluster-dns-ip"] = dns[0]
	}
	labels, err := subTable(k, "node-labels")
	if err != nil {
		return err
	}
	for key, value := range o.Labels {
		labels[key] = value
	}
	taints := table{}
	for _, t := range o.Taints {
		list, _ := taints[t.Key].([]string)
		taints[t.Key] = append(list, t.Value+":"+string(t.Effect))
	}
	k["node-taints"] = taints
	kubeletSettings(k, o.Kubelet)
	return nil
}

// kubeletSettings writes the kubelet settings that the node class has over those of the user data.
func kubeletSettings(k table, c Kubelet) {
	for key, m := range map[string]map[string]string{
		"system-reserved": c.SystemReserved, "kube-reserved": c.KubeReserved, "eviction-hard": c.EvictionHard,
		"eviction-soft": c.EvictionSoft, "eviction-soft-grace-period": c.EvictionSoftGracePeriod,
	} {
		if len(m) > 0 {
			k[key] = m
		}
	}
	if c.EvictionMaxPodGracePeriod != nil {
		k["eviction-max-pod-grace-period"] = *c.EvictionMaxPodGracePeriod
	}
	// These two are numbers to the kubelet and text to Bottlerocket.
	if c.ImageGCHighThresholdPercent != nil {
		k["image-gc-high-threshold-percent"] = strconv.Itoa(int(*c.ImageGCHighThresholdPercent))
	}
	if c.ImageGCLowThresholdPercent != nil {
		k["image-gc-low-threshold-percent"] = strconv.Itoa(int(*c.ImageGCLowThresholdPercent))
	}
	if c.CPUCFSQuota != nil {
		k["cpu-cfs-quota-enforced"] = *c.CPUCFSQuota
	}
}

// mountInstanceStorage returns the bootstrap command that joins the local disks to a RAID before the kubelet starts. Before 1.46, the
// command has to name the folders that are moved to it.
func mountInstanceStorage(version string) table {
	bind := []string{"apiclient", "ephemeral-storage", "bind"}
	if !atLeast(version, 1, 46) {
		bind = append(bind, "--dirs", "/var/lib/containerd", "/var/lib/kubelet", "/var/log/pods")
	}
	return table{
		"commands":  [][]string{{"apiclient", "ephemeral-storage", "init"}, bind},
		"mode":      "always",
		"essential": true,
	}
}

// atLeast reports whether a version such as "v1.46.2" is major.minor or later. "latest" always is; a version that cannot be read never is.
func atLeast(version string, major, minor int) bool {
	if version == "latest" {
		return true
	}
	fields := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	if len(fields) < 2 {
		return false
	}
	ma, err1 := strconv.Atoi(fields[0])
	mi, err2 := strconv.Atoi(fields[1])
	return err1 == nil && err2 == nil && (ma > major || ma == major && mi >= minor)
}
