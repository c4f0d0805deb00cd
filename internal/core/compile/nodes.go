package compile

import (
	"cmp"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/cluster/podclass"
	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/label"
	"karpenter.sh/karpenter/internal/core/quantity"
	"karpenter.sh/karpenter/internal/core/rule/ports"
	"karpenter.sh/karpenter/internal/kit/identity"
)

// A nodeInfo is what a row of the cluster means as a place for pods. It is made once for each version of the row.
type nodeInfo struct {
	row       *cluster.Node
	labels    map[string]string
	future    *future // nil once the machine is there
	hostname  string
	taints    []corev1.Taint
	taintKey  string
	alloc     quantity.Vec
	used      quantity.Vec // by bound pods
	daemons   quantity.Vec // the part of used that belongs to DaemonSets
	ports     []ports.Port
	sets      []types.UID    // DaemonSets that run here
	pods      []*cluster.Pod // those with volumes
	claimants []*cluster.Pod // those with resource claims
	capacity  quantity.Vec   // what it counts against limits
	pool      string
	coming    coming
	seen      uint64 // the last turn that asked for it

	initialized bool
}

// A coming is what pods of DaemonSets that are not on a node yet will take of it.
type coming struct {
	need    quantity.Vec
	ports   []ports.Port
	sets    []int // indexes in Memory.daemons
	version int   // Memory.daemonVersion for which this was worked out
}

// nodeOf returns what a row means.
func (m *Memory) nodeOf(row *cluster.Node) *nodeInfo {
	if n := m.nodes[row]; n != nil {
		n.seen = m.turn
		return n
	}
	n := &nodeInfo{row: row, labels: labelsOf(row), future: m.futureOf(row), hostname: row.Hostname(),
		taints: row.Taints(), pool: row.Pool(), initialized: row.Initialized(), seen: m.turn, coming: coming{version: -1}}
	if row.Node != nil && row.Node.Spec.Unschedulable && row.Registered() {
		t := corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}
		if !slices.ContainsFunc(n.taints, func(x corev1.Taint) bool { return x.MatchTaint(&t) }) {
			n.taints = append(slices.Clone(n.taints), t)
		}
	}
	n.taintKey = taintKey(n.taints)
	n.alloc = m.roomOf(row)
	n.capacity = m.capacityOf(row)
	n.used = make(quantity.Vec, m.resources.names.Len())
	n.daemons = make(quantity.Vec, m.resources.names.Len())
	for _, p := range row.Pods {
		info := m.infoOf(p.Class)
		n.used.Add(info.need)
		if p.DaemonSet {
			n.daemons.Add(info.need)
			if p.Owner != nil {
				n.sets = append(n.sets, p.Owner.UID)
			}
		}
		n.ports = append(n.ports, info.ports...)
		if len(info.claims)+len(info.ephemeral) > 0 {
			n.pods = append(n.pods, p)
		}
		if info.devices {
			n.claimants = append(n.claimants, p)
		}
	}
	m.nodes[row] = n
	return n
}

// asks returns the CPU, in thousandths, that pods ask for here, without daemons.
func (n *nodeInfo) asks() int64 { return n.used[quantity.CPU] - n.daemons[quantity.CPU] }

// taintKey returns a text that is equal for lists with the same taints, in any order.
func taintKey(taints []corev1.Taint) string {
	if len(taints) == 0 {
		return ""
	}
	parts := make([]string, 0, len(taints))
	for _, t := range taints {
		parts = append(parts, identity.Of(t.Key, t.Value, string(t.Effect)))
	}
	slices.Sort(parts)
	return identity.Of(parts...)
}

// roomOf returns what pods may use of a row. Columns of assumed requests are without limit, because kube-scheduler assumes no requests.
func (m *Memory) roomOf(row *cluster.Node) quantity.Vec {
	room := m.allocatable(row)
	m.resources.setAssumed(room, quantity.Max, quantity.Max)
	return room
}

// allocatable returns what a row has for pods. For a claim that is not launched yet that is, of each resource, the larger of what the claim
// requests and of what every type that it lists has.
func (m *Memory) allocatable(row *cluster.Node) quantity.Vec {
	alloc := m.resources.capacity(row.Allocatable())
	if row.Claim == nil || row.Node != nil || len(row.Claim.Status.Allocatable) > 0 {
		return alloc
	}
	alloc.Max(m.resources.capacity(row.Claim.Spec.Resources.Requests))
	cat := m.poolCatalogs[row.Claim.Labels[v1.NodePoolLabelKey]]
	if cat == nil {
		return alloc
	}
	if least := leastOf(cat, m.typesOf(row.Claim)); least != nil {
		alloc.Max(least)
	}
	return alloc
}

