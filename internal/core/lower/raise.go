package lower

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/label"
	"karpenter.sh/karpenter/internal/core/quantity"
	"karpenter.sh/karpenter/internal/core/reason"
	"karpenter.sh/karpenter/internal/core/shape"
	"karpenter.sh/karpenter/internal/core/solve"
)

// mostTypes is how many instance types a claim lists at most.
const mostTypes = 600

// DefaultNodePrice is what a node is reckoned to cost by itself unless somebody chose another price: $0.002 an hour.
const DefaultNodePrice cloud.NanoUSD = 2_000_000

// termsOf says what new nodes are reckoned to cost.
func termsOf(s *Settings) solve.Terms {
	terms := solve.Terms{Band: s.Band, Node: int64(max(s.NodePrice, 0))}
	if s.NodePrice == 0 {
		terms.Node = int64(DefaultNodePrice)
	}
	if s.Band == (shape.Band{}) {
		terms.Band = shape.DefaultBand
	}
	return terms
}

// SpotBand is what a launch sends of spot, and OwnPrice what decisions add for a node of a price.
func (s *Settings) SpotBand() shape.Band { return termsOf(s).Band }

func (s *Settings) OwnPrice(price cloud.NanoUSD) cloud.NanoUSD {
	terms := termsOf(s)
	return cloud.NanoUSD(terms.Own(int64(price)))
}

// raise turns the result back into objects.
func (b *builder) raise(r *solve.Result) *Plan {
	p := &Plan{Open: make([]Opening, 0, len(r.Bins)), Price: cloud.NanoUSD(r.Price), Floor: cloud.NanoUSD(r.Floor), Cost: cloud.NanoUSD(r.Cost), VolumeBound: cloud.NanoUSD(r.Volume), ConfigBound: cloud.NanoUSD(r.Config),
		Partial: r.Partial, Refused: b.refused}
	hand := b.deal()
	for _, put := range r.Placed {
		for _, pod := range hand.take(put.Class, put.Bin, put.Count) {
			b.placed(p, pod, put.Bin)
		}
	}
	for i := range r.Bins {
		var like *Opening
		if at := r.Bins[i].Like; at >= 0 {
			like = &p.Open[at]
		}
		o := b.opening(&r.Bins[i], like)
		for _, put := range r.Bins[i].Puts {
			o.Pods = append(o.Pods, hand.take(put.Class, -1, put.Count)...)
		}
		p.Open = append(p.Open, o)
	}
	for class := range b.classes {
		pods := hand.take(class, -1, len(hand.left[class]))
		if len(pods) == 0 {
			continue
		}
		why := b.withNumbers(b.withDropped(r.Why[class]))
		for _, pod := range pods {
			p.Refused = append(p.Refused, Refused{Pod: pod, Reasons: why})
		}
	}
	b.render(p)
	return p
}

// withDropped adds the pools that have no types to an explanation.
func (b *builder) withDropped(why []reason.Count) []reason.Count {
	if len(b.dropped) == 0 || len(why) == 1 && why[0].Code == reason.NotReached {
		return why
	}
	out := slices.DeleteFunc(slices.Clone(why), func(c reason.Count) bool { return c.Code == reason.NoPools })
	return append(out, b.dropped...)
}

// withNumbers says of each limit that is reached what it is, how much of it is used with what the plan opens, and what would be needed.
func (b *builder) withNumbers(why []reason.Count) []reason.Count {
	about := func(c reason.Count) bool { return c.Code == reason.Limit }
	if !slices.ContainsFunc(why, about) {
		return why
	}
	out := slices.Clone(why)
	for i := range out {
		if c := &out[i]; about(*c) {
			c.Detail = b.numbers(c)
		}
	}
	return out
}

