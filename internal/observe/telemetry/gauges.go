package telemetry

import "slices"

// gauges is the table of the gauges that package observe makes from the newest snapshot when they are scraped.
var gauges = []Row{
	{"karpenter_cluster_state_node_count", "gauge", Stable, "Nodes and NodeClaims without Node that Karpenter knows of.", nil},
	{"karpenter_cluster_state_synced", "gauge", Stable, "1 once everything that is watched has been read.", nil},
	{"karpenter_cluster_state_unsynced_time_seconds", "gauge", Stable, "How long that has been waited for.", nil},
	{"karpenter_cluster_state_failed_feeds", "gauge", Alpha,
		"Kinds of objects that decisions need and that can no longer be read. While there are any, no node is " +
			"disrupted voluntarily, or nothing is planned for pods that use resource claims.", nil},

	{"karpenter_nodes_current_lifetime_seconds", "gauge", Alpha, "Age of a node.", nodeSet},
	{"karpenter_nodes_allocatable", "gauge", Beta, "What a node has for pods.", nodeSetByResource},
	{"karpenter_nodes_total_pod_requests", "gauge", Beta, "Requests of all pods of a node.", nodeSetByResource},
	{"karpenter_nodes_total_pod_limits", "gauge", Beta, "Limits of all pods of a node.", nodeSetByResource},
	{"karpenter_nodes_total_daemon_requests", "gauge", Beta, "Requests of the DaemonSet pods of a node.", nodeSetByResource},
	{"karpenter_nodes_total_daemon_limits", "gauge", Beta, "Limits of the DaemonSet pods of a node.", nodeSetByResource},
	{"karpenter_nodes_system_overhead", "gauge", Beta, "What a node keeps from pods.", nodeSetByResource},
	{"karpenter_cluster_utilization_percent", "gauge", Alpha,
		"Requests of all pods as a part of what all nodes have.", []string{"resource_type"}},

	{"karpenter_nodepools_limit", "gauge", Alpha, "Limits of a pool.", []string{"resource_type", "nodepool"}},
	{"karpenter_nodepools_usage", "gauge", Alpha, "What the nodes of a pool have together.", []string{"resource_type", "nodepool"}},
	{"karpenter_nodepools_disruption_paused", "gauge", Alpha,
		"1 while voluntary disruption is paused, of the pool or of the cluster.", []string{"nodepool"}},
	{"karpenter_nodepools_disruption_plans_waiting", "gauge", Alpha,
		"DisruptionPlans with nodes of a pool that wait for a user's decision.", []string{"nodepool"}},
	{"karpenter_nodepools_cost_total", "gauge", Alpha, "Hourly cost of the machines of a pool.", []string{"nodepool"}},

	{"karpenter_capacitybuffers_pods", "gauge", Alpha,
		"Pods that a CapacityBuffer keeps room for, or that another object announces (its kind is part of the name): " +
			"on nodes that run (ready), on nodes that are on their way " +
			"(coming), or nowhere (none).", []string{"namespace", "name", "room"}},

	{"karpenter_capacityquotas_limit", "gauge", Alpha, "Limits of a CapacityQuota; of 200 quotas at most.", []string{"quota", "resource"}},
	{"karpenter_capacityquotas_used", "gauge", Alpha, "What the nodes that match a CapacityQuota have together; of 200 quotas at most.",
		[]string{"quota", "resource"}},

	{"node_total_hourly_cost", "gauge", Alpha, "Dollars an hour of a node, with settings.openCostMetrics.", openCost},
	{"node_cpu_hourly_cost", "gauge", Alpha, "The same, for each core.", openCost},
	{"node_ram_hourly_cost", "gauge", Alpha, "The same, for each GiB of memory.", openCost},
	{"node_gpu_hourly_cost", "gauge", Alpha, "The same, for each accelerator.", openCost},
	{"node_gpu_count", "gauge", Alpha, "Accelerators of a node, with settings.openCostMetrics.", openCost},
	{"kubecost_node_is_spot", "gauge", Alpha, "1 for spot nodes, 0 for others, with settings.openCostMetrics.", openCost},

	{"karpenter_pods_state", "gauge", Beta, "1 for each pod.", []string{
		"name", "namespace", "owner", "node", "scheduled", "nodepool", "zone", "arch", "capacity_type",
		"instance_type", "phase", "ready", "managed",
	}},
	{"karpenter_pods_unstarted_time_seconds", "gauge", Alpha, "Age of a pod that is not ready yet.", podName},
	{"karpenter_pods_unbound_time_seconds", "gauge", Alpha, "Age of a pod that is on no node yet.", podOnNode},
	{"karpenter_pods_provisioning_unbound_time_seconds", "gauge", Alpha,
		"Time since a plan first had a place for a pod that is on no node yet.", podOnNode},
	{"karpenter_pods_provisioning_unstarted_time_seconds", "gauge", Alpha,
		"Time since a plan first had a place for a pod that is not ready yet.", podName},
	{"karpenter_pods_provisioning_scheduling_undecided_time_seconds", "gauge", Alpha,
		"Time since a pod about which nothing was decided was first seen waiting.", podName},
	{"karpenter_pods_without_requests", "gauge", Alpha,
		"Pods that ask for nothing of a resource, CPU or memory: they have to be planned for as if they used none.",
		[]string{"namespace", "resource_type"}},
}