// capacityOf returns what a row counts against limits. A claim that is not launched yet counts as the largest that any type it lists has of
// each resource, because it may become any of them.
func (m *Memory) capacityOf(row *cluster.Node) quantity.Vec {
	capacity := m.resources.capacity(row.Capacity())
	if row.Claim == nil || row.Node != nil || len(row.Claim.Status.Capacity) > 0 {
		return capacity
	}
	if cat := m.poolCatalogs[row.Claim.Labels[v1.NodePoolLabelKey]]; cat != nil {
		for _, name := range m.typesOf(row.Claim) {
			capacity.Max(cat.capacity[name])
		}
	}
	return capacity
}

// typesOf returns the instance types that a claim lists.
func (m *Memory) typesOf(claim *v1.NodeClaim) []string {
	for _, r := range claim.Spec.Requirements {
		if m.known.Normalize(r.Key) == corev1.LabelInstanceTypeStable && r.Operator == corev1.NodeSelectorOpIn {
			return r.Values
		}
	}
	return nil
}

// leastOf returns, of each resource, the least that any of the named types has; nil if one is unknown or none is named.
func leastOf(cat *catalog, names []string) quantity.Vec {
	var least quantity.Vec
	for _, name := range names {
		a := cat.alloc[name]
		if a == nil {
			return nil
		}
		if least == nil {
			least = slices.Clone(a)
			continue
		}
		for r := range least {
			least[r] = min(least[r], a[r])
		}
	}
	return least
}

// A daemon is what a DaemonSet puts on nodes.
type daemon struct {
	set    *appsv1.DaemonSet
	class  *podclass.Class
	info   *podInfo
	labels *podclass.Labels // of its pods
	claims bool             // resource claims are planned for
}

// readDaemons reads the DaemonSets of a snapshot into m.daemons. If any of them changed, daemonVersion goes up, so that what depends on
// them is worked out again.
func (m *Memory) readDaemons(snap *cluster.Snapshot) {
	var list []daemon
	i := 0
	changed := false
	for set := range cluster.DaemonSets.All(snap) {
		var live *podclass.Class
		if p := snap.DaemonPod(set); p != nil {
			live = p.Class
		}
		if i < len(m.daemons) && m.daemons[i].set == set && m.daemons[i].class == live {
			list = append(list, m.daemons[i])
		} else {
			changed = true
			list = append(list, daemon{set: set, class: live, info: m.daemonInfo(set, live), claims: m.withDevices,
				labels: &podclass.Labels{Map: set.Spec.Template.Labels}})
		}
		i++
	}
	if changed || len(list) != len(m.daemons) {
		m.daemons = list
		m.daemonVersion++
	}
}

// daemonInfo returns what a pod of a DaemonSet means. It reads a running pod if there is one (live), because admission webhooks may have
// changed it, but with the template's required node affinity, because that of the pod names its node. Else it reads the template, with
// limits in place of missing requests. Both get the tolerations that the DaemonSet controller adds.
func (m *Memory) daemonInfo(set *appsv1.DaemonSet, live *podclass.Class) *podInfo {
	tmpl := set.Spec.Template.Spec.DeepCopy()
	spec := tmpl
	if live != nil {
		spec = live.Spec.DeepCopy()
		if spec.Affinity != nil && spec.Affinity.NodeAffinity != nil {
			spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = nil
		}
		if tmpl.Affinity != nil && tmpl.Affinity.NodeAffinity != nil {
			if spec.Affinity == nil {
				spec.Affinity = &corev1.Affinity{}
			}
			if spec.Affinity.NodeAffinity == nil {
				spec.Affinity.NodeAffinity = &corev1.NodeAffinity{}
			}
			spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution =
				tmpl.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
		}
	} else {
		podclass.RequestLimits(spec.Containers)
		podclass.RequestLimits(spec.InitContainers)
	}
	spec.Tolerations = append(spec.Tolerations, daemonTolerations...)
	if spec.HostNetwork {
		spec.Tolerations = append(spec.Tolerations, networkToleration)
	}
	c := &podclass.Class{Namespace: set.Namespace, Spec: spec}
	info := m.infoOf(c)
	delete(m.infos, c) // this class will not be asked for again
	return info
}

// networkToleration is what the controller of DaemonSets gives pods that need no network of their own, and often make the node's.
var networkToleration = corev1.Toleration{Key: corev1.TaintNodeNetworkUnavailable,
	Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}

