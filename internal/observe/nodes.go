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
	"karpenter.sh/karpenter/internal/cluster/podclass"
	"karpenter.sh/karpenter/internal/observe/telemetry"
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

// nodeLabels gives label keys names for series: the part after the slash, with underscores. It leaves out the hostname and keys whose
// name is taken by another label of the series.
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

// usage is the requests and limits of pods.
type usage struct{ requests, limits amounts }

// amounts are quantities by resource: CPUs, bytes, pieces.
type amounts map[corev1.ResourceName]float64

func (a amounts) add(b amounts) {
	for name, v := range b {
		a[name] += v
	}
}

// A nodeRow has the values of the series of one node.
type nodeRow struct {
	labels       []string
	born         time.Time
	has, kept    amounts // allocatable, and the rest of the capacity
	all, daemons usage   // of all pods, and of those of DaemonSets
}

// nodeFamilies are the gauges about what nodes have and what pods ask for there.
var nodeFamilies = []struct {
	name string
	of   func(*nodeRow) amounts
}{
	{"karpenter_nodes_allocatable", func(n *nodeRow) amounts { return n.has }},
	{"karpenter_nodes_total_pod_requests", func(n *nodeRow) amounts { return n.all.requests }},
	{"karpenter_nodes_total_pod_limits", func(n *nodeRow) amounts { return n.all.limits }},
	{"karpenter_nodes_total_daemon_requests", func(n *nodeRow) amounts { return n.daemons.requests }},
	{"karpenter_nodes_total_daemon_limits", func(n *nodeRow) amounts { return n.daemons.limits }},
	{"karpenter_nodes_system_overhead", func(n *nodeRow) amounts { return n.kept }},
}

// writeNodes writes the gauges about single nodes, and the utilization of the cluster.
func (o *Observer) writeNodes(out *telemetry.Text, snap *cluster.Snapshot, now time.Time) {
	var series []string
	for _, l := range o.nodeLabels {
		series = append(series, l.series)
	}
	rows := o.nodeRows(snap)
	out.Begin(telemetry.Gauge("karpenter_nodes_current_lifetime_seconds", series...))
	for i := range rows {
		out.Gauge(now.Sub(rows[i].born).Seconds(), rows[i].labels)
	}
	types := resourceTypes{}
	for _, f := range nodeFamilies {
		out.Begin(telemetry.Gauge(f.name, series...))
		for i := range rows {
			values := f.of(&rows[i])
			for _, r := range slices.Sorted(maps.Keys(values)) {
				out.Gauge(values[r], rows[i].labels, types.name(r))
			}
		}
	}
	used, total := amounts{}, amounts{}
	for i := range rows {
		used.add(rows[i].all.requests)
		total.add(rows[i].has)
	}
	out.Begin(clusterUtilization)
	for _, r := range slices.Sorted(maps.Keys(total)) {
		if total[r] > 0 {
			out.Gauge(used[r]/total[r]*100, nil, types.name(r))
		}
	}
}

// nodeRows works out the values of every node once for all families. Requests are worked out once for each class of pods.
func (o *Observer) nodeRows(snap *cluster.Snapshot) []nodeRow {
	var rows []nodeRow
	classes := map[*podclass.Class]usage{}
	for n := range snap.Nodes() {
		if n.Node == nil {
			continue
		}
		row := nodeRow{labels: o.labelsOf(n), born: n.Node.CreationTimestamp.Time, all: usage{amounts{}, amounts{}},
			daemons: usage{amounts{}, amounts{}}}
		for _, p := range n.Pods {
			u, ok := classes[p.Class]
			if !ok {
				u = usageOf(p.Class.Spec)
				classes[p.Class] = u
			}
			row.all.requests.add(u.requests)
			row.all.limits.add(u.limits)
			if p.DaemonSet {
				row.daemons.requests.add(u.requests)
				row.daemons.limits.add(u.limits)
			}
		}
		row.has, row.kept = read(n.Node.Status.Allocatable), read(n.Node.Status.Capacity)
		for name := range row.kept {
			row.kept[name] -= row.has[name]
		}
		rows = append(rows, row)
	}
	return rows
}

// resourceTypes caches the names that resources have on series.
type resourceTypes map[corev1.ResourceName]string

func (t resourceTypes) name(r corev1.ResourceName) string {
	name, known := t[r]
	if !known {
		name = resourceType(r)
		t[r] = name
	}
	return name
}

// labelsOf returns the values of a node's series labels, resource type left out.
func (o *Observer) labelsOf(n *cluster.Node) []string {
	out := make([]string, 0, 4+len(o.nodeLabels))
	out = append(out, n.Node.Name, n.Pool(), string(n.Node.Status.Phase), strconv.FormatBool(n.Managed()))
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

// number returns a quantity in the unit of metrics: cores for CPU, the plain number for others.
func number(name corev1.ResourceName, q resource.Quantity) float64 {
	if name == corev1.ResourceCPU {
		return float64(q.MilliValue()) / 1000
	}
	return q.AsApproximateFloat64()
}

// usageOf returns the requests and limits of a pod: of its containers and sidecars or of a step of its start, whichever is more, or its
// pod-level resources if it has them. Overhead is added, to limits only where there is a limit.
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

// together returns the larger of the sum of containers and sidecars and of each step of the start, for each resource.
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