func (b *builder) numbers(c *reason.Count) string {
	at := slices.IndexFunc(b.templates, func(t *template) bool { return t.pool.Name == c.Pool })
	if at < 0 {
		return ""
	}
	name := corev1.ResourceName(c.Key)
	limit, ok := b.templates[at].pool.Spec.Limits[name]
	if !ok {
		return ""
	}
	text := fmt.Sprintf("(%s, used %s", limit.String(), written(name, down(name, &limit)-c.Left))
	if name != v1.ResourceNodes && c.Needs > 0 {
		text += fmt.Sprintf("; the smallest machine that would do has %s", written(name, c.Needs))
	}
	return text + ")"
}

// render writes the texts; pods of one class share theirs.
func (b *builder) render(p *Plan) {
	var last []reason.Count
	var text string
	for i := range p.Refused {
		r := &p.Refused[i]
		if r.Text != "" {
			continue
		}
		if text == "" || !slices.Equal(last, r.Reasons) {
			last, text = r.Reasons, reason.Render(r.Reasons)
		}
		r.Text = text
	}
}

// placed notes a pod on an existing node, or why a what-if question does not accept it there.
func (b *builder) placed(p *Plan, pod *cluster.Pod, bin int) {
	n := b.nodes[bin]
	if b.in.Simulation && !n.ready && !b.in.FromDeleting[pod.PodKey] {
		why := []reason.Count{{Code: reason.UninitializedOnly, Key: n.row.Name}}
		p.Refused = append(p.Refused, Refused{Pod: pod, Reasons: why})
		return
	}
	p.Place = append(p.Place, Placement{Pod: pod, Node: n.row.Name})
}

// A hand deals the pods of each class to their places. Pods that were planned onto a node before go there first.
type hand struct {
	left   [][]*cluster.Pod
	sticky []map[cluster.PodKey]int
}

func (b *builder) deal() *hand {
	h := &hand{}
	for _, c := range b.classes {
		h.left = append(h.left, c.pods)
		h.sticky = append(h.sticky, c.sticky)
	}
	return h
}

// take returns n pods of a class for a bin (−1: a new node).
func (h *hand) take(class, bin, n int) []*cluster.Pod {
	if len(h.sticky[class]) == 0 {
		out := h.left[class][:n]
		h.left[class] = h.left[class][n:]
		return out
	}
	rank := func(p *cluster.Pod) int {
		at, ok := h.sticky[class][p.PodKey]
		switch {
		case ok && at == bin:
			return 0
		case !ok:
			return 1
		default:
			return 2
		}
	}
	left := slices.Clone(h.left[class])
	slices.SortStableFunc(left, func(a, b *cluster.Pod) int { return rank(a) - rank(b) })
	h.left[class] = left[n:]
	return left[:n]
}

// opening writes the claim of a new node. like is an opening of the same machines, nil if there is none.
func (b *builder) opening(bin *solve.Bin, like *Opening) Opening {
	t := b.templates[bin.Template]
	cat := t.catalog.shape
	o := Opening{Pool: t.pool.Name, Price: cloud.NanoUSD(bin.Launch.Price), Floor: cloud.NanoUSD(bin.Launch.Floor), Worst: cloud.NanoUSD(bin.Launch.Worst), Sent: bin.Launch.Types, Offers: bin.Launch.Offers}
	if like != nil {
		o.Types, o.Zones, o.CapacityTypes = like.Types, like.Zones, like.CapacityTypes
	} else {
		o.Types = cat.Named(b.orderOf(cat, bin.Mask), bin.Shapes, mostTypes)
		o.Zones, o.CapacityTypes = b.offered(cat, bin)
	}
	o.Type = cat.Names[bin.Launch.First.Shape]
	first := cat.Offers[bin.Launch.First.Offer].Labels
	o.Zone, o.CapacityType = first[corev1.LabelTopologyZone], first[v1.CapacityTypeLabelKey]
	o.Claim = b.claim(t, bin, &o)
	return o
}

// orderOf returns the shapes by price under the choices of a bin; few choices occur again and again.
func (b *builder) orderOf(cat *shape.Catalog, mask bits.Set) []int32 {
	for i := range b.orders {
		if o := &b.orders[i]; o.catalog == cat && o.mask.Equal(mask) {
			return o.shapes
		}
	}
	b.orders = append(b.orders, priceOrder{cat, mask, cat.Order(mask)})
	return b.orders[len(b.orders)-1].shapes
}

