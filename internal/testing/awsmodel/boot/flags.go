package boot

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// kubeletFlags is the part of the kubelet's configuration that shapes the node.
type kubeletFlags struct {
	labels         map[string]string
	taints         []corev1.Taint
	maxPods        *int
	podsPerCore    int
	kubeReserved   map[string]string
	systemReserved map[string]string
	evictionHard   map[string]string
}

// otherFlags are kubelet flags that exist and change nothing that the model shows. An unknown flag stops the kubelet.
var otherFlags = strings.Fields(`address allowed-unsafe-sysctls anonymous-auth authentication-token-webhook authorization-mode
bootstrap-kubeconfig cgroup-driver cgroup-root cgroups-per-qos client-ca-file cloud-provider cluster-dns cluster-domain
config config-dir container-log-max-files container-log-max-size container-runtime-endpoint contention-profiling cpu-cfs-quota
cpu-cfs-quota-period cpu-manager-policy cpu-manager-policy-options cpu-manager-reconcile-period enable-controller-attach-detach
enable-debugging-handlers enable-server enforce-node-allocatable event-burst event-qps eviction-max-pod-grace-period
eviction-minimum-reclaim eviction-pressure-transition-period eviction-soft eviction-soft-grace-period fail-swap-on feature-gates
file-check-frequency hairpin-mode healthz-bind-address healthz-port hostname-override http-check-frequency image-credential-provider-bin-dir
image-credential-provider-config image-gc-high-threshold image-gc-low-threshold image-service-endpoint kernel-memcg-notification
kube-api-burst kube-api-content-type kube-api-qps kube-reserved-cgroup kubeconfig kubelet-cgroups local-storage-capacity-isolation
lock-file log-flush-frequency logging-format make-iptables-util-chains manifest-url max-open-files maximum-dead-containers
memory-manager-policy minimum-container-ttl-duration minimum-image-ttl-duration node-ip node-status-max-images
node-status-update-frequency oom-score-adj pod-cidr pod-infra-container-image pod-manifest-path pod-max-pids port
protect-kernel-defaults provider-id qos-reserved read-only-port register-node registry-burst registry-qps reserved-cpus
reserved-memory resolv-conf root-dir rotate-certificates rotate-server-certificates runonce runtime-cgroups runtime-request-timeout
seccomp-default serialize-image-pulls streaming-connection-idle-timeout sync-frequency system-cgroups system-reserved-cgroup
tls-cert-file tls-cipher-suites tls-min-version tls-private-key-file topology-manager-policy topology-manager-policy-options
topology-manager-scope v vmodule volume-plugin-dir volume-stats-agg-period`)

// parse reads a kubelet command line, already split into words.
func (f *kubeletFlags) parse(words []string) error {
	for i := 0; i < len(words); i++ {
		name, value, inline := strings.Cut(words[i], "=")
		if !strings.HasPrefix(name, "--") {
			return fmt.Errorf("unexpected argument %q", words[i])
		}
		name = strings.TrimPrefix(name, "--")
		if !inline && i+1 < len(words) && !strings.HasPrefix(words[i+1], "--") {
			i++
			value = words[i]
		}
		if err := f.set(name, value); err != nil {
			return fmt.Errorf("flag --%s: %w", name, err)
		}
	}
	return nil
}

func (f *kubeletFlags) set(name, value string) (err error) {
	switch name {
	case "node-labels":
		f.labels, err = pairs(value, "=")
	case "register-with-taints":
		f.taints, err = parseTaints(value)
	case "max-pods":
		n, e := strconv.Atoi(value)
		f.maxPods, err = &n, e
	case "pods-per-core":
		f.podsPerCore, err = strconv.Atoi(value)
	case "kube-reserved":
		f.kubeReserved, err = pairs(value, "=")
	case "system-reserved":
		f.systemReserved, err = pairs(value, "=")
	case "eviction-hard":
		f.evictionHard, err = pairs(value, "<")
	default:
		if !slices.Contains(otherFlags, name) {
			return fmt.Errorf("unknown flag")
		}
	}
	return err
}

func pairs(list, sep string) (map[string]string, error) {
	out := map[string]string{}
	if list == "" {
		return out, nil
	}
	for _, pair := range strings.Split(list, ",") {
		k, v, ok := strings.Cut(pair, sep)
		if !ok || k == "" {
			return nil, fmt.Errorf("%q is not key%svalue", pair, sep)
		}
		out[strings.TrimSpace(k)] = strings.TrimSpace(v)
	}
	return out, nil
}

func parseTaints(list string) ([]corev1.Taint, error) {
	if list == "" {
		return nil, nil
	}
	var out []corev1.Taint
	for _, text := range strings.Split(list, ",") {
		head, effect, ok := strings.Cut(text, ":")
		if !ok {
			return nil, fmt.Errorf("taint %q has no effect", text)
		}
		key, value, _ := strings.Cut(head, "=")
		taint, err := newTaint(key, value, effect)
		if err != nil {
			return nil, err
		}
		out = append(out, taint)
	}
	return out, nil
}

func newTaint(key, value, effect string) (corev1.Taint, error) {
	t := corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)}
	switch t.Effect {
	case corev1.TaintEffectNoExecute, corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule:
	default:
		return t, fmt.Errorf("taint %q has effect %q", key, effect)
	}
	if key == "" {
		return t, fmt.Errorf("a taint has no key")
	}
	return t, nil
}
