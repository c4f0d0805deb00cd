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

// A Question asks about one pod of a question to the engine.
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

// Ask answers a question: it plans, and if the pod has no place, it tries single changes, then two and three
// together. When In.Ended returns true, it returns what was found so far.
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
		out.Cures = s.combinations()
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
	engine   Planner      // for quick plans; it remembers what pools and types are like
	before   *engine.Plan // the plan without changes
	all      []Change     // that could be made
	spent    work.Units   // on plans so far
	complete bool         // false once a change was left out for lack of work or time
	thorough bool         // quick plans do not stop at the first fit
}

// like reports whether a pod is edited together with the pod in question: it has the same owner and class.
func (s *search) like(p *cluster.Pod) bool {
	return p.PodKey == s.Pod.PodKey || s.Pod.Owner != nil && p.Owner == s.Pod.Owner && p.Class == s.Pod.Class
}

// over reports whether nothing more may be tried, and notes then that the answer is not complete.
func (s *search) over() bool {
	if s.spent < s.Most && (s.In.Ended == nil || !s.In.Ended()) {
		return false
	}
	s.complete = false
	return true
}

// try makes a quick plan with changes, to find out whether the pod has a place. It returns nil if it has none, or if
// nothing more may be tried.
func (s *search) try(changes ...Change) *engine.Plan {
	if s.over() {
		return nil
	}
	in := withChanges(s.In, s.Idle, s.like, changes)
	in.Settings.FirstFit, in.Settings.Unproven = !s.thorough, true
	plan := s.engine.Plan(in)
	s.spent += plan.Work
	if placeOf(plan, s.Pod.PodKey) == nil {
		return nil
	}
	return plan
}

// prove makes a full plan with changes, where try makes a quick one. It returns them as a cure: the pod's place, how
// much the bill grows, and how many pods gain or lose a place. ok is false if the pod has no place after all.
func (s *search) prove(changes []Change) (cure Cure, ok bool) {
	plan := s.New().Plan(withChanges(s.In, s.Idle, s.like, changes))
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

// refusedBy returns the pods that a plan has no place for.
func refusedBy(p *engine.Plan) map[cluster.PodKey]bool {
	out := map[cluster.PodKey]bool{}
	for i := range p.Refused {
		out[p.Refused[i].Pod.PodKey] = true
	}
	return out
}

// singles returns the changes that help alone, each narrowed to what is needed; those by which no pod loses its place
// come first.
func (s *search) singles() []Cure {
	var out []Cure
	told := map[Change]bool{}
	for _, c := range s.all {
		plan := s.try(c)
		if plan == nil {
			continue
		}
		small := s.narrow(nil, c, plan)
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

// compare orders changes by kind, then by what they are about.
func (c Change) compare(d Change) int {
	return cmp.Or(cmp.Compare(slices.Index(kinds, c.Kind), slices.Index(kinds, d.Kind)),
		strings.Compare(c.Pool, d.Pool), strings.Compare(c.Key, d.Key), strings.Compare(c.Value, d.Value), cmp.Compare(c.at, d.at))
}

// combinations returns one set of two or three changes that help together, of the smallest size that does; changes of
// two pools are never in one set.
func (s *search) combinations() []Cure {
	for size := 2; size <= mostChanges; size++ {
		for _, pool := range s.pools() {
			own := slices.DeleteFunc(slices.Clone(s.all), func(c Change) bool { return c.Pool != "" && c.Pool != pool })
			if s.try(own...) == nil {
				continue // not even all of them together
			}
			if cure, ok := s.trySets(nil, own, size); ok {
				return []Cure{cure}
			}
		}
	}
	return nil
}

// pools lists the pools of which something can be changed; only "" (the pod alone) if there is none.
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

// trySets tries every set that consists of chosen and of more changes from rest. It returns the first that helps,
// narrowed.
func (s *search) trySets(chosen, rest []Change, more int) (Cure, bool) {
	if more == 0 {
		plan := s.try(chosen...)
		if plan == nil {
			return Cure{}, false
		}
		small := slices.Clone(chosen)
		for i := range small {
			others := slices.Concat(small[:i], small[i+1:])
			small[i] = s.narrow(others, small[i], plan)
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
		if cure, ok := s.trySets(append(slices.Clone(chosen), rest[i]), rest[i+1:], more-1); ok {
			return cure, true
		}
	}
	return Cure{}, false
}

// narrow returns a smaller change that still helps together with others: one value of a label, a limit that is just
// high enough, the highest minValues, the largest request. plan is the result of the unchanged c.
func (s *search) narrow(others []Change, c Change, plan *engine.Plan) Change {
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
		for _, smaller.Value = range s.limitsNeeded(c, plan) {
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
		return s.largestRequest(c, helps)
	}
	return c
}

// valuesOf returns the values that a label has on the pod's new node in plan; nil if the pool's requirement cannot be
// widened by a value.
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

// pool returns a pool by name, also one of the idle ones.
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

// limitsNeeded returns the limits that would be just enough for plan: for the machines that were priced, and for the
// largest that its claims may become.
func (s *search) limitsNeeded(c Change, plan *engine.Plan) []string {
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

// capacity returns what a node counts against a limit of a resource.
func capacity(list corev1.ResourceList, name corev1.ResourceName) resource.Quantity {
	if name == v1.ResourceNodes {
		return *resource.NewQuantity(1, resource.DecimalSI)
	}
	return list[name]
}

// largestRequest finds by bisection the largest part of a request with which the pod has a place.
func (s *search) largestRequest(c Change, helps func(Change) bool) Change {
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

// requestOf returns a pod's request for a resource, without the overhead of its RuntimeClass, which the pod's owner
// cannot lower.
func requestOf(spec *corev1.PodSpec, name corev1.ResourceName) resource.Quantity {
	own := *spec
	own.Overhead = nil
	return podclass.Requests(&own)[name]
}