var (
	nodeSet           = []string{"node_name", "nodepool", "phase", "managed", "<well-known labels>"}
	nodeSetByResource = append(nodeSet[:len(nodeSet):len(nodeSet)], "resource_type")
	openCost          = []string{"instance", "node", "instance_type", "region", "provider_id", "arch"}
	podName           = []string{"name", "namespace"}
	podOnNode         = []string{"name", "namespace", "dynamic_resources"}
)

// GaugeRows describes the gauges that are read from snapshots.
func GaugeRows() []Row { return append([]Row(nil), gauges...) }

// A Family is the gauges of one name.
type Family struct {
	Name, Help string
	Labels     []string
}

// Gauge returns the family of a gauge in the table; it panics if there is none. nodeLabels replace the entry "<well-known labels>".
func Gauge(name string, nodeLabels ...string) Family {
	for _, r := range gauges {
		if r.Name != name {
			continue
		}
		var labels []string
		for _, l := range r.Labels {
			if l == "<well-known labels>" {
				labels = append(labels, nodeLabels...)
			} else {
				labels = append(labels, l)
			}
		}
		return Family{r.Name, r.Help, labels}
	}
	panic("no gauge " + name)
}

// ConditionGauges are the gauges about the conditions and the deletion of one kind of object.
type ConditionGauges struct{ Count, Seconds, Terminating Family }

// NewConditionGauges returns the gauges of one kind, with the extra labels of its series.
func NewConditionGauges(kind string, extra []string) ConditionGauges {
	return described(conditionRows("operator_"+kind+"_", Beta, []string{"namespace", "name"}, extra))
}

// OldConditionGauges returns the gauges of all kinds together, under older names.
func OldConditionGauges() ConditionGauges {
	return described(conditionRows("operator_", Deprecated, []string{"namespace", "name", "group", "kind"}, nil))
}

// ConditionGaugeRows describes these gauges for all kinds of ConditionKinds, and the older names.
func ConditionGaugeRows(kinds map[string][]string) []Row {
	var out []Row
	for _, kind := range sortedKeys(kinds) {
		out = append(out, conditionRows("operator_"+kind+"_", Beta, []string{"namespace", "name"}, kinds[kind])...)
	}
	return append(out, conditionRows("operator_", Deprecated, []string{"namespace", "name", "group", "kind"}, nil)...)
}

// conditionRows returns the rows of the gauges whose names begin with prefix, in the order of ConditionGauges: conditions, how long
// they have lasted, and deletion. object are the labels that name an object.
func conditionRows(prefix string, s Stability, object, extra []string) []Row {
	condition := slices.Concat(object, []string{"type", "status", "reason"}, extra)
	return []Row{
		{prefix + "status_condition_count", "gauge", s, "1 for each condition of an object.", condition},
		{prefix + "status_condition_current_status_seconds", "gauge", s, "How long a condition has been what it is.", condition},
		{prefix + "termination_current_time_seconds", "gauge", s,
			"How long ago an object was deleted that is still there.", slices.Concat(object, extra)},
	}
}

func described(rows []Row) ConditionGauges {
	family := func(r Row) Family { return Family{r.Name, r.Help, r.Labels} }
	return ConditionGauges{Count: family(rows[0]), Seconds: family(rows[1]), Terminating: family(rows[2])}
}
