package why

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/cluster/podclass"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/work"
)

// A Planner answers questions to the engine.
type Planner interface {
	Plan(in engine.Question) *engine.Plan
}

// A Question is about one pod of a question to the engine.
type Question struct {
	In  engine.Question
	Pod *cluster.Pod   // one of In.Pods
	New func() Planner // returns a value that remembers nothing
	// Idle are pools beside In.Pools that launch nothing because of their node class, with what they could buy with a class that
	// can be used.
	Idle []engine.Pool
	// Most is how much work may go into trying changes; 0: the default. When it is used up, the answer says that it is not complete.
	Most work.Units
}

// defaultMost is about half a minute of the reference machine.
const defaultMost = 30 * work.Second

// mostChanges is how many changes at once are still advice.
const mostChanges = 3

// An Answer says where a pod goes, or what would have to change so that it has a place.
type Answer struct {
	Place   *Place          // where it goes as things are; nil if it is refused
	Refused *engine.Refused // nil if it has a place
	Cures   []Cure          // each places the pod by itself; those of one change, the likeliest first, or else one of the smallest
	// Complete says that all changes up to three at once were tried: without cures there is none.
	Complete bool
}

// A Place is where a pod goes.
type Place struct {
	Node                           string // that is there, or on its way; "" for a new one
	Pool, Type, Zone, CapacityType string // of the new node
	Price                          cloud.NanoUSD
	Pods                           int // that share the new node
}

// A Cure is changes that together give the pod a place.
type Cure struct {
	Changes []Change
	Place   Place
	More    cloud.NanoUSD // by which the bill of everything that is opened grows
	Gains   int           // pods that have a place then and have none now, this one included
	Loses   int           // pods that lose theirs
}

// Ask answers a question. When In.Ended says so, it is answered with what was found.
func Ask(q Question) Answer {
	s := &search{Question: q, engine: q.New(), complete: true}
	if s.Most == 0 {
		s.Most = defaultMost
	}
	s.before = s.New().Plan(s.In)
	out := Answer{Place: placeOf(s.before, q.Pod.PodKey), Complete: true}
	if out.Place != nil {
		return out
	}
	for i := range s.before.Refused {
		if s.before.Refused[i].Pod.PodKey == q.Pod.PodKey {
			out.Refused = &s.before.Refused[i]
		}
	}
	s.all = changesOf(q.In, q.Idle, q.Pod)
	out.Cures = s.singles()
	if len(out.Cures) == 0 { // now and then only a thorough plan finds the place
		s.thorough = true
		out.Cures = s.singles()
		s.thorough = false
	}
	if len(out.Cures) == 0 {
		out.Cures = s.several()
	}
	out.Complete = s.complete
	return out
}

// placeOf returns where a plan puts a pod, nil if nowhere.
func placeOf(p *engine.Plan, key cluster.PodKey) *Place {
	for _, x := range p.Place {
		if x.Pod.PodKey == key {
			return &Place{Node: x.Node}
		}
	}
	for i := range p.Open {
		o := &p.Open[i]
		if slices.ContainsFunc(o.Pods, func(p *cluster.Pod) bool { return p.PodKey == key }) {
			return &Place{Pool: o.Pool, Type: o.Type, Zone: o.Zone, CapacityType: o.CapacityType, Price: o.Price, Pods: len(o.Pods)}
		}
	}
	return nil
}

// A search tries changes.
type search struct {
	Question
	engine   Planner // remembers what pools and types are like
	before   *engine.Plan
	all      []Change
	spent    work.Units
	complete bool
	thorough bool
}

// like tells which pods are edited with the pod in question.
func (s *search) like(p *cluster.Pod) bool {
	return p.PodKey == s.Pod.PodKey || s.Pod.Owner != nil && p.Owner == s.Pod.Owner && p.Class == s.Pod.Class
}

// over reports whether nothing more may be tried.
func (s *search) over() bool {
	if s.spent < s.Most && (s.In.Ended == nil || !s.In.Ended()) {
		return false
	}
	s.complete = false
	return true
}

// try plans with changes, quickly unless it is to be thorough: what counts is whether the pod has a place. It returns nil if it has none.
func (s *search) try(changes ...Change) *engine.Plan {
	if s.over() {
		return nil
	}
	in := edited(s.In, s.Idle, s.like, changes)
	in.Settings.FirstFit, in.Settings.Unproven = !s.thorough, true
	plan := s.engine.Plan(in)
	s.spent += plan.Work
	if placeOf(plan, s.Pod.PodKey) == nil {
		return nil
	}
	return plan
}

