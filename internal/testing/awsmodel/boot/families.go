package boot

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

const bootstrapScript = "/etc/eks/bootstrap.sh"

// readAL2 runs the shell parts as far as the one command that matters: the bootstrap script of the image.
func readAL2(userData string) (*settings, error) {
	docs, err := parts(userData)
	if err != nil {
		return nil, err
	}
	for _, d := range docs {
		if d.kind != shellScript {
			continue
		}
		cmds, err := commands(d.body)
		if err != nil {
			return nil, err
		}
		for _, c := range cmds {
			if c[0] == bootstrapScript {
				return bootstrap(c[1:])
			}
		}
	}
	return nil, fmt.Errorf("nothing calls %s", bootstrapScript)
}

// bootstrap reads the arguments of the image's script.
func bootstrap(args []string) (*settings, error) {
	s := &settings{}
	useMaxPods := true
	var extra string
	for i := 0; i < len(args); i++ {
		a := args[i]
		if !strings.HasPrefix(a, "--") {
			s.cluster = a
			continue
		}
		if i+1 == len(args) {
			return nil, fmt.Errorf("%s: option %s has no value", bootstrapScript, a)
		}
		i++
		v := args[i]
		switch a {
		case "--apiserver-endpoint":
			s.endpoint = v
		case "--b64-cluster-ca":
			s.ca = v
		case "--use-max-pods":
			useMaxPods = v == "true"
		case "--kubelet-extra-args":
			extra = v
		case "--local-disks":
			s.raid0 = v == "raid0"
		case "--dns-cluster-ip", "--ip-family", "--service-ipv6-cidr", "--container-runtime", "--docker-config-json",
			"--containerd-config-file",
			"--pause-container-account", "--pause-container-version", "--enable-local-outpost", "--cluster-id", "--enable-docker-bridge":
		default:
			return nil, fmt.Errorf("%s: unknown option %s", bootstrapScript, a)
		}
	}
	if s.cluster == "" {
		return nil, fmt.Errorf("%s: CLUSTER_NAME is not defined", bootstrapScript)
	}
	words, err := fields(extra)
	if err != nil {
		return nil, fmt.Errorf("--kubelet-extra-args: %w", err)
	}
	if err := s.flags.parse(words); err != nil {
		return nil, fmt.Errorf("kubelet: %w", err)
	}
	if s.flags.maxPods == nil && !useMaxPods {
		n := 110 // the kubelet's own default
		s.flags.maxPods = &n
	}
	return s, nil
}

// nodeConfig is what nodeadm reads.
type nodeConfig struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Spec       struct {
		Cluster struct {
			Name                 string `json:"name"`
			APIServerEndpoint    string `json:"apiServerEndpoint"`
			CertificateAuthority string `json:"certificateAuthority"`
			CIDR                 string `json:"cidr"`
		} `json:"cluster"`
		Instance struct {
			LocalStorage struct {
				Strategy string `json:"strategy"`
			} `json:"localStorage"`
		} `json:"instance"`
		Kubelet struct {
			Config kubeletConfig `json:"config"`
			Flags  []string      `json:"flags"`
		} `json:"kubelet"`
	} `json:"spec"`
}

type kubeletConfig struct {
	ClusterDNS         []string          `json:"clusterDNS"`
	MaxPods            *int              `json:"maxPods"`
	PodsPerCore        int               `json:"podsPerCore"`
	KubeReserved       map[string]string `json:"kubeReserved"`
	SystemReserved     map[string]string `json:"systemReserved"`
	EvictionHard       map[string]string `json:"evictionHard"`
	RegisterWithTaints []corev1.Taint    `json:"registerWithTaints"`
}

const nodeConfigGroup = "node.eks.aws/"

