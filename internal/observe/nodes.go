package observe

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/podclass"
	"karpenter.sh/karpenter/internal/telemetry"
)

var (
	clusterNodeCount    = telemetry.Gauge("karpenter_cluster_state_node_count")
	clusterSynced       = telemetry.Gauge("karpenter_cluster_state_synced")
	clusterUnsyncedTime = telemetry.Gauge("karpenter_cluster_state_unsynced_time_seconds")
	clusterFailedFeeds  = telemetry.Gauge("karpenter_cluster_state_failed_feeds")
	clusterUtilization  = telemetry.Gauge("karpenter_cluster_utilization_percent")
)

// nodeLabel is a label of nodes and the name that it has on series.
type nodeLabel struct{ key, series string }

// nodeLabels turns label keys into names of series labels: the last part, with underscores. nodepool has a place of its own.
func nodeLabels(keys []string) []nodeLabel {
	var out []nodeLabel
	taken := map[string]bool{"nodepool": true, "node_name": true, "phase": true, "managed": true, "resource_type": true}
	for _, key := range slices.Sorted(slices.Values(keys)) {
		series := seriesName(key)
		if key == corev1.LabelHostname || taken[series] {
			continue
		}
		taken[series] = true
		out = append(out, nodeLabel{key, series})
	}
	return out
}

func seriesName(key string) string {
	return strings.Map(func(r rune) rune {
		if r == '-' || r == '.' {
			return '_'
		}
		return r
	}, key[strings.LastIndex(key, "/")+1:])
}

// usage is what pods ask for.
type usage struct{ requests, limits amounts }

// amounts are quantities by resource: CPUs, bytes, pieces.
type amounts map[corev1.ResourceName]float64

func (a amounts) add(b amounts) {
	for name, v := range b {
		a[name] += v
	}
}

func (o *Observer) collectNodes(out sink, snap *cluster.Snapshot, now time.Time) {
	var series []string
	for _, l := range o.nodeLabels {
		series = append(series, l.series)
	}
	gauge := func(name string) func(labels []string, values amounts) {
		desc := telemetry.Gauge(name, series...)
		return func(labels []string, values amounts) {
			for _, r := range slices.Sorted(maps.Keys(values)) {
				out.gauge(desc, values[r], append(labels[:len(labels):len(labels)], resourceType(r))...)
			}
		}
	}
	lifetime := telemetry.Gauge("karpenter_nodes_current_lifetime_seconds", series...)
	allocatable := gauge("karpenter_nodes_allocatable")
	podRequests, podLimits := gauge("karpenter_nodes_total_pod_requests"), gauge("karpenter_nodes_total_pod_limits")
	daemonRequests, daemonLimits := gauge("karpenter_nodes_total_daemon_requests"), gauge("karpenter_nodes_total_daemon_limits")
	overhead := gauge("karpenter_nodes_system_overhead")

	classes := map[*podclass.Class]usage{}
	used, total := amounts{}, amounts{}
	for n := range snap.Nodes() {
		if n.Node == nil {
			continue
		}
		labels := o.labelsOf(n)
		out.gauge(lifetime, now.Sub(n.Node.CreationTimestamp.Time).Seconds(), labels...)
		all, daemons := usage{amounts{}, amounts{}}, usage{amounts{}, amounts{}}
		for _, p := range n.Pods {
			u, ok := classes[p.Class]
			if !ok {
				u = usageOf(p.Class.Spec)
				classes[p.Class] = u
			}
			all.requests.add(u.requests)
			all.limits.add(u.limits)
			if p.DaemonSet {
				daemons.requests.add(u.requests)
				daemons.limits.add(u.limits)
			}
		}
		has := read(n.Node.Status.Allocatable)
		kept := read(n.Node.Status.Capacity)
		for name := range kept {
			kept[name] -= has[name]
		}
		allocatable(labels, has)
		podRequests(labels, all.requests)
		podLimits(labels, all.limits)
		daemonRequests(labels, daemons.requests)
		daemonLimits(labels, daemons.limits)
		overhead(labels, kept)
		used.add(all.requests)
		total.add(has)
	}
	for _, r := range slices.Sorted(maps.Keys(total)) {
		if total[r] > 0 {
			out.gauge(clusterUtilization, used[r]/total[r]*100, resourceType(r))
		}
	}
}

// labelsOf returns the values of a node's series labels, resource type left out.
func (o *Observer) labelsOf(n *cluster.Node) []string {
	out := []string{n.Node.Name, n.Pool(), string(n.Node.Status.Phase), strconv.FormatBool(n.Managed())}
	labels := n.Labels()
	for _, l := range o.nodeLabels {
		out = append(out, labels[l.key])
	}
	return out
}

// resourceType is the name of a resource on series.
func resourceType(r corev1.ResourceName) string {
	return strings.ReplaceAll(strings.ToLower(string(r)), "-", "_")
}

func read(list corev1.ResourceList) amounts {
	out := make(amounts, len(list))
	for name, q := range list {
		out[name] = number(name, q)
	}
	return out
}

func number(name corev1.ResourceName, q resource.Quantity) float64 {
	if name == corev1.ResourceCPU {
		return float64(q.MilliValue()) / 1000
	}
	return q.AsApproximateFloat64()
}

// usageOf returns what a pod asks for: its containers together with its sidecars, or more while it starts, and its overhead. What is
// set for the pod as a whole counts instead.
func usageOf(spec *corev1.PodSpec) usage {
	u := usage{
		requests: together(spec, func(c *corev1.Container) corev1.ResourceList { return c.Resources.Requests }),
		limits:   together(spec, func(c *corev1.Container) corev1.ResourceList { return c.Resources.Limits }),
	}
	if r := spec.Resources; r != nil {
		maps.Copy(u.requests, read(r.Requests))
		maps.Copy(u.limits, read(r.Limits))
	}
	overhead := read(spec.Overhead)
	u.requests.add(overhead)
	for name := range u.limits {
		u.limits[name] += overhead[name]
	}
	u.requests[corev1.ResourcePods] = 1
	return u
}

func together(spec *corev1.PodSpec, of func(*corev1.Container) corev1.ResourceList) amounts {
	sum, sidecars, start := amounts{}, amounts{}, amounts{}
	for i := range spec.Containers {
		sum.add(read(of(&spec.Containers[i])))
	}
	for i := range spec.InitContainers {
		c := &spec.InitContainers[i]
		mine := read(of(c))
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			sidecars.add(mine)
			mine = maps.Clone(sidecars)
		} else {
			mine.add(sidecars)
		}
		for name, v := range mine {
			start[name] = max(start[name], v)
		}
	}
	sum.add(sidecars)
	for name, v := range start {
		sum[name] = max(sum[name], v)
	}
	return sum
}
