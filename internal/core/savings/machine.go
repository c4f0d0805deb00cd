package savings

import (
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/movable"
	"karpenter.sh/karpenter/internal/core/tariff"
)

// Labels by which managers of nodes are recognised.
const (
	computeTypeLabel  = "eks.amazonaws.com/compute-type"
	capacityTypeLabel = "eks.amazonaws.com/capacityType"
	managedGroupLabel = "eks.amazonaws.com/nodegroup"
	eksctlGroupLabel  = "alpha.eksctl.io/nodegroup-name"
)

// autoModeFee is Auto Mode's fee in percent of the on-demand price. AWS lists it by type; they are all about that.
const autoModeFee = 12

// A Manager starts and stops nodes.
type Manager string

// The managers.
const (
	AutoMode  Manager = "autoMode"
	Karpenter Manager = "karpenter"
	NodeGroup Manager = "nodeGroup" // of EKS or of eksctl, with or without Cluster Autoscaler
	ByHand    Manager = "byHand"
)

// A machine is a node of the fleet.
type machine struct {
	node              *cluster.Node
	pods              []*cluster.Pod // that move when it goes
	manager           Manager
	name              string // of its pool or group
	priced            bool
	capacity          string // in the words of Karpenter's label
	architecture      string
	line              tariff.Line
	fee               cloud.NanoUSD
	protected, budget string // what keeps its pods in place, "" for nothing
}

// survey finds out about each node who runs it, what it costs and what keeps it.
func (s *surveyor) survey() {
	var budgets []movable.PDB
	for b := range cluster.PDBs.All(s.question.Snap) {
		budgets = append(budgets, movable.Compile(b))
	}
	all := movable.NewPDBs(budgets)
	for n := range s.question.Snap.Nodes() {
		m := machine{node: n}
		for _, p := range n.Pods {
			if movable.Reschedulable(p) {
				m.pods = append(m.pods, p)
			}
		}
		s.price(&m)
		m.blockers(all, s.question.Now)
		s.fleet = append(s.fleet, m)
	}
}

// price finds the manager and the price of a machine. Machines of Fargate and those outside of AWS have none.
func (s *surveyor) price(m *machine) {
	labels := map[string]string{}
	if m.node.Claim != nil {
		maps.Copy(labels, m.node.Claim.Labels)
	}
	if m.node.Node != nil {
		maps.Copy(labels, m.node.Node.Labels)
	}
	m.manager, m.name = managerOf(labels)
	m.capacity = labels[v1.CapacityTypeLabelKey]
	switch {
	case m.capacity != "":
	case labels[capacityTypeLabel] == "SPOT":
		m.capacity = v1.CapacityTypeSpot
	default:
		m.capacity = v1.CapacityTypeOnDemand
	}
	labels[v1.CapacityTypeLabelKey] = m.capacity
	m.architecture = labels[corev1.LabelArchStable]
	inSnapshot := strings.HasPrefix(m.node.ProviderID, "test:") // which keeps no ids
	if !inSnapshot && !strings.HasPrefix(m.node.ProviderID, "aws:") || labels[computeTypeLabel] == "fargate" ||
		labels[capacityTypeLabel] == "CAPACITY_BLOCK" || labels[corev1.LabelOSStable] == string(corev1.Windows) {
		return
	}
	price, onDemand := cloud.NanoUSD(0), cloud.NanoUSD(0)
	for _, p := range s.question.Pools {
		if price, m.priced = p.Catalog.Price(labels); m.priced {
			other := maps.Clone(labels)
			other[v1.CapacityTypeLabelKey] = v1.CapacityTypeOnDemand
			onDemand, _ = p.Catalog.Price(other)
			break
		}
	}
	m.line = s.line(m.node.Name, labels[corev1.LabelInstanceTypeStable], labels[corev1.LabelTopologyZone], m.capacity, price)
	if labels[computeTypeLabel] == "auto" {
		m.fee = onDemand * autoModeFee / 100
	}
}

// managerOf returns who runs a node with these labels, and the name of the pool or group.
func managerOf(labels map[string]string) (Manager, string) {
	pool := labels[v1.NodePoolLabelKey]
	switch {
	case labels[computeTypeLabel] == "auto":
		return AutoMode, pool
	case pool != "":
		return Karpenter, pool
	case labels[managedGroupLabel] != "":
		return NodeGroup, labels[managedGroupLabel]
	case labels[eksctlGroupLabel] != "":
		return NodeGroup, labels[eksctlGroupLabel]
	}
	return ByHand, ""
}
