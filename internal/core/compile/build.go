package compile

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/cluster/podclass"
	"karpenter.sh/karpenter/internal/core/compile/devices"
	"karpenter.sh/karpenter/internal/core/label"
	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/quota"
	"karpenter.sh/karpenter/internal/core/reason"
	ruledevices "karpenter.sh/karpenter/internal/core/rule/devices"
	"karpenter.sh/karpenter/internal/core/rule/ports"
	"karpenter.sh/karpenter/internal/core/work"
)

// A builder makes one problem. Its stages run in the order of build.
type builder struct {
	mem     *Memory
	in      Input
	problem *problem.Problem
	out     *Compiled

	gone      []bool // by bin: it is treated as gone
	goneBins  []int  // the same, as a list
	templates []*template
	w         *world

	chosen     map[string]bool // labels that may be chosen for each new node
	cohorts    []*cohort
	seats      seats
	admission  admission
	topology   topology
	conditions conditions
	ports      *ports.Table
	volumes    *volumeReader
	generated  devices.Generated // nil where no pod asks for devices
	devices    *devices.Model    // likewise
	claims     volumeClaims
	softOn     bool // some template or node has a PreferNoSchedule taint
}

// Seats are the places that earlier plans gave to pods.
type seats struct {
	seated   map[cluster.PodKey]bool // pods that are asked for and have a seat
	expected []expected
	kept     []expected // pods of Input.Kept that are not asked for
}

// An admission is what terms of pods have cost so far, and the pods that are postponed because of it.
type admission struct {
	spent     work.Units
	postponed map[cluster.PodKey]bool
}

// A topology is the groups by which pods are counted, and the keys that number their domains.
type topology struct {
	labels     *labelIndex // of the batch
	groups     *groupTable
	counting   [][]int // by DaemonSet: groups that count its pods
	repulsions []repulsion
	keys       []*topologyKey
	asked      []string // "key=value": values that pods ask for, of topology keys that a pool leaves open; see askedFor
}

// Conditions are the requirements on nodes, each once. Their numbers are those in problem.Labels.
type conditions struct {
	reqs   interned[string, label.Reqs]
	unions map[int][]int // by number in reqs, for a union: the numbers of which one has to be met
	tols   interned[toleranceKey, tolerance]
}

// VolumeClaims are the claims that tie pods of several cohorts to each other.
type volumeClaims struct {
	shared    map[types.NamespacedName]*sharedClaim
	exclusive map[types.NamespacedName]*exclusiveClaim
}

// Numbers are given to names in the order in which they are first asked for.
type numbers[K comparable] map[K]int

// of returns the number of a name, a new one if it has none.
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

// An interned table numbers values. Values with equal keys are one value.
type interned[K comparable, T any] struct {
	list  []T
	keys  []K
	index map[K]int
}

// of returns the number of the value with this key. If there is none, v gets a new number.
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

// A cohort is pods of one pod class with equal labels and priority. makeClasses joins cohorts if only labels tell them apart that no group
// selects by.
type cohort struct {
	info      *podInfo
	labels    *podclass.Labels
	set       int // number of the labels in their namespace
	pods      []*cluster.Pod
	priority  int32
	extra     []spreadTerm // default constraints
	volumes   volumeNeeds
	devices   []*ruledevices.Claim
	alone     bool  // the cohort is one pod, because a resource claim was made for it
	hard      []int // groups
	soft      []int
	near      []int
	apart     []int
	nearSoft  []int
	apartSoft []int
	groups    []int // groups that select the pods
	// exclusive are volume claims for one pod at a time that pods of the question compete for; first: a pod of the cohort has the first
	// right to one of them.
	exclusive []string
	first     bool
}

func newBuilder(m *Memory, in Input) *builder {
	return &builder{mem: m, in: in, problem: &problem.Problem{}, out: &Compiled{}, ports: &ports.Table{},
		volumes: &volumeReader{snap: in.Snap, known: m.known, gone: in.Gone, drivers: numbers[string]{}, ids: numbers[volumeKey]{}}}
}

// build runs the stages, see doc.go.
func (b *builder) build() {
	b.problem.Resources = b.mem.resources.names.Len()
	for r := range b.problem.Resources {
		b.problem.Names = append(b.problem.Names, b.mem.resources.names.Name(r))
	}
	b.out.quotas = quota.All(b.in.Snap)
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
	makeQuotas(b)
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
		priority := p.Priority
		if b.in.Ranks != nil {
			priority = b.in.Ranks[p.PodKey]
		}
		key := cohortKey{class: p.Class, labels: p.Labels, priority: priority}
		if len(info.ephemeral) > 0 {
			key.pod = p.PodKey // its volume claims bear its name
		}
		if b.wantsDefaults(info) {
			key.owner = p.Owner
		}
		alone := info.devices && b.hasOwnClaim(p)
		if alone {
			key.pod = p.PodKey
		}
		c := index[key]
		if c == nil {
			c = &cohort{info: info, labels: p.Labels, priority: priority}
			c.alone = alone
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

// readSeated finds the pods of the question that have a seat. It reads the few seats first, because a question may have thousands of pods
// and hardly any with a seat.
func (b *builder) readSeated(pods []*cluster.Pod) {
	seats := map[cluster.PodKey]bool{}
	for key := range b.in.Snap.Plans() {
		seats[key] = true
	}
	b.seats.seated = map[cluster.PodKey]bool{}
	if len(seats) == 0 {
		return
	}
	for _, p := range pods {
		if seats[p.PodKey] {
			b.seats.seated[p.PodKey] = true
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
	b.out.Refused = append(b.out.Refused, Refused{p, why})
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
		b.mem.poolCatalogs[p.Pool.Name] = b.mem.catalogOf(p, &b.in)
		if p.Pool.IsStatic() || p.Pool.DeletionTimestamp != nil {
			continue
		}
		before := len(b.templates)
		var none reason.Count
		for _, of := range b.mem.partsOf(b.out.quotas, p, &b.in) {
			for _, part := range b.daemonParts(of) {
				t := b.mem.templateOf(of, part, &b.in)
				if t.none.Code != 0 {
					none = t.none
					continue
				}
				b.templates = append(b.templates, t)
				b.softOn = b.softOn || t.tmpl.Soft
			}
		}
		if len(b.templates) == before {
			b.out.Dropped = append(b.out.Dropped, none)
		}
	}
}

// readNodes takes the bins from the world of the snapshot. Nodes that are treated as gone stay bins, but take no pods.
func (b *builder) readNodes() {
	b.w = b.mem.worldOf(b.in.Snap)
	b.gone = make([]bool, len(b.w.nodes))
	for name := range b.in.Gone {
		if bin, ok := b.w.binOf[name]; ok {
			b.gone[bin] = true
			b.goneBins = append(b.goneBins, bin)
		}
	}
	b.softOn = b.softOn || b.w.soft
}

// compiled returns what build has made.
func (b *builder) compiled() *Compiled {
	out := b.out
	out.Problem, out.Reqs, out.Spent = b.problem, b.conditions.reqs.list, b.admission.spent
	out.nodes, out.templates = b.w.nodes, b.templates
	if b.devices != nil {
		out.publishers = b.devices.Drivers
	}
	return out
}
