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

// autoModeFee is about the fee of EKS Auto Mode in percent of the on-demand price. AWS lists the exact fee by instance type.
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
	pods              []*cluster.Pod // those that would move if it goes
	manager           Manager
	name              string // of its pool or group
	priced            bool   // its price is known; see setPrice
	capacity          string // capacity type: a value of Karpenter's label
	architecture      string
	line              tariff.Line
	fee               cloud.NanoUSD
	protected, budget string // the object with do-not-disrupt, and the PodDisruptionBudget, that keep its pods; "" for none
}

// survey fills s.fleet: for each node who runs it, what it costs and what keeps it.
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
		s.setPrice(&m)
		m.noteBlockers(all, s.question.Now)
		s.fleet = append(s.fleet, m)
	}
}

// setPrice finds the manager, the capacity type and the price of a machine, and the fee of Auto Mode. Machines of Fargate, of capacity
// blocks and outside of AWS, and machines with Windows, have no price.
func (s *surveyor) setPrice(m *machine) {
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
	inSnapshot := strings.HasPrefix(m.node.ProviderID, "test:") // nodes of a recorded snapshot, which keeps no provider ids
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

// managerOf returns the manager that runs a node with these labels, and the name of the pool or group.
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
