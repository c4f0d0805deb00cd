package bootstrap

import (
	"errors"
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// ErrNoServiceCIDR says that the cluster's service range is not known yet. AL2023 nodes cannot boot without it.
var ErrNoServiceCIDR = errors.New("the cluster's service CIDR is not known")

// nodeConfig is the document that an AL2023 machine reads its cluster and kubelet settings from.
type nodeConfig struct {
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"`
	Metadata   struct{}       `json:"metadata"`
	Spec       nodeConfigSpec `json:"spec"`
}

type nodeConfigSpec struct {
	Cluster struct {
		Name                 string `json:"name"`
		APIServerEndpoint    string `json:"apiServerEndpoint"`
		CertificateAuthority string `json:"certificateAuthority"`
		CIDR                 string `json:"cidr"`
	} `json:"cluster"`
	Containerd struct{} `json:"containerd"`
	Instance   struct {
		LocalStorage struct {
			Strategy string `json:"strategy,omitempty"`
		} `json:"localStorage"`
	} `json:"instance"`
	Kubelet struct {
		Config map[string]any `json:"config"`
		Flags  []string       `json:"flags,omitempty"`
	} `json:"kubelet"`
}

// al2023 returns a multi-part document. Karpenter's part is the last: nodeadm merges later parts over earlier ones.
func al2023(o Options) (string, error) {
	if o.Cluster.ServiceCIDR == "" {
		return "", ErrNoServiceCIDR
	}
	parts, err := userParts(o.UserData, al2023Part)
	if err != nil {
		return "", err
	}
	document, err := yaml.Marshal(nodeConfigOf(o))
	if err != nil {
		return "", fmt.Errorf("write NodeConfig: %w", err)
	}
	ours := part{nodeConfigPart, "# Written by Karpenter; merged over the parts above.\n" + string(document)}
	return writeMIME(append(parts, ours)), nil
}

// al2023Part returns the content type of user data that is no multi-part document: a NodeConfig if it reads as one,
// else a script. Text that begins with #! is always a script, because a line such as echo "state: up" reads as YAML
// too.
func al2023Part(text string) string {
	var fields map[string]any
	if !strings.HasPrefix(strings.TrimSpace(text), "#!") && yaml.Unmarshal([]byte(text), &fields) == nil && len(fields) > 0 {
		return nodeConfigPart
	}
	return shellPart
}

// nodeConfigOf returns Karpenter's NodeConfig.
func nodeConfigOf(o Options) nodeConfig {
	c := nodeConfig{APIVersion: "node.eks.aws/v1alpha1", Kind: "NodeConfig"}
	c.Spec.Cluster.Name = o.Cluster.Name
	c.Spec.Cluster.APIServerEndpoint = o.Cluster.Endpoint
	c.Spec.Cluster.CertificateAuthority = o.Cluster.CABundle
	c.Spec.Cluster.CIDR = o.Cluster.ServiceCIDR
	if o.RAID0 {
		c.Spec.Instance.LocalStorage.Strategy = "RAID0"
	}
	c.Spec.Kubelet.Config = kubeletConfig(o)
	if len(o.Labels) > 0 {
		c.Spec.Kubelet.Flags = []string{"--node-labels=" + quoted(pairs(o.Labels, "="))}
	}
	return c
}

// kubeletConfig returns the user's whole configuration, with what the plan counted on written over it. Reservations
// that are formulas are replaced by their values, or removed if they have none.
func kubeletConfig(o Options) map[string]any {
	config := maps.Clone(o.Kubelet.Fields)
	if config == nil {
		config = map[string]any{}
	}
	config["maxPods"] = o.Kubelet.MaxPods
	replace := func(key string, m map[string]string) {
		if delete(config, key); len(m) > 0 {
			config[key] = m
		}
	}
	replace("kubeReserved", o.Kubelet.KubeReserved)
	replace("systemReserved", o.Kubelet.SystemReserved)
	if len(o.Kubelet.ClusterDNS) > 0 {
		config["clusterDNS"] = o.Kubelet.ClusterDNS
	}
	if len(o.Taints) > 0 {
		config["registerWithTaints"] = taintObjects(o.Taints)
	}
	return config
}

// taintObjects returns taints as the kubelet's configuration writes them.
func taintObjects(taints []corev1.Taint) []map[string]string {
	out := make([]map[string]string, len(taints))
	for i, t := range taints {
		out[i] = map[string]string{"key": t.Key, "effect": string(t.Effect)}
		if t.Value != "" {
			out[i]["value"] = t.Value
		}
	}
	return out
}
