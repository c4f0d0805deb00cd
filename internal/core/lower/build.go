package lower

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/cluster/podclass"
	"karpenter.sh/karpenter/internal/core/label"
	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/reason"
	"karpenter.sh/karpenter/internal/core/rule/ports"
	"karpenter.sh/karpenter/internal/core/work"
)

// A builder makes one problem. Its stages run in the order of build.
type builder struct {
	mem     *Memory
	in      Input
	problem *problem.Problem

	nodes      []*nodeInfo // bins, in order
	binOf      map[string]int
	gone       []bool // by bin
	goneBins   []int
	templates  []*template
	dropped    []reason.Count // pools without types
	w          *world
	repulsions []repulsion

	seated   map[cluster.PodKey]bool // pods that are asked for and have a seat
	expected []expected
	kept     []expected      // who may come to a place that is kept
	chosen   map[string]bool // labels that could be chosen for each node
	refused  []Refused
	// What lowering has cost so far, the classes whose terms are counted, and the pods that are left out for it.
	spent     work.Units
	counted   map[*podInfo]bool
	postponed map[cluster.PodKey]bool
	cohorts   []*cohort
	labels    *labelIndex // of the batch
	counting  [][]int     // by DaemonSet: groups that count its pods
	groups    *groupTable
	keys      []*topologyKey
	asked     []string // key=value: values that pods list for topology keys that a pool leaves open
	reqs      interned[string, label.Reqs]
	eithers   map[int][]int // by place in reqs: those of which one has to be met
	tols      interned[toleranceKey, tolerance]
	ports     *ports.Table
	drivers   numbers[string] // of volumes, by name
	volumes   numbers[volumeKey]
	disks     map[int]*diskKind
	hosts     map[string]bool // names of hosts that stay; nil until asked for
	devices   *deviceDesk     // nil where no pod asks for devices
	shared    map[types.NamespacedName]*sharedClaim
	exclusive map[types.NamespacedName]*exclusiveClaim
	classes   []Class
	softOn    bool // some template or node has a PreferNoSchedule taint
}

// Numbers are given to names in the order in which they are first asked for.
type numbers[K comparable] map[K]int

func (n numbers[K]) of(name K) int {
	i, ok := n[name]
	if !ok {
		i = len(n)
		n[name] = i
	}
	return i
}

// A volumeKey identifies what is attached for a claim: its volume, or what the volume takes of its storage class on the node.
type volumeKey struct {
	namespace, claim string
	class            bool
}

// An interned table numbers values by their identity.
type interned[K comparable, T any] struct {
	list  []T
	keys  []K
	index map[K]int
}

func (t *interned[K, T]) of(key K, v T) int {
	if i, ok := t.index[key]; ok {
		return i
	}
	if t.index == nil {
		t.index = map[K]int{}
	}
	t.index[key] = len(t.list)
	t.list, t.keys = append(t.list, v), append(t.keys, key)
	return len(t.list) - 1
}

// A cohort is pods of one class with equal labels: one question, before it is known which labels matter.
type cohort struct {
	info      *podInfo
	labels    *podclass.Labels
	set       int // number of the labels in their namespace
	pods      []*cluster.Pod
	priority  int32
	extra     []spreadTerm // default constraints
	volumes   volumeNeeds
	devices   deviceNeeds
	hard      []int // groups
	soft      []int
	near      []int
	apart     []int
	nearSoft  []int
	apartSoft []int
	groups    []int // groups that select the pods
	// exclusive are claims for one pod at a time that others want too; first is set where one of the pods comes before these.
	exclusive []string
	first     bool
}

func newBuilder(m *Memory, in Input) *builder {
	return &builder{mem: m, in: in, counted: map[*podInfo]bool{}, problem: &problem.Problem{}, ports: &ports.Table{},
		drivers: numbers[string]{}, volumes: numbers[volumeKey]{}}
}

func (b *builder) build() {
	b.problem.Resources = b.mem.resources.names.Len()
	for r := range b.problem.Resources {
		b.problem.Names = append(b.problem.Names, b.mem.resources.names.Name(r))
	}
	b.mem.readDaemons(b.in.Snap)
	b.readPods()
	b.readPools()
	b.readNodes()
	b.readDevices()
	b.readGroups()
	b.readKeys()
	b.makeClasses()
	b.makeNodes()
	b.makeTemplates()
	b.makeDevices()
	b.makeGroups()
	b.makeLabels()
	b.makePools()
}

