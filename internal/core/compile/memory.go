package compile

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	apilabel "karpenter.sh/karpenter/api/label"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/cluster/podclass"
	"karpenter.sh/karpenter/internal/core/compile/devices"
	"karpenter.sh/karpenter/internal/core/quantity"
	"karpenter.sh/karpenter/internal/core/quota"
)

// A Memory is what was derived from rows, catalogues and pools, by their pointers. It is not safe for concurrent use.
type Memory struct {
	known     *apilabel.Vocabulary
	turn      uint64 // how many questions were compiled
	resources table
	missing   []string // resources that pods ask for and no machine had
	infos     map[*podclass.Class]*podInfo
	ages      ages
	nodes     map[*cluster.Node]*nodeInfo
	catalogs  map[catalogKey]*catalog
	templates map[templateKey]*template
	parts     map[partKey]*v1.NodePool
	asked     map[string]map[string]bool // label -> values that pods mention, for labels that are chosen for each node; see learn

	reservations  numbers[string]
	daemons       []daemon
	daemonVersion int
	poolCatalogs  map[string]*catalog // by pool name, of this turn

	world *world // of the last snapshot

	withDevices bool // resource claims are planned for
	withAssumed bool // containers without requests count when new nodes are sized
	devices     *devices.Memory
}

// NewMemory returns an empty Memory.
func NewMemory(known *apilabel.Vocabulary) *Memory {
	m := &Memory{known: known, resources: table{names: quantity.NewNames(), had: map[corev1.ResourceName]bool{}},
		reservations: map[string]int{}}
	m.forget()
	return m
}

// A History is the part of a Memory on which an answer may depend. Everything else of a Memory can be derived again from the objects.
type History struct {
	Columns      []string            `json:"columns"` // of resources, in their order
	Had          []string            `json:"had"`     // resources that some machine has
	Missing      []string            `json:"missing,omitempty"`
	Asked        map[string][]string `json:"asked,omitempty"`
	Reservations []string            `json:"reservations,omitempty"` // by number
	Turn         uint64              `json:"turn"`
}

// History returns what a Memory has seen so far.
func (m *Memory) History() History {
	h := History{Missing: slices.Clone(m.missing), Asked: map[string][]string{},
		Reservations: make([]string, len(m.reservations)), Turn: m.turn}
	for i := range m.resources.names.Len() {
		h.Columns = append(h.Columns, m.resources.names.Name(i))
	}
	for name := range m.resources.had {
		h.Had = append(h.Had, string(name))
	}
	slices.Sort(h.Had)
	for key, values := range m.asked {
		h.Asked[key] = slices.Sorted(maps.Keys(values))
	}
	for id, n := range m.reservations {
		h.Reservations[n] = id
	}
	return h
}

// Recall returns a Memory that answers as the one from which the History was taken.
func Recall(known *apilabel.Vocabulary, h History) *Memory {
	m := NewMemory(known)
	for _, name := range h.Columns {
		m.resources.names.Intern(name)
	}
	for _, name := range h.Had {
		m.resources.had[corev1.ResourceName(name)] = true
	}
	m.missing, m.turn = slices.Clone(h.Missing), h.Turn
	for key, values := range h.Asked {
		m.asked[key] = map[string]bool{}
		for _, v := range values {
			m.asked[key][v] = true
		}
	}
	for n, id := range h.Reservations {
		m.reservations[id] = n
	}
	return m
}

// forget drops what was derived from pods, rows, catalogues and pools: after a new column of resources, or when resource claims or assumed
// requests begin or cease to count. The columns, the numbers of reservations, the turn and the order of pods (ages) stay.
func (m *Memory) forget() {
	m.missing = nil
	m.infos = map[*podclass.Class]*podInfo{}
	m.nodes = map[*cluster.Node]*nodeInfo{}
	m.catalogs = map[catalogKey]*catalog{}
	m.templates = map[templateKey]*template{}
	m.parts = map[partKey]*v1.NodePool{}
	m.asked = map[string]map[string]bool{}
	m.daemons, m.world = nil, nil
	m.daemonVersion++
	m.devices = devices.NewMemory()
}

// keepTurns is for how many turns something is kept that was not asked for.
const keepTurns = 256

// tidy drops, every keepTurns turns, what was not asked for in that time, and some caches as a whole because they do not know what was
// asked for. The devices are also dropped when their cache is full.
func (m *Memory) tidy() {
	if m.turn%keepTurns == 0 || m.devices.Full() {
		m.devices = devices.NewMemory()
	}
	if m.turn%keepTurns != 0 {
		return
	}
	m.asked = map[string]map[string]bool{} // the pods at hand mention theirs again
	m.ages = ages{}
	m.parts = map[partKey]*v1.NodePool{}
	old := func(used uint64) bool { return used+keepTurns < m.turn }
	maps.DeleteFunc(m.infos, func(_ *podclass.Class, i *podInfo) bool { return old(i.used) })
	maps.DeleteFunc(m.nodes, func(_ *cluster.Node, n *nodeInfo) bool { return old(n.seen) })
	maps.DeleteFunc(m.catalogs, func(_ catalogKey, c *catalog) bool { return old(c.used) })
	maps.DeleteFunc(m.templates, func(_ templateKey, t *template) bool { return old(t.used) })
}

// Compile returns the problem of a question. If a resource turns up that has no column yet, Compile adds one and derives everything again.
func Compile(m *Memory, in Input) *Compiled {
	m.turn++
	m.tidy()
	if with := in.Selects != nil; with != m.withDevices {
		m.withDevices = with
		m.forget()
	}
	if in.AssumeRequests != m.withAssumed {
		m.withAssumed = in.AssumeRequests
		m.forget()
	}
	before := m.resources.names.Len()
	for {
		columns := m.resources.names.Len()
		m.learnMachines(in)
		b := newBuilder(m, in)
		b.build()
		for _, name := range m.missing {
			if m.resources.had[corev1.ResourceName(name)] || quantity.Assumed(name) {
				m.resources.names.Intern(name)
			}
		}
		if m.resources.names.Len() == columns {
			out := b.compiled()
			out.Renumbered = columns != before
			return out
		}
		m.forget()
	}
}

// learnMachines notes which resources machines have, and gives a column to each of them that a limit names. If there is a new column, it
// calls forget.
func (m *Memory) learnMachines(in Input) {
	before := m.resources.names.Len()
	note := func(list corev1.ResourceList) {
		for name := range list {
			m.resources.had[name] = true
		}
	}
	for _, p := range in.Pools {
		if m.catalogs[keyOf(p, &in)] == nil {
			for _, it := range p.Catalog.Types {
				note(it.Capacity)
				for i := range it.Offerings {
					note(it.Offerings[i].Capacity)
				}
			}
		}
	}
	var learned *cluster.Snapshot // the rows of this snapshot were noted before
	if m.world != nil {
		learned = m.world.snap
	}
	for _, row := range in.Snap.NodeChanges(learned) {
		if row != nil && m.nodes[row] == nil && !row.Incomplete {
			note(row.Allocatable())
		}
	}
	for _, p := range in.Pools {
		for name := range p.Pool.Spec.Limits {
			if m.resources.had[name] {
				m.resources.names.Intern(string(name))
			}
		}
	}
	for _, q := range quota.All(in.Snap) {
		for name := range q.Limits {
			if m.resources.had[name] || name == quota.Dollars {
				m.resources.names.Intern(string(name))
			}
		}
	}
	if m.resources.names.Len() != before {
		m.forget()
	}
}
