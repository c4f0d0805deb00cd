// Package view describes each Karpenter machine: its type, what it holds, what it costs and what is happening to
// it, as karpenter top and the page show it.
//
// It reads snapshots and the board (package board), and decides nothing. held.go groups nodes by what keeps them, steps.go lists the steps
// that were decided.
package view

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/cluster/podclass"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/paused"
)

// A Machine is one Karpenter machine. Machines compare with ==.
type Machine struct {
	Name, Claim, Pool, Type, Zone, CapacityType string
	Price                                       cloud.NanoUSD // 0 where it is not known
	CPU, Memory                                 Share
	Pods                                        int
}

// A Share is how much of a resource pods request, and how much there is, in CPUs or bytes.
type Share struct{ Used, All float64 }

// Part returns the part that is used, 0 if there is nothing.
func (s Share) Part() float64 {
	if s.All == 0 {
		return 0
	}
	return s.Used / s.All
}

// A Reader reads machines repeatedly. Rows of snapshots never change, so it remembers what it computed from a row
// while the row exists.
type Reader struct {
	known map[*cluster.Node]entry
}

type entry struct {
	catalog *cloud.Catalog
	machine Machine
}

// A Row is a machine with the row of the snapshot that it was read from.
type Row struct {
	*cluster.Node
	Machine Machine
}

// Read returns the Karpenter machines of a snapshot by name, with prices from the catalogues of pools.
func (r *Reader) Read(snap *cluster.Snapshot, pools map[string]engine.Pool) []Row {
	now := make(map[*cluster.Node]entry, len(r.known))
	requests := map[*podclass.Class]amount{}
	var out []Row
	for n := range snap.Nodes() {
		if n.Claim == nil {
			continue
		}
		catalog := pools[n.Pool()].Catalog
		e, known := r.known[n]
		if !known || e.catalog != catalog {
			e = entry{catalog, machineOf(n, catalog, requests)}
		}
		now[n] = e
		out = append(out, Row{n, e.machine})
	}
	r.known = now
	return out
}

// An amount is what a pod requests.
type amount struct{ cpu, memory float64 }

// machineOf describes one machine. requests remembers what the pods of each class request.
func machineOf(n *cluster.Node, catalog *cloud.Catalog, requests map[*podclass.Class]amount) Machine {
	labels := n.Labels()
	m := Machine{
		Name: n.Name, Claim: n.Claim.Name, Pool: n.Pool(), Type: labels[corev1.LabelInstanceTypeStable],
		Zone:         labels[corev1.LabelTopologyZone],
		CapacityType: labels[v1.CapacityTypeLabelKey], Pods: len(n.Pods),
	}
	m.Price, _ = catalog.Price(labels)
	room := n.Allocatable()
	m.CPU.All, m.Memory.All = room.Cpu().AsApproximateFloat64(), room.Memory().AsApproximateFloat64()
	for _, p := range n.Pods {
		asked, known := requests[p.Class]
		if !known {
			list := podclass.Requests(p.Class.Spec)
			asked = amount{list.Cpu().AsApproximateFloat64(), list.Memory().AsApproximateFloat64()}
			requests[p.Class] = asked
		}
		m.CPU.Used += asked.cpu
		m.Memory.Used += asked.memory
	}
	return m
}

// A Mark is something that is happening to a machine, or that holds for it. Its text is what people read.
type Mark string

// The marks, the weightiest first.
const (
	Goes    Mark = "goes"      // its claim is being deleted
	InStep  Mark = "in a step" // it is replaced or removed, or replaces others
	Boots   Mark = "boots"     // it is not ready for pods yet
	Paused  Mark = "paused"    // nothing voluntary is done to it
	Drifted Mark = "drifted"   // it is not what its pool or node class asks for any more
)

// Marks returns the marks of a Karpenter machine, the weightiest first.
func Marks(snap *cluster.Snapshot, n *cluster.Node, now time.Time) []Mark {
	var out []Mark
	if n.Claim.DeletionTimestamp != nil {
		out = append(out, Goes)
	}
	if n.Claim.Annotations[v1.DisruptionCommandAnnotationKey] != "" {
		out = append(out, InStep)
	}
	if !n.Initialized() {
		out = append(out, Boots)
	}
	if _, halted := paused.Node(snap, n, now); halted {
		out = append(out, Paused)
	}
	if condition.IsTrue(n.Claim, v1.ConditionTypeDrifted) {
		out = append(out, Drifted)
	}
	return out
}