type priceOrder struct {
	catalog *shape.Catalog
	mask    bits.Set
	shapes  []int32
}

// offered returns the zones and capacity types in which some listed type can be bought.
func (b *builder) offered(cat *shape.Catalog, bin *solve.Bin) (zones, types []string) {
	sold := bits.Make(64 * len(bin.Mask))
	for sh := range bin.Shapes.All() {
		sold.Or(cat.Sold[sh])
	}
	sold.And(bin.Mask)
	for at := range sold.All() {
		if at >= len(cat.Offers) {
			break
		}
		labels := cat.Offers[at].Labels
		zones = append(zones, labels[corev1.LabelTopologyZone])
		types = append(types, labels[v1.CapacityTypeLabelKey])
	}
	slices.Sort(zones)
	slices.Sort(types)
	return slices.Compact(zones), slices.Compact(types)
}

// reqsOf returns what the new node's labels may be: what the pool, all pods and the chosen domains allow.
func (b *builder) reqsOf(t *template, bin *solve.Bin) label.Reqs {
	r := t.reqs
	seen := map[int]bool{}
	for _, put := range bin.Puts {
		at := b.problem.Classes[put.Class].Variants[put.Variant].Reqs
		if !seen[at] {
			seen[at] = true
			r = r.And(b.reqs.list[at])
		}
	}
	for k, d := range bin.Domain {
		if d >= 0 && b.problem.Keys[k].Tmpl[bin.Template].Choice != nil {
			r = r.With(b.keys[k].name, label.Only(b.keys[k].values[d]))
		}
	}
	for _, at := range bin.Narrowed.To {
		r = r.And(b.reqs.list[at])
	}
	for _, not := range bin.Narrowed.From {
		r = r.With(b.keys[not.Key].name, label.Except(b.keys[not.Key].values[not.Value]))
	}
	if bin.Held >= 0 {
		for k, v := range t.catalog.shape.Offers[bin.Launch.First.Offer].Labels {
			r = r.With(k, label.Only(v))
		}
	}
	for i, n := range bin.Relaxed {
		m := t.tmpl.Min[i]
		s, _ := r.Get(m.Key)
		s.Min = n
		r = r.Without(m.Key).With(m.Key, s)
	}
	return r
}

func (b *builder) claim(t *template, bin *solve.Bin, o *Opening) *v1.NodeClaim {
	spec := &t.pool.Spec.Template.Spec
	reqs := b.reqsOf(t, bin)
	c := &v1.NodeClaim{}
	c.GenerateName = t.pool.Name + "-"
	c.Labels = b.claimLabels(t, reqs)
	c.Annotations = t.pool.Spec.Template.NodeAnnotations()
	for _, key := range []string{v1.NodePoolHashAnnotationKey, v1.NodePoolHashVersionAnnotationKey, v1.KubeletCompatibilityAnnotationKey} {
		if v, ok := t.pool.Annotations[key]; ok {
			c.Annotations[key] = v
		}
	}
	c.Annotations[v1.NodeClaimMinValuesRelaxedAnnotationKey] = strconv.FormatBool(bin.Relaxed != nil)
	yes := true
	c.OwnerReferences = []metav1.OwnerReference{{APIVersion: v1.GroupVersion.String(), Kind: "NodePool", Name: t.pool.Name, UID: t.pool.UID, BlockOwnerDeletion: &yes}}
	c.Spec = v1.NodeClaimSpec{
		Taints: slices.Clone(spec.Taints), StartupTaints: slices.Clone(spec.StartupTaints), NodeClassRef: spec.NodeClassRef,
		TerminationGracePeriod: spec.TerminationGracePeriod, ExpireAfter: spec.ExpireAfter,
		Requirements: requirements(reqs, o),
	}
	if d := b.in.Settings.DefaultTerminationGracePeriod; d != nil && c.Spec.TerminationGracePeriod == nil {
		c.Spec.TerminationGracePeriod = &metav1.Duration{Duration: *d}
	}
	need := slices.Clone(bin.Used)
	need.Add(bin.Overhead)
	c.Spec.Resources.Requests = b.resourceList(need)
	return c
}