// readPods sorts pods into cohorts, and refuses those that cannot be planned.
func (b *builder) readPods() {
	pods := b.mem.ages.sort(b.in.Pods)
	b.chosen = b.mem.chosenKeys(b.in)
	b.readSeated(pods)
	b.readExclusive(pods)
	index := map[cohortKey]*cohort{}
	for _, p := range pods {
		info := b.mem.infoOf(p.Class)
		if len(info.invalid) > 0 {
			b.refuse(p, info.invalid)
			continue
		}
		if info.devices && b.in.Selects == nil {
			b.refuse(p, []reason.Count{{Code: reason.DeviceClaims}})
			continue
		}
		if info.devices && !b.in.Snap.DevicesFed() {
			b.refuse(p, []reason.Count{{Code: reason.DevicesUnread}})
			continue
		}
		if bad := b.heldFrom(p, info.claims); bad.Code != 0 {
			b.refuse(p, []reason.Count{bad})
			continue
		}
		key := cohortKey{class: p.Class, labels: p.Labels, priority: p.Priority}
		if len(info.ephemeral) > 0 {
			key.pod = p.PodKey // its volume claims bear its name
		}
		if b.wantsDefaults(info) {
			key.owner = p.Owner
		}
		alone := info.devices && b.deviceDesk().alone(p)
		if alone {
			key.pod = p.PodKey
		}
		c := index[key]
		if c == nil {
			c = &cohort{info: info, labels: p.Labels, priority: p.Priority}
			c.devices.alone = alone
			index[key] = c
			bad := b.readCohortVolumes(c, p)
			if bad.Code != 0 {
				c.volumes.bad = bad
			}
			if b.wantsDefaults(info) {
				c.extra = b.defaultSpread(p)
			}
			b.cohorts = append(b.cohorts, c)
		}
		if c.volumes.bad.Code != 0 {
			b.refuse(p, []reason.Count{c.volumes.bad})
			continue
		}
		c.pods = append(c.pods, p)
	}
	b.cohorts = slices.DeleteFunc(b.cohorts, func(c *cohort) bool { return len(c.pods) == 0 })
	for _, c := range b.cohorts {
		for _, t := range c.info.terms {
			b.mem.learn(t, b.chosen)
		}
		for _, t := range c.info.preferred {
			b.mem.learn(t, b.chosen)
		}
	}
}

// readSeated finds the pods that have a seat. Seats are few, and of thousands of pods that may have to move next to none has one.
func (b *builder) readSeated(pods []*cluster.Pod) {
	seats := map[cluster.PodKey]bool{}
	for key := range b.in.Snap.Plans() {
		seats[key] = true
	}
	b.seated = map[cluster.PodKey]bool{}
	if len(seats) == 0 {
		return
	}
	for _, p := range pods {
		if seats[p.PodKey] {
			b.seated[p.PodKey] = true
		}
	}
}

type cohortKey struct {
	class    *podclass.Class
	labels   *podclass.Labels
	priority int32
	pod      cluster.PodKey
	owner    *cluster.Owner
}

func (b *builder) refuse(p *cluster.Pod, why []reason.Count) {
	b.refused = append(b.refused, Refused{p, why})
}

// readPools makes the templates of the pools, heaviest first.
func (b *builder) readPools() {
	pools := slices.Clone(b.in.Pools)
	slices.SortStableFunc(pools, func(x, y Pool) int {
		if x.Pool.Weight() != y.Pool.Weight() {
			return int(y.Pool.Weight()) - int(x.Pool.Weight())
		}
		return strings.Compare(x.Pool.Name, y.Pool.Name)
	})
	b.mem.poolCatalogs = map[string]*catalog{}
	for _, p := range pools {
		b.mem.poolCatalogs[p.Pool.Name] = b.mem.catalogOf(p.Catalog, b.in.ReservedCapacity)
		if p.Pool.IsStatic() || p.Pool.DeletionTimestamp != nil {
			continue
		}
		t := b.mem.templateOf(p, &b.in)
		if t.none.Code != 0 {
			b.dropped = append(b.dropped, t.none)
			continue
		}
		b.templates = append(b.templates, t)
		b.softOn = b.softOn || t.tmpl.Soft
	}
}

// readNodes takes the bins from the world of the snapshot. Nodes that are treated as gone stay bins, which take nothing.
func (b *builder) readNodes() {
	b.w = b.mem.worldOf(b.in.Snap)
	b.nodes, b.binOf = b.w.nodes, b.w.binOf
	b.gone = make([]bool, len(b.nodes))
	for name := range b.in.Gone {
		if bin, ok := b.binOf[name]; ok {
			b.gone[bin] = true
			b.goneBins = append(b.goneBins, bin)
		}
	}
	b.softOn = b.softOn || b.w.soft
}

// lowered is what build has made.
func (b *builder) lowered() *Lowered {
	out := &Lowered{Problem: b.problem, Classes: b.classes, Reqs: b.reqs.list, Refused: b.refused, Dropped: b.dropped, Spent: b.spent,
		nodes: b.nodes, templates: b.templates}
	if b.devices != nil {
		out.publishers = b.devices.publishers
	}
	return out
}

func (b *builder) column(key string) *column { return b.w.column(key) }
