package lower

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/label"
	"karpenter.sh/karpenter/internal/core/podclass"
	"karpenter.sh/karpenter/internal/core/quantity"
	"karpenter.sh/karpenter/internal/core/reason"
	"karpenter.sh/karpenter/internal/core/rule/limits"
	"karpenter.sh/karpenter/internal/core/rule/ports"
	"karpenter.sh/karpenter/internal/core/rule/spread"
	"karpenter.sh/karpenter/internal/core/solve"
)

// A builder makes one problem. Its stages run in the order of build.
type builder struct {
	e       *Engine
	in      Input
	problem *solve.Problem

	nodes      []*nodeInfo // bins, in order
	binOf      map[string]int
	gone       []bool // by bin
	goneBins   []int
	templates  []*template
	dropped    []reason.Count // pools without types
	w          *world
	repulsions []repulsion
	concerns   []bool // groups that select pods of this batch

	batch    map[cluster.PodKey]bool
	refused  []Refused
	cohorts  []*cohort
	groups   *groupTable
	keys     []*topologyKey
	reqs     interned[label.Reqs]
	tols     interned[tolerance]
	ports    *ports.Table
	drivers  map[string]int
	volumes  map[string]int // numbers of shared claims
	classes  []*classPods
	matching map[matchKey][]int
	orders   []priceOrder
	softOn   bool // some template or node has a PreferNoSchedule taint
}

// A tolerance is a set of tolerations, with or without one for every PreferNoSchedule taint.
type tolerance struct {
	list []corev1.Toleration
	soft bool
}

// An interned table numbers values by a canonical text.
type interned[T any] struct {
	list  []T
	texts []string
	index map[string]int
}

func (t *interned[T]) of(text string, v T) int {
	if i, ok := t.index[text]; ok {
		return i
	}
	if t.index == nil {
		t.index = map[string]int{}
	}
	t.index[text] = len(t.list)
	t.list, t.texts = append(t.list, v), append(t.texts, text)
	return len(t.list) - 1
}

// A cohort is pods of one class with equal labels: one question, before it is known which labels matter.
type cohort struct {
	info     *podInfo
	labels   *podclass.Labels
	pods     []*cluster.Pod
	priority int32
	virtual  bool
	extra    []spreadTerm // default constraints
	volumes  volumeNeeds
	hard     []int // groups
	soft     []int
	near     []int
	apart    []int
	nearSoft []int
	apartS   []int
	groups   []int // groups that select the pods
}

// A topologyKey is a label that groups count by.
type topologyKey struct {
	name   string
	values []string
	index  map[string]int32
	node   []int32
	tmpl   []solve.KeyOf
}

func (k *topologyKey) number(v string) int32 {
	if n, ok := k.index[v]; ok {
		return n
	}
	n := int32(len(k.values))
	k.index[v] = n
	k.values = append(k.values, v)
	return n
}

// classPods are the pods behind a class of the problem.
type classPods struct {
	pods   []*cluster.Pod
	sticky map[cluster.PodKey]int
}

func newBuilder(e *Engine, in Input) *builder {
	return &builder{e: e, in: in, problem: &solve.Problem{}, ports: &ports.Table{}, drivers: map[string]int{}, volumes: map[string]int{}, matching: map[matchKey][]int{}}
}

func (b *builder) build() {
	b.problem.Resources = b.e.resources.names.Len()
	for r := range b.problem.Resources {
		b.problem.Names = append(b.problem.Names, b.e.resources.names.Name(r))
	}
	b.e.readDaemons(b.in.Snap)
	b.readPods()
	b.readPools()
	b.readNodes()
	b.readGroups()
	b.readKeys()
	b.makeClasses()
	b.makeNodes()
	b.makeTemplates()
	b.makeGroups()
	b.makeLabels()
	b.makePools()
}