// prove plans with changes as the controller would, and says what comes of it.
func (s *search) prove(changes []Change) (Cure, bool) {
	plan := s.New().Plan(edited(s.In, s.Idle, s.like, changes))
	s.spent += plan.Work
	place := placeOf(plan, s.Pod.PodKey)
	if place == nil {
		return Cure{}, false
	}
	c := Cure{Changes: changes, Place: *place, More: plan.Price - s.before.Price}
	was, is := refusedBy(s.before), refusedBy(plan)
	for key := range was {
		if !is[key] {
			c.Gains++
		}
	}
	for key := range is {
		if !was[key] {
			c.Loses++
		}
	}
	return c, true
}

func refusedBy(p *engine.Plan) map[cluster.PodKey]bool {
	out := map[cluster.PodKey]bool{}
	for i := range p.Refused {
		out[p.Refused[i].Pod.PodKey] = true
	}
	return out
}

// singles returns the changes that help by themselves, each as small as it may be.
func (s *search) singles() []Cure {
	var out []Cure
	told := map[Change]bool{}
	for _, c := range s.all {
		plan := s.try(c)
		if plan == nil {
			continue
		}
		small := s.smallest(nil, c, plan)
		if told[small] {
			continue
		}
		told[small] = true
		cure, ok := s.prove([]Change{small})
		if !ok && small != c { // what helps a hasty plan need not help a thorough one
			cure, ok = s.prove([]Change{c})
		}
		if ok {
			out = append(out, cure)
		}
	}
	slices.SortStableFunc(out, func(a, b Cure) int {
		return cmp.Or(cmp.Compare(min(a.Loses, 1), min(b.Loses, 1)), a.Changes[0].compare(b.Changes[0]), cmp.Compare(a.More, b.More))
	})
	return slices.CompactFunc(out, func(a, b Cure) bool { return a.Changes[0] == b.Changes[0] })
}

func (c Change) compare(d Change) int {
	return cmp.Or(cmp.Compare(slices.Index(kinds, c.Kind), slices.Index(kinds, d.Kind)),
		strings.Compare(c.Pool, d.Pool), strings.Compare(c.Key, d.Key), strings.Compare(c.Value, d.Value), cmp.Compare(c.at, d.at))
}

// several returns one of the smallest sets of two or three changes that help together.
func (s *search) several() []Cure {
	for size := 2; size <= mostChanges; size++ {
		for _, pool := range s.pools() {
			own := slices.DeleteFunc(slices.Clone(s.all), func(c Change) bool { return c.Pool != "" && c.Pool != pool })
			if s.try(own...) == nil {
				continue // not even all of them together
			}
			if cure, ok := s.sets(nil, own, size); ok {
				return []Cure{cure}
			}
		}
	}
	return nil
}

// pools lists the pools of which something can be changed, with "" for the pod alone where there is none.
func (s *search) pools() []string {
	var out []string
	for _, c := range s.all {
		if c.Pool != "" && !slices.Contains(out, c.Pool) {
			out = append(out, c.Pool)
		}
	}
	if len(out) == 0 {
		return []string{""}
	}
	return out
}

// sets tries every set of so many changes that contains those that are chosen.
func (s *search) sets(chosen, rest []Change, more int) (Cure, bool) {
	if more == 0 {
		plan := s.try(chosen...)
		if plan == nil {
			return Cure{}, false
		}
		small := slices.Clone(chosen)
		for i := range small {
			others := slices.Concat(small[:i], small[i+1:])
			small[i] = s.smallest(others, small[i], plan)
		}
		if cure, ok := s.prove(small); ok {
			return cure, true
		}
		return s.prove(chosen)
	}
	for i := range rest {
		if s.over() {
			break
		}
		if cure, ok := s.sets(append(slices.Clone(chosen), rest[i]), rest[i+1:], more-1); ok {
			return cure, true
		}
	}
	return Cure{}, false
}