// daemonTolerations are what the controller of DaemonSets gives each of their pods.
var daemonTolerations = []corev1.Toleration{
	{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
	{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
	{Key: corev1.TaintNodeDiskPressure, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
	{Key: corev1.TaintNodeMemoryPressure, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
	{Key: corev1.TaintNodePIDPressure, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
	{Key: corev1.TaintNodeUnschedulable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
}

// ignored reports whether a daemon is not planned for, because it uses resource claims and these are not planned for.
func (d *daemon) ignored() bool { return d.info.devices && !d.claims }

// reserveOf returns what DaemonSet pods that are not on the node yet will take of it. It is worked out once for each version of the
// DaemonSets: the needs of all that suit the node, less what those that run here use.
func (m *Memory) reserveOf(n *nodeInfo) quantity.Vec {
	if n.coming.version == m.daemonVersion {
		return n.coming.need
	}
	n.coming = coming{need: make(quantity.Vec, m.resources.names.Len()), version: m.daemonVersion}
	for i := range m.daemons {
		d := &m.daemons[i]
		if !d.suits(n) {
			continue
		}
		takes := atMost(d.info.need, n.alloc)
		if !takes.Fits(n.alloc) {
			continue // its pod can never start here
		}
		if !slices.Contains(n.sets, d.set.UID) {
			if taken(n.ports, d.info.ports) || taken(n.coming.ports, d.info.ports) {
				continue // its ports are taken, so its pod cannot start here
			}
			n.coming.ports = append(n.coming.ports, d.info.ports...)
			n.coming.sets = append(n.coming.sets, i)
		}
		n.coming.need.Add(takes)
	}
	n.coming.need.Sub(n.daemons)
	for r := range n.coming.need {
		n.coming.need[r] = max(n.coming.need[r], 0)
	}
	return n.coming.need
}

// atMost returns what a daemon with this need takes of a node that has most. Resources that the node has none of are left out: a device
// plugin may bring them later. If the rest does not fit, the daemon never starts there, and the caller must reserve no room for it:
// otherwise one DaemonSet of an absurd size would keep pods off every node.
func atMost(need, most quantity.Vec) quantity.Vec {
	if need.Fits(most) {
		return need
	}
	takes := slices.Clone(need)
	for r := range takes {
		if most[r] <= 0 {
			takes[r] = 0
		}
	}
	return takes
}

// suits reports whether the set puts a pod onto a node.
func (d *daemon) suits(n *nodeInfo) bool {
	return !d.ignored() && toleratesAll(d.info.tolerances, n.taints, true) && (n.row.Node == nil || n.declares(d.info.features)) &&
		slices.ContainsFunc(d.info.terms, n.allows)
}

// taken reports whether any of the ports is in use.
func taken(used, want []ports.Port) bool {
	return slices.ContainsFunc(want, func(p ports.Port) bool { return slices.ContainsFunc(used, p.Conflict) })
}

// A column is the values of one label on a list of nodes.
type column struct {
	values []string
	of     []int32           // per node: index into values, −1 without the label
	may    map[int]label.Set // by index of a node without the label: the values of which it will get one; nil for most columns
}

// columnOf reads the values of a label. A node without a host name label has its host name, so that it is a domain of its own.
func columnOf(key string, nodes []*nodeInfo) *column {
	c := &column{of: make([]int32, len(nodes))}
	index := map[string]int32{}
	for i, n := range nodes {
		v, ok := n.label(key)
		if !ok && key == corev1.LabelHostname {
			v, ok = n.hostname, true
		}
		if !ok {
			c.of[i] = -1
			c.leaveOpen(i, n, key)
			continue
		}
		at, known := index[v]
		if !known {
			at = int32(len(c.values))
			index[v] = at
			c.values = append(c.values, v)
		}
		c.of[i] = at
	}
	return c
}

// leaveOpen notes the values that the label of a node may get.
func (c *column) leaveOpen(i int, n *nodeInfo, key string) {
	if n.future == nil {
		return
	}
	if may, known := n.future.possibleValues(key); known {
		if c.may == nil {
			c.may = map[int]label.Set{}
		}
		c.may[i] = may
	}
}

// keep takes the nodes out of set that s does not allow, by their label, or by meetsAbsent if they lack it.
func (c *column) keep(s label.Set, set bits.Set) {
	ok := make([]bool, len(c.values))
	for i, v := range c.values {
		ok[i] = s.Has(v)
	}
	for i, v := range c.of {
		if v >= 0 && !ok[v] || v < 0 && !c.meetsAbsent(i, s) {
			set.Remove(i)
		}
	}
}

// meetsAbsent reports whether a node without the label satisfies s, with each value that the label may get.
func (c *column) meetsAbsent(i int, s label.Set) bool {
	if may, open := c.may[i]; open {
		return within(may, s)
	}
	return s.HasAbsent()
}

// sortedKeys returns the keys of a map in order.
func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