// readPods sorts pods into cohorts, and refuses those that cannot be planned.
func (b *builder) readPods() {
	pods := sortPods(b.in.Pods)
	b.batch = make(map[cluster.PodKey]bool, len(pods))
	index := map[cohortKey]*cohort{}
	for _, p := range pods {
		b.batch[p.PodKey] = true
		info := b.e.infoOf(p.Class)
		if len(info.invalid) > 0 {
			b.refuse(p, info.invalid)
			continue
		}
		key := cohortKey{class: p.Class, labels: p.Labels, priority: p.Priority, virtual: b.in.Virtual[p.PodKey]}
		if len(info.ephemeral) > 0 {
			key.pod = p.PodKey // its volume claims bear its name
		}
		if b.wantsDefaults(info) {
			key.owner = p.Owner
		}
		c := index[key]
		if c == nil {
			c = &cohort{info: info, labels: p.Labels, priority: p.Priority, virtual: key.virtual}
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
			b.e.learn(t)
		}
		for _, t := range c.info.preferred {
			b.e.learn(t)
		}
	}
}

type cohortKey struct {
	class    *podclass.Class
	labels   *podclass.Labels
	priority int32
	virtual  bool
	pod      cluster.PodKey
	owner    *cluster.Owner
}

func (b *builder) refuse(p *cluster.Pod, why []reason.Count) {
	b.refused = append(b.refused, Refused{Pod: p, Reasons: why, Text: reason.Render(why)})
}