// readAL2023 merges the NodeConfig documents in order, later ones over earlier ones, as nodeadm does.
func readAL2023(userData string) (*settings, error) {
	docs, err := parts(userData)
	if err != nil {
		return nil, err
	}
	merged := map[string]any{}
	found := false
	for _, d := range docs {
		if d.kind == shellScript || d.kind != "application/node.eks.aws" && !strings.Contains(d.body, nodeConfigGroup) {
			continue
		}
		doc := map[string]any{}
		if err := yaml.Unmarshal([]byte(d.body), &doc); err != nil {
			return nil, fmt.Errorf("NodeConfig: %w", err)
		}
		if group, _ := doc["apiVersion"].(string); !strings.HasPrefix(group, nodeConfigGroup) || doc["kind"] != "NodeConfig" {
			return nil, fmt.Errorf("NodeConfig: unknown kind %v of %v", doc["kind"], doc["apiVersion"])
		}
		merge(merged, doc)
		found = true
	}
	if !found {
		return nil, fmt.Errorf("nodeadm: no NodeConfig")
	}
	var n nodeConfig
	raw, err := json.Marshal(merged)
	if err != nil {
		return nil, fmt.Errorf("NodeConfig: %w", err)
	}
	if err := json.Unmarshal(raw, &n); err != nil {
		return nil, fmt.Errorf("NodeConfig: %w", err)
	}
	return nodeadm(&n)
}

// merge lays b over a: maps key by key, lists one after the other, everything else replaced.
func merge(a, b map[string]any) {
	for k, v := range b {
		switch v := v.(type) {
		case map[string]any:
			if old, ok := a[k].(map[string]any); ok {
				merge(old, v)
				continue
			}
		case []any:
			if old, ok := a[k].([]any); ok {
				a[k] = append(slices.Clone(old), v...)
				continue
			}
		}
		a[k] = b[k]
	}
}

func nodeadm(n *nodeConfig) (*settings, error) {
	c := n.Spec.Cluster
	for field, v := range map[string]string{"Name": c.Name, "API server endpoint": c.APIServerEndpoint,
		"certificate authority": c.CertificateAuthority, "CIDR": c.CIDR} {
		if v == "" {
			return nil, fmt.Errorf("nodeadm: %s is missing in cluster configuration", field)
		}
	}
	k := n.Spec.Kubelet
	s := &settings{
		cluster: c.Name, endpoint: c.APIServerEndpoint, ca: c.CertificateAuthority,
		raid0: n.Spec.Instance.LocalStorage.Strategy == "RAID0",
		flags: kubeletFlags{
			taints: k.Config.RegisterWithTaints, maxPods: k.Config.MaxPods, podsPerCore: k.Config.PodsPerCore,
			kubeReserved: k.Config.KubeReserved, systemReserved: k.Config.SystemReserved, evictionHard: k.Config.EvictionHard,
		},
	}
	for _, t := range s.flags.taints {
		if _, err := newTaint(t.Key, t.Value, string(t.Effect)); err != nil {
			return nil, fmt.Errorf("kubelet: %w", err)
		}
	}
	var words []string
	for _, f := range k.Flags {
		w, err := fields(f)
		if err != nil {
			return nil, fmt.Errorf("kubelet flags: %w", err)
		}
		words = append(words, w...)
	}
	if err := s.flags.parse(words); err != nil {
		return nil, fmt.Errorf("kubelet: %w", err)
	}
	return s, nil
}

// bottlerocket is what the settings service reads of [settings.kubernetes].
type bottlerocket struct {
	Settings struct {
		Kubernetes struct {
			ClusterName        string              `toml:"cluster-name"`
			APIServer          string              `toml:"api-server"`
			ClusterCertificate string              `toml:"cluster-certificate"`
			ClusterDNSIP       any                 `toml:"cluster-dns-ip"`
			NodeLabels         map[string]string   `toml:"node-labels"`
			NodeTaints         map[string][]string `toml:"node-taints"`
			MaxPods            *int                `toml:"max-pods"`
			KubeReserved       map[string]string   `toml:"kube-reserved"`
			SystemReserved     map[string]string   `toml:"system-reserved"`
			EvictionHard       map[string]string   `toml:"eviction-hard"`
		} `toml:"kubernetes"`
		BootstrapCommands map[string]struct {
			Commands  [][]string `toml:"commands"`
			Mode      string     `toml:"mode"`
			Essential bool       `toml:"essential"`
		} `toml:"bootstrap-commands"`
	} `toml:"settings"`
}