// claimLabels returns the labels that are certain: those of the template, and one value for each custom requirement.
func (b *builder) claimLabels(t *template, reqs label.Reqs) map[string]string {
	out := maps.Clone(t.pool.Spec.Template.Labels)
	if out == nil {
		out = map[string]string{}
	}
	for _, q := range reqs {
		if (t.known.WellKnown(q.Key) || t.catalog.shape.Mentions(q.Key)) && q.Key != v1.NodePoolLabelKey || simulated(q.Key) || q.Key == corev1.LabelHostname {
			continue
		}
		if _, set := out[q.Key]; set {
			continue
		}
		if v, ok := anyValue(q.Set); ok {
			out[q.Key] = v
		}
	}
	return out
}

func simulated(key string) bool {
	return key == v1.NodeRegisteredLabelKey || key == v1.NodeInitializedLabelKey
}

// anyValue returns one value that a set allows, always the same one: the first that is listed, or the smallest integer
// that is not negative.
func anyValue(s label.Set) (string, bool) {
	if !s.Open() {
		if i := slices.IndexFunc(s.Values(), possible); i >= 0 {
			return s.Values()[i], true
		}
		return "", false
	}
	if s.HasAbsent() {
		return "", false
	}
	lo, hi, hasLo, hasHi := s.Bounds()
	n := int64(0)
	switch {
	case hasLo && lo > 0:
		n = lo
	case hasHi && hi < 0:
		return "", false
	}
	for range len(s.Values()) + 1 {
		if v := strconv.FormatInt(n, 10); s.Has(v) {
			return v, true
		}
		if n == math.MaxInt64 {
			break
		}
		n++
	}
	return "", false
}

// requirements writes what the cloud has to satisfy. Types and capacity types are listed as they are offered.
func requirements(reqs label.Reqs, o *Opening) []v1.NodeSelectorRequirementWithMinValues {
	types, _ := reqs.Get(corev1.LabelInstanceTypeStable)
	capacity, _ := reqs.Get(v1.CapacityTypeLabelKey)
	out := make([]v1.NodeSelectorRequirementWithMinValues, 0, len(reqs)+2)
	add := func(key string, op label.Op, values []string, min int) {
		r := v1.NodeSelectorRequirementWithMinValues{Key: key, Operator: corev1.NodeSelectorOperator(op), Values: values}
		if min > 0 {
			r.MinValues = &min
		}
		out = append(out, r)
	}
	for _, q := range reqs {
		if simulated(q.Key) || q.Key == corev1.LabelHostname || q.Key == corev1.LabelInstanceTypeStable || q.Key == v1.CapacityTypeLabelKey {
			continue
		}
		for _, term := range q.Set.Terms() {
			add(q.Key, term.Op, term.Values, term.Min)
		}
	}
	add(v1.CapacityTypeLabelKey, label.In, o.CapacityTypes, capacity.Min)
	add(corev1.LabelInstanceTypeStable, label.In, o.Types, types.Min)
	return out
}

// resourceList writes a vector as Kubernetes writes it, without zeros.
func (b *builder) resourceList(v quantity.Vec) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i, n := range v {
		if n == 0 {
			continue
		}
		name := corev1.ResourceName(b.e.resources.names.Name(i))
		switch name {
		case corev1.ResourceCPU:
			out[name] = *resource.NewMilliQuantity(n, resource.DecimalSI)
		case corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
			out[name] = *resource.NewQuantity(n, resource.BinarySI)
		default:
			out[name] = *resource.NewQuantity(n, resource.DecimalSI)
		}
	}
	return out
}

// solveKey hands a topology key to the problem.
func solveKey(k *topologyKey) solve.Key {
	return solve.Key{Name: k.name, Values: k.values, Node: k.node, Tmpl: k.tmpl}
}