// smallest narrows a change that helps, beside others that are made too: to one value of a label, to the limit that is needed. plan is
// its outcome unchanged.
func (s *search) smallest(others []Change, c Change, plan *engine.Plan) Change {
	helps := func(smaller Change) bool { return s.try(append(slices.Clone(others), smaller)...) != nil }
	switch c.Kind {
	case AllowValue:
		if c.Value != "" {
			return c
		}
		for _, value := range s.valuesOf(c, plan) {
			smaller := c
			if smaller.Value = value; helps(smaller) {
				return smaller
			}
		}
	case RaiseLimit:
		smaller := c
		for _, smaller.Value = range s.needs(c, plan) {
			if helps(smaller) {
				return smaller
			}
		}
	case LowerMinValues:
		smaller := c
		was, _ := strconv.Atoi(c.Was)
		for n := was - 1; n > 1; n-- {
			if smaller.Value = strconv.Itoa(n); helps(smaller) {
				return smaller
			}
		}
	case LowerRequest:
		return s.mostOf(c, helps)
	}
	return c
}

// valuesOf returns what a label may have been on the pod's new node, if the requirement of its pool can be widened by a value.
func (s *search) valuesOf(c Change, plan *engine.Plan) []string {
	in := s.pool(c.Pool)
	reqs := in.Pool.Spec.Template.Spec.Requirements
	widens := func(q v1.NodeSelectorRequirementWithMinValues) bool {
		return q.Key != c.Key || q.Operator == corev1.NodeSelectorOpIn || q.Operator == corev1.NodeSelectorOpNotIn
	}
	place := placeOf(plan, s.Pod.PodKey)
	if place.Pool != c.Pool || slices.ContainsFunc(reqs, func(q v1.NodeSelectorRequirementWithMinValues) bool { return !widens(q) }) {
		return nil
	}
	switch c.Key {
	case corev1.LabelTopologyZone:
		return []string{place.Zone}
	case v1.CapacityTypeLabelKey:
		return []string{place.CapacityType}
	}
	for _, it := range in.Catalog.Types {
		if it.Name == place.Type {
			return it.Labels[c.Key]
		}
	}
	return nil
}

// pool returns the pool of a name, one of those that launch nothing if it is not among the others.
func (s *search) pool(name string) *engine.Pool {
	for _, list := range [][]engine.Pool{s.In.Pools, s.Idle} {
		for i := range list {
			if list[i].Pool.Name == name {
				return &list[i]
			}
		}
	}
	return nil
}

// needs returns limits with which the plan could be carried out: with the machines that were priced, and with the largest that its claims
// may become.
func (s *search) needs(c Change, plan *engine.Plan) []string {
	name := corev1.ResourceName(c.Key)
	amount := map[string]resource.Quantity{}
	for _, it := range s.pool(c.Pool).Catalog.Types {
		amount[it.Name] = it.Capacity[name]
	}
	var sum resource.Quantity
	for n := range s.In.Snap.Nodes() {
		if n.Pool() == c.Pool && !n.Incomplete && !n.Deleting() {
			sum.Add(capacity(n.Capacity(), name))
		}
	}
	largest := sum.DeepCopy()
	for i := range plan.Open {
		o := &plan.Open[i]
		if o.Pool != c.Pool {
			continue
		}
		if name == v1.ResourceNodes {
			sum.Add(*resource.NewQuantity(1, resource.DecimalSI))
			largest.Add(*resource.NewQuantity(1, resource.DecimalSI))
			continue
		}
		sum.Add(amount[o.Type])
		most := amount[o.Type]
		for _, t := range o.Types {
			if q := amount[t]; q.Cmp(most) > 0 {
				most = q
			}
		}
		largest.Add(most)
	}
	return slices.Compact([]string{sum.String(), largest.String()})
}

// capacity is what a node counts against a limit.
func capacity(list corev1.ResourceList, name corev1.ResourceName) resource.Quantity {
	if name == v1.ResourceNodes {
		return *resource.NewQuantity(1, resource.DecimalSI)
	}
	return list[name]
}

// mostOf finds the largest part of a request that has a place. More of it never fits where less does not.
func (s *search) mostOf(c Change, helps func(Change) bool) Change {
	low, high := int64(0), int64(wholeParts)
	for high-low > 1 {
		half := c
		if half.parts = (low + high) / 2; helps(half) {
			low = half.parts
		} else {
			high = half.parts
		}
	}
	c.parts = low
	total := requestOf(s.Pod.Class.Spec, corev1.ResourceName(c.Key))
	left := partOf(corev1.ResourceName(c.Key), total, low)
	c.Was, c.Value = total.String(), left.String()
	return c
}

// requestOf is what a pod counts for of a resource, without the overhead of its runtime, which is not its owner's to lower.
func requestOf(spec *corev1.PodSpec, name corev1.ResourceName) resource.Quantity {
	own := *spec
	own.Overhead = nil
	return podclass.Requests(&own)[name]
}