func readBottlerocket(userData string) (*settings, error) {
	text, err := unpack(userData)
	if err != nil {
		return nil, err
	}
	var b bottlerocket
	if err := toml.Unmarshal([]byte(text), &b); err != nil {
		return nil, fmt.Errorf("settings are not valid TOML: %w", err)
	}
	k := b.Settings.Kubernetes
	s := &settings{cluster: k.ClusterName, endpoint: k.APIServer, ca: k.ClusterCertificate, flags: kubeletFlags{
		labels: k.NodeLabels, maxPods: k.MaxPods, kubeReserved: k.KubeReserved, systemReserved: k.SystemReserved,
		evictionHard: k.EvictionHard,
	}}
	if s.cluster == "" || s.endpoint == "" || s.ca == "" {
		return nil, fmt.Errorf("settings.kubernetes lacks cluster-name, api-server or cluster-certificate")
	}
	for _, key := range slices.Sorted(maps.Keys(k.NodeTaints)) {
		for _, text := range k.NodeTaints[key] {
			value, effect, ok := strings.Cut(text, ":")
			if !ok {
				return nil, fmt.Errorf("node-taints: %q is not value:effect", text)
			}
			t, err := newTaint(key, value, effect)
			if err != nil {
				return nil, fmt.Errorf("node-taints: %w", err)
			}
			s.flags.taints = append(s.flags.taints, t)
		}
	}
	for _, c := range b.Settings.BootstrapCommands {
		for _, cmd := range c.Commands {
			s.raid0 = s.raid0 || slices.Equal(cmd[:min(3, len(cmd))], []string{"apiclient", "ephemeral-storage", "init"})
		}
	}
	return s, nil
}

// readWindows finds the invocation of the bootstrap script in the PowerShell block.
func readWindows(userData string) (*settings, error) {
	_, script, ok := strings.Cut(userData, "<powershell>")
	script, _, closed := strings.Cut(script, "</powershell>")
	if !ok || !closed {
		return nil, fmt.Errorf("no <powershell> block")
	}
	words, err := powershell(script)
	if err != nil {
		return nil, err
	}
	at := slices.Index(words, "-EKSClusterName")
	if at < 0 || !strings.Contains(script, "Start-EKSBootstrap.ps1") {
		return nil, fmt.Errorf("nothing calls Start-EKSBootstrap.ps1")
	}
	s := &settings{}
	for i := at; i+1 < len(words); i += 2 {
		v := words[i+1]
		switch words[i] {
		case "-EKSClusterName":
			s.cluster = v
		case "-APIServerEndpoint":
			s.endpoint = v
		case "-Base64ClusterCA":
			s.ca = v
		case "-DNSClusterIP":
		case "-KubeletExtraArgs":
			flags, err := fields(v)
			if err != nil {
				return nil, fmt.Errorf("-KubeletExtraArgs: %w", err)
			}
			if err := s.flags.parse(flags); err != nil {
				return nil, fmt.Errorf("kubelet: %w", err)
			}
		default:
			return s, nil // the next command
		}
	}
	return s, nil
}

// powershell splits a script into words; quotes of both kinds are resolved, doubled quotes inside stand for one.
func powershell(script string) ([]string, error) {
	var out []string
	for i := 0; i < len(script); {
		switch c := script[i]; {
		case c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == ';' || c == '`':
			i++
		case c == '#':
			for i < len(script) && script[i] != '\n' {
				i++
			}
		case c == '\'' || c == '"':
			var b strings.Builder
			i++
			for {
				if i >= len(script) {
					return nil, fmt.Errorf("unterminated quote in PowerShell block")
				}
				if script[i] == c {
					if i+1 < len(script) && script[i+1] == c {
						i++
					} else {
						break
					}
				}
				b.WriteByte(script[i])
				i++
			}
			i++
			out = append(out, b.String())
		default:
			start := i
			for i < len(script) && !strings.ContainsRune(" \t\r\n;'\"`", rune(script[i])) {
				i++
			}
			out = append(out, script[start:i])
		}
	}
	return out, nil
}