// readPools makes the templates of the pools, heaviest first.
func (b *builder) readPools() {
	pools := slices.Clone(b.in.Pools)
	slices.SortStableFunc(pools, func(x, y PoolInput) int {
		if x.Pool.Weight() != y.Pool.Weight() {
			return int(y.Pool.Weight()) - int(x.Pool.Weight())
		}
		return strings.Compare(x.Pool.Name, y.Pool.Name)
	})
	b.e.poolCatalogs = map[string]*catalog{}
	for _, p := range pools {
		b.e.poolCatalogs[p.Pool.Name] = b.e.catalogOf(p.Catalog, b.in.Settings.ReservedCapacity)
		if p.Pool.IsStatic() || p.Pool.DeletionTimestamp != nil {
			continue
		}
		t := b.e.templateOf(p, b.in.Settings.ReservedCapacity)
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
	b.w = b.e.worldOf(b.in.Snap)
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

func (b *builder) column(key string) *column { return b.w.column(key) }

// readGroups interns the constraints of all cohorts and of pods that keep others away.
func (b *builder) readGroups() {
	b.groups = newGroupTable(b.in.Snap)
	for _, c := range b.cohorts {
		i, ns, lbl := c.info, c.info.class.Namespace, c.labels.Map
		ids := func(n int, of func(k int) *group) []int {
			out := make([]int, n)
			for k := range n {
				out[k] = of(k).id
			}
			return out
		}
		if n := len(i.hard); n > 0 {
			c.hard = ids(n, func(k int) *group { return b.groups.spread(i, &i.hard[k], ns, lbl) })
		}
		for k := range c.extra {
			g := b.groups.spread(i, &c.extra[k], ns, lbl)
			if c.extra[k].soft {
				c.soft = append(c.soft, g.id)
			} else {
				c.hard = append(c.hard, g.id)
			}
		}
		if n := len(i.near); n > 0 {
			c.near = ids(n, func(k int) *group { return b.groups.affinity(spread.Affinity, &i.near[k], true, true, lbl) })
		}
		if n := len(i.apart); n > 0 {
			c.apart = ids(n, func(k int) *group { return b.groups.affinity(spread.Anti, &i.apart[k], true, true, lbl) })
		}
		if b.in.Settings.IgnorePreferences {
			continue
		}
		if n := len(i.soft); n > 0 { // such pods have no default constraints
			c.soft = ids(n, func(k int) *group { return b.groups.spread(i, &i.soft[k], ns, lbl) })
		}
		if n := len(i.nearSoft); n > 0 {
			c.nearSoft = ids(n, func(k int) *group { return b.groups.affinity(spread.Affinity, &i.nearSoft[k], false, true, lbl) })
		}
		if n := len(i.apartSoft); n > 0 {
			c.apartS = ids(n, func(k int) *group { return b.groups.affinity(spread.Anti, &i.apartSoft[k], false, true, lbl) })
		}
	}
	b.readRepelling()
	for _, c := range b.cohorts {
		c.groups = b.groupsOf(c.info.class.Namespace, c.labels)
	}
}

// A repulsion is a term of running pods that is about pods of this batch.
type repulsion struct {
	from  *repeller
	group *group
}

// readRepelling adds the required anti-affinity of pods that run already, as far as it is about pods of this batch.
func (b *builder) readRepelling() {
	for _, i := range b.concerning() {
		r, t := b.w.terms[i].from, b.w.terms[i].term
		b.repulsions = append(b.repulsions, repulsion{r, b.groups.affinity(spread.Anti, t, true, false, r.labels.Map)})
	}
}

// fewCohorts is up to how many cohorts are asked one by one whether a term selects them.
const fewCohorts = 64

// concerning returns the terms of running pods that could select pods of this batch.
func (b *builder) concerning() []int {
	var out []int
	if len(b.cohorts) > fewCohorts {
		for i := range b.w.terms {
			out = append(out, i)
		}
		return out
	}
	for _, c := range b.cohorts {
		out = append(out, b.w.selecting(c.labels)...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

type matchKey struct {
	namespace string
	labels    *podclass.Labels
}

// groupsOf returns the groups whose selector matches pods with these labels.
func (b *builder) groupsOf(namespace string, l *podclass.Labels) []int {
	key := matchKey{namespace, l}
	if out, ok := b.matching[key]; ok {
		return out
	}
	var out []int
	for _, g := range b.groups.list {
		if g.covers(namespace) && g.selector.matches(l.Map) {
			out = append(out, g.id)
		}
	}
	b.matching[key] = out
	return out
}

// readKeys numbers the domains of every topology key that a group uses.
func (b *builder) readKeys() {
	index := map[string]bool{corev1.LabelHostname: true}
	for _, g := range b.groups.list {
		if !index[g.key] {
			index[g.key] = true
			b.keys = append(b.keys, &topologyKey{name: g.key, index: map[string]int32{}})
		}
	}
	for _, k := range b.keys {
		b.numberDomains(k)
		col := b.column(k.name)
		k.node = make([]int32, len(b.nodes))
		for i, v := range col.of {
			k.node[i] = -1
			if v >= 0 {
				k.node[i] = k.number(col.values[v])
			}
		}
		for _, t := range b.templates {
			k.tmpl = append(k.tmpl, t.keyOf(k.name, k.number))
		}
		for i := range k.tmpl {
			for k.tmpl[i].Choice != nil && len(k.tmpl[i].Choice) < len(k.values) {
				k.tmpl[i].Choice = append(k.tmpl[i].Choice, nil)
			}
		}
	}
}

// numberDomains numbers values in alphabetical order, so that ties break by name.
func (b *builder) numberDomains(k *topologyKey) {
	var all []string
	note := func(v string) int32 { all = append(all, v); return 0 }
	for _, t := range b.templates {
		t.keyOf(k.name, note)
	}
	all = append(all, b.column(k.name).values...)
	slices.Sort(all)
	for _, v := range slices.Compact(all) {
		k.number(v)
	}
}

func (b *builder) keyIndex(name string) int {
	if name == corev1.LabelHostname {
		return spread.Host
	}
	return slices.IndexFunc(b.keys, func(k *topologyKey) bool { return k.name == name })
}

// makeClasses merges cohorts that differ only in labels that no group looks at.
func (b *builder) makeClasses() {
	index := map[string]int{}
	var buf []byte
	for _, c := range b.cohorts {
		buf = c.text(buf[:0])
		at, ok := index[string(buf)]
		if !ok {
			at = len(b.classes)
			index[string(buf)] = at
			b.classes = append(b.classes, &classPods{sticky: map[cluster.PodKey]int{}})
			b.problem.Classes = append(b.problem.Classes, b.classOf(c, at))
		}
		b.classes[at].pods = append(b.classes[at].pods, c.pods...)
		b.problem.Classes[at].Count += len(c.pods)
	}
	for at, c := range b.classes {
		b.addSticky(&b.problem.Classes[at], c)
	}
}

// text identifies the question that the cohort asks.
func (c *cohort) text(buf []byte) []byte {
	buf = strconv.AppendUint(buf, uint64(c.info.class.ID), 36)
	buf = append(buf, '/')
	buf = append(buf, c.info.class.Namespace...)
	buf = append(buf, '/')
	buf = strconv.AppendInt(buf, int64(c.priority), 36)
	buf = strconv.AppendBool(buf, c.virtual)
	if len(c.info.ephemeral) > 0 {
		buf = append(buf, c.pods[0].Namespace...)
		buf = append(buf, '/')
		buf = append(buf, c.pods[0].Name...)
	}
	for _, list := range [][]int{c.hard, c.soft, c.near, c.apart, c.nearSoft, c.apartS, c.groups} {
		buf = append(buf, '|')
		for _, g := range list {
			buf = strconv.AppendInt(buf, int64(g), 36)
			buf = append(buf, ',')
		}
	}
	return buf
}

func (b *builder) classOf(c *cohort, order int) solve.Class {
	i := c.info
	out := solve.Class{Name: c.pods[0].Namespace + "/" + c.pods[0].Name, Priority: c.priority, Virtual: c.virtual, Order: order,
		Need: i.need, TooMuch: i.tooMuch, Groups: c.groups}
	for _, p := range i.ports {
		out.Ports = append(out.Ports, b.ports.Intern(p))
	}
	out.Volumes = c.volumes.mounts
	out.Variants = b.variantsOf(c)
	return out
}

// A level is how many of each kind of preference still count.
type level struct {
	nearSoft, apartSoft, preferred, soft int // dropped from the front
	tolerate                             bool
}

// levelsOf returns the levels of preference from the strictest to none, in the order in which kube's users know them.
func (b *builder) levelsOf(c *cohort) []level {
	out := []level{{}}
	last := func() level { return out[len(out)-1] }
	if !b.in.Settings.IgnorePreferences {
		for range c.nearSoft {
			l := last()
			l.nearSoft++
			out = append(out, l)
		}
		for range c.apartS {
			l := last()
			l.apartSoft++
			out = append(out, l)
		}
		for range c.info.preferred {
			l := last()
			l.preferred++
			out = append(out, l)
		}
		for range c.soft {
			l := last()
			l.soft++
			out = append(out, l)
		}
	}
	if b.softOn && !toleratesAll(c.info.tolerances, []corev1.Taint{{Effect: corev1.TaintEffectPreferNoSchedule, Key: "\x00"}}, false) {
		l := last()
		l.tolerate = true
		out = append(out, l)
	}
	return out
}

// variantsOf spells out the lattice of preference levels, required terms and volume alternatives.
func (b *builder) variantsOf(c *cohort) []solve.Variant {
	i := c.info
	levels := b.levelsOf(c)
	alternatives := c.volumes.alternatives
	if len(alternatives) == 0 {
		alternatives = []label.Reqs{nil}
	}
	if most := max(1, mostVariants/(len(i.terms)*len(alternatives))); len(levels) > most {
		levels = append(levels[:most-1:most-1], levels[len(levels)-1])
	}
	var out []solve.Variant
	for n, l := range levels {
		owns := b.ownedAt(c, l)
		tol := b.tols.of(i.tolKey+softText(l.tolerate), tolerance{i.tolerances, l.tolerate})
		for _, term := range i.terms {
			allowed := b.allowedBy(term)
			full := term
			if !b.in.Settings.IgnorePreferences && l.preferred < len(i.preferred) {
				full = full.And(i.preferred[l.preferred])
			}
			for _, alt := range alternatives {
				reqs := full.And(alt)
				out = append(out, solve.Variant{Level: n, Reqs: b.reqs.of(reqs.Key(), reqs), Tol: tol, Owns: owns, Allowed: allowed})
			}
		}
	}
	return out
}

func softText(soft bool) string {
	if soft {
		return "\x03soft"
	}
	return ""
}

// ownedAt returns the groups whose constraint counts at a level.
func (b *builder) ownedAt(c *cohort, l level) []int {
	if len(c.hard)+len(c.soft)+len(c.near)+len(c.apart)+len(c.nearSoft)+len(c.apartS) == 0 {
		return nil
	}
	out := slices.Concat(c.hard, c.near, c.apart)
	if !b.in.Settings.IgnorePreferences {
		out = slices.Concat(out, c.soft[min(l.soft, len(c.soft)):], c.nearSoft[min(l.nearSoft, len(c.nearSoft)):], c.apartS[min(l.apartSoft, len(c.apartS)):])
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// allowedBy returns, by topology key, the domains that a pod's own requirements allow.
func (b *builder) allowedBy(term label.Reqs) []bits.Set {
	var out []bits.Set
	for _, q := range term {
		k := b.keyIndex(q.Key)
		if k < 0 || q.Key == corev1.LabelHostname {
			continue
		}
		if out == nil {
			out = make([]bits.Set, len(b.keys))
		}
		set := bits.Make(len(b.keys[k].values))
		for d, v := range b.keys[k].values {
			if q.Set.Has(v) {
				set.Add(d)
			}
		}
		out[k] = set
	}
	return out
}

// addSticky notes where earlier plans put pods of the class.
func (b *builder) addSticky(class *solve.Class, c *classPods) {
	counts := map[int]int{}
	for _, p := range c.pods {
		plan, ok := b.in.Snap.Planned(p.PodKey)
		if !ok {
			continue
		}
		row := b.in.Snap.Target(plan.Target)
		if row == nil {
			continue
		}
		if bin, ok := b.binOf[row.Name]; ok {
			c.sticky[p.PodKey] = bin
			counts[bin]++
		}
	}
	for bin := range len(b.nodes) {
		if len(counts) == 0 {
			break
		}
		if n := counts[bin]; n > 0 {
			class.Sticky = append(class.Sticky, solve.Sticky{Node: bin, Count: n})
			delete(counts, bin)
		}
	}
}

// makeNodes writes the bins: what is free after pods, daemons, and pods that earlier plans promised to them.
func (b *builder) makeNodes() {
	b.problem.Nodes = slices.Clone(b.w.bins)
	for _, i := range b.w.ported {
		for _, p := range b.nodes[i].ports {
			b.problem.Nodes[i].Ports = append(b.problem.Nodes[i].Ports, b.ports.Intern(p))
		}
	}
	for _, names := range []map[string]bool{b.in.Closed, b.in.Gone} {
		for name, shut := range names {
			if bin, ok := b.binOf[name]; ok && shut {
				b.problem.Nodes[bin].Closed = true
			}
		}
	}
	own := map[int]bool{} // bins whose room is a copy
	for key, plan := range b.in.Snap.Plans() {
		if b.batch[key] {
			continue
		}
		pod, row := b.in.Snap.Pod(key), b.in.Snap.Target(plan.Target)
		if pod == nil || row == nil || pod.NodeName != "" {
			continue
		}
		if bin, ok := b.binOf[row.Name]; ok {
			node := &b.problem.Nodes[bin]
			if !own[bin] {
				own[bin], node.Room = true, slices.Clone(node.Room)
			}
			node.Room.Sub(b.e.infoOf(pod.Class).need)
		}
	}
	b.problem.Ports = b.ports
	b.makeVolumes()
}

func (b *builder) makeTemplates() {
	tier, weight := -1, int32(0)
	for i, t := range b.templates {
		if i == 0 || t.pool.Weight() != weight {
			tier, weight = tier+1, t.pool.Weight()
		}
		tmpl := t.tmpl
		tmpl.Pool, tmpl.Tier = i, tier
		tmpl.Daemons = slices.Clone(tmpl.Daemons)
		for g := range tmpl.Daemons {
			tmpl.Daemons[g].Ports = nil
			for _, p := range t.ports[g] {
				tmpl.Daemons[g].Ports = append(tmpl.Daemons[g].Ports, b.ports.Intern(p))
			}
		}
		for name, d := range b.drivers {
			if limit := t.catalog.shape.VolumeLimit[name]; limit != nil {
				for len(tmpl.Drivers) <= d {
					tmpl.Drivers = append(tmpl.Drivers, nil)
				}
				tmpl.Drivers[d] = limit
			}
		}
		b.problem.Templates = append(b.problem.Templates, tmpl)
		for r, left := range t.catalog.shape.Left {
			for len(b.problem.Reservations) <= r {
				b.problem.Reservations = append(b.problem.Reservations, -1)
			}
			if old := b.problem.Reservations[r]; old < 0 || left < old {
				b.problem.Reservations[r] = left
			}
		}
	}
	b.problem.Tiers = tier + 1
	for i := range b.problem.Classes {
		if c := &b.problem.Classes[i]; len(c.Ports) > 0 {
			c.Conflict = b.ports.Conflicts(c.Ports)
		}
	}
}

// makeLabels answers what every set of requirements and tolerations leaves of nodes and templates.
func (b *builder) makeLabels() {
	l := &b.problem.Labels
	for i, r := range b.reqs.list {
		on := bits.Full(len(b.nodes))
		for _, q := range r {
			b.column(q.Key).keep(q.Set, on)
		}
		l.OnNode = append(l.OnNode, on)
		row := make([]solve.Match, len(b.templates))
		for t, tmpl := range b.templates {
			row[t] = tmpl.matchOf(r, b.reqs.texts[i])
		}
		l.OnTemplate = append(l.OnTemplate, row)
	}
	for _, tol := range b.tols.list {
		on := bits.Make(len(b.nodes))
		for i := range b.w.taints {
			if toleratesAll(tol.list, b.w.taints[i].taints, tol.soft) {
				on.Or(b.w.taints[i].nodes)
			}
		}
		tmpl := bits.Make(len(b.templates))
		for t := range b.templates {
			if toleratesAll(tol.list, b.templates[t].taints, tol.soft) {
				tmpl.Add(t)
			}
		}
		l.TolNode, l.TolTmpl = append(l.TolNode, on), append(l.TolTmpl, tmpl)
	}
}

// makePools works out what each pool may still open.
func (b *builder) makePools() {
	used := map[string]quantity.Vec{}
	count := map[string]int64{}
	for _, t := range b.templates {
		if len(t.pool.Spec.Limits) > 0 {
			used[t.pool.Name] = make(quantity.Vec, b.problem.Resources)
		}
	}
	if len(used) > 0 {
		for _, n := range b.nodes {
			if v := used[n.pool]; v != nil && !b.in.Gone[n.row.Name] {
				v.Add(n.capacity)
				count[n.pool]++
			}
		}
	}
	for _, t := range b.templates {
		p := solve.Pool{Name: t.pool.Name, Limit: limits.Pool{Nodes: limits.Unlimited}}
		for name, q := range t.pool.Spec.Limits {
			p.Limit.Limited = true
			if p.Limit.Left == nil {
				p.Limit.Left = make(quantity.Vec, b.problem.Resources)
				for r := range p.Limit.Left {
					p.Limit.Left[r] = limits.Unlimited
				}
			}
			if name == v1.ResourceNodes {
				p.Limit.Nodes = down(name, &q) - count[t.pool.Name]
			} else if r := b.e.resources.names.Lookup(string(name)); r >= 0 {
				p.Limit.Left[r] = down(name, &q) - used[t.pool.Name][r]
			}
		}
		b.problem.Pools = append(b.problem.Pools, p)
	}
}
