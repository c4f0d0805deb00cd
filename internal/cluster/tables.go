package cluster

import (
	"cmp"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
)

// tables are the tables of a draft or a snapshot. The copy in a snapshot shares all pages with the draft and is only read.
type tables struct {
	podTables
	nodeTables
	objects
	disruptionPlans table[string, *v1alpha1.DisruptionPlan]
	classes         table[v1.NodeClassReference, *NodeClass]
	selectors       table[types.UID, ownerSelector]
	broken          table[brokenKey, Broken]
}

// podTables hold the pods, and what is derived from them.
type podTables struct {
	pods       table[PodKey, *Pod]
	unbound    table[PodKey, *Pod]         // pods on no node
	repelling  table[PodKey, *Pod]         // bound pods with required anti-affinity
	labels     table[countKey, LabelCount] // numbers of pods by label set and node
	daemonPods table[types.UID, daemonPod] // the newest live pod of each DaemonSet
	seats      table[seatKey, Seat]
	held       table[PodKey, PodKey]
	spares     table[objectKey, *Spares]
}

// nodeTables hold the rows of nodes, and find them by provider ID and by claim.
type nodeTables struct {
	nodes      table[rowKey, *Node]
	machineSum sum // of all rows of nodes, for Digest
	byProvider table[string, providerRow]
	byClaim    table[string, claimRow]
}

func newTables(now *epoch) tables {
	return tables{
		podTables: podTables{
			pods:       podTable(now),
			unbound:    podTable(now),
			repelling:  podTable(now),
			labels:     newTable(now, func(c LabelCount) countKey { return countKey{c.Namespace, c.Labels.ID, c.Node} }, compareCounts),
			daemonPods: newTable(now, func(d daemonPod) types.UID { return d.owner }, cmp.Compare[types.UID]),
			seats:      newTable(now, Seat.key, compareSeats),
			held:       newTable(now, func(k PodKey) PodKey { return k }, PodKey.Compare),
			spares:     newTable(now, (*Spares).key, compareObjects),
		},
		nodeTables: nodeTables{
			nodes:      newTable(now, (*Node).key, compareRows),
			byProvider: newTable(now, func(r providerRow) string { return r.id }, strings.Compare),
			byClaim:    newTable(now, func(r claimRow) string { return r.claim }, strings.Compare),
		},
		objects:         newObjects(now),
		disruptionPlans: newTable(now, func(p *v1alpha1.DisruptionPlan) string { return p.Name }, strings.Compare),
		classes:         newTable(now, (*NodeClass).ref, compareRefs),
		selectors:       newTable(now, func(o ownerSelector) types.UID { return o.owner }, cmp.Compare[types.UID]),
		broken:          newTable(now, func(b Broken) brokenKey { return brokenKey{b.Kind, b.Namespace, b.Name} }, compareBroken),
	}
}

// objectTable is a table of API objects by namespace and name.
func objectTable[V metav1.Object](now *epoch) table[objectKey, V] {
	return newTable(now, func(o V) objectKey { return objectKey{o.GetNamespace(), o.GetName()} }, compareObjects)
}

func podTable(now *epoch) table[PodKey, *Pod] { return newTable(now, (*Pod).Key, PodKey.Compare) }
