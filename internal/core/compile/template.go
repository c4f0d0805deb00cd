package compile

import (
	"maps"
	"math"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	apilabel "karpenter.sh/karpenter/api/label"
	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/label"
	"karpenter.sh/karpenter/internal/core/need"
	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/quantity"
	"karpenter.sh/karpenter/internal/core/reason"
	"karpenter.sh/karpenter/internal/core/rule/ports"
	"karpenter.sh/karpenter/internal/core/shape"
	"karpenter.sh/karpenter/internal/kit/identity"
)

// A template is what a pool's new nodes are like, before any pod. It is made once for each version of pool, catalogue
// and daemons.
type template struct {
	known      *apilabel.Vocabulary
	pool       *v1.NodePool
	catalog    *catalog
	version    int // of the daemons
	learned    int // learnedFor when it was made: with more values it is made again
	reqs       label.Reqs
	part       label.Reqs // requirements of this part of the pool; see daemonParts
	tmpl       problem.Template
	openLabels []openLabel
	ports      [][]ports.Port           // host ports by daemon group (tmpl.Daemons)
	daemons    [][]int                  // by daemon group: indexes in Memory.daemons
	matches    map[string]problem.Match // cached answers of match, by identity of the requirements
	none       reason.Count             // why no type is left; Code 0 if some is
	taints     []corev1.Taint
	used       uint64 // the last turn that asked for it
}

// An openLabel is a label that neither instance type nor offering decides: it is chosen for each node.
type openLabel struct {
	key    string
	values []string // mentioned by the pool or by pods
	from   int      // first bit; then one bit for each value, one for all others, one for absence
}

// templateOf returns the template of a part of a pool, from the cache if daemons and the known values of its open labels did not change.
func (m *Memory) templateOf(p Pool, part label.Reqs, in *Input) *template {
	cat := m.catalogOf(p, in)
	key := templateKey{p.Pool, cat, in.Terms, part.Key()}
	t := m.templates[key]
	if t != nil && t.version == m.daemonVersion && t.learned == m.learnedFor(t) {
		t.used = m.turn
		if len(t.matches) > mostMatches {
			clear(t.matches)
		}
		return t
	}
	t = &template{known: m.known, pool: p.Pool, catalog: cat, part: part, version: m.daemonVersion,
		matches: map[string]problem.Match{}, used: m.turn}
	t.taints = p.Pool.Spec.Template.Spec.Taints
	t.reqs = m.poolReqs(p.Pool)
	m.fillTemplate(t)
	t.tmpl.Reprice()
	m.templates[key] = t
	return t
}

// mostMatches is how many answers of a template are remembered from one question to the next.
const mostMatches = 20_000

type templateKey struct {
	pool    *v1.NodePool
	catalog *catalog
	terms   problem.Terms
	part    string // identity of template.part
}

// poolReqs returns the requirements on labels of a pool's nodes: those of its template, and the labels that each of its nodes gets.
func (m *Memory) poolReqs(pool *v1.NodePool) label.Reqs {
	spec := &pool.Spec.Template.Spec
	list := []label.Req{{Key: v1.NodePoolLabelKey, Set: label.Only(pool.Name)},
		{Key: v1.NodeRegisteredLabelKey, Set: label.Only("true")}, {Key: v1.NodeInitializedLabelKey, Set: label.Only("true")}}
	for i := range spec.Requirements {
		q := &spec.Requirements[i]
		list = append(list, label.Req{Key: m.known.Normalize(q.Key), Set: need.Set(q)})
	}
	for k, v := range pool.NodeLabels() {
		list = append(list, label.Req{Key: m.known.Normalize(k), Set: label.Only(v)})
	}
	if ref := spec.NodeClassRef; ref != nil {
		list = append(list, label.Req{Key: v1.NodeClassLabelKey(ref.GroupKind()), Set: label.Only(ref.Name)})
	}
	return label.Of(list)
}

// fillTemplate works out a template: its open labels, the mask with a segment for the offers and one for each open label, the shapes that
// are left, minValues and daemons. If no shape is left, t.none is why.
func (m *Memory) fillTemplate(t *template) {
	cat := t.catalog.shape
	t.tmpl = problem.Template{Name: t.pool.Name, Catalog: cat, Shapes: bits.Full(cat.Len())}
	m.findOpenLabels(t)
	width := len(cat.Offers)
	t.tmpl.Segments = []problem.Segment{{From: 0, To: width}}
	for i := range t.openLabels {
		t.openLabels[i].from = width
		width += len(t.openLabels[i].values) + 2
		t.tmpl.Segments = append(t.tmpl.Segments, problem.Segment{From: t.openLabels[i].from, To: width})
	}
	t.tmpl.Mask = bits.Full(width)
	for _, q := range t.reqs {
		cat.Shapes(q.Key, q.Set, t.tmpl.Shapes)
		cat.Admit(q.Key, q.Set, t.tmpl.Mask)
		if q.Set.Min > 0 {
			t.tmpl.Min = append(t.tmpl.Min, shape.MinValues{Key: q.Key, N: q.Set.Min})
		}
		if q.Set.Empty() {
			t.none = reason.Count{Code: reason.LabelMismatch, Key: q.Key, Pool: t.pool.Name}
		}
	}
	for i := range t.openLabels {
		s, _ := t.reqs.Get(t.openLabels[i].key)
		t.openLabels[i].narrow(s, t.tmpl.Mask)
		if s, ok := t.part.Get(t.openLabels[i].key); ok {
			t.openLabels[i].narrow(s, t.tmpl.Mask)
		}
	}
	m.maskShapes(t)
	m.countDollars(t)
	t.tmpl.Soft = slices.ContainsFunc(t.taints, func(x corev1.Taint) bool { return x.Effect == corev1.TaintEffectPreferNoSchedule })
	m.addDaemons(t)
	if t.none.Code == 0 && !t.tmpl.Shapes.Any() {
		key, with := t.blame()
		t.none = reason.Count{Code: reason.NoTypes, Key: key, Detail: with, Pool: t.pool.Name, Candidates: len(t.catalog.from.Types)}
	}
}

// findOpenLabels finds the labels that are chosen for each node: those for which the pool allows several values and no type decides, and
// those of which a type has several values and that pods mention.
func (m *Memory) findOpenLabels(t *template) {
	cat := t.catalog.shape
	for _, q := range t.reqs {
		if !chosenPerNode(cat, q.Key, q.Set) {
			continue
		}
		part, _ := t.part.Get(q.Key)
		t.openLabels = append(t.openLabels, openLabel{key: q.Key, values: m.valuesFor(q.Key, q.Set, part)})
	}
	for _, key := range t.catalog.multiValued {
		if len(m.asked[key]) == 0 {
			continue // not asked for
		}
		s, _ := t.reqs.Get(key)
		var values []string
		for _, v := range cat.Values(key) {
			if s.Has(v) {
				values = append(values, v)
			}
		}
		if len(values) > 1 {
			t.openLabels = append(t.openLabels, openLabel{key: key, values: values})
		}
	}
	t.learned = m.learnedFor(t)
}

// valuesFor returns the values of an open label that get a bit of their own, sorted: those that the pool (s), its part or pods mention, and
// the value that a claim gets if no pod asks. It includes the bounds of Gt and Lt, of the pool and of pods, and their neighbours: then two
// sets of bounds have a value in common only if a listed value meets both.
func (m *Memory) valuesFor(key string, s, part label.Set) []string {
	out := slices.Concat(s.Values(), part.Values())
	out = append(out, boundsOf(s)...)
	if v, ok := AnyValue(s); ok {
		out = append(out, v)
	}
	out = slices.AppendSeq(out, maps.Keys(m.asked[key]))
	slices.Sort(out)
	return slices.DeleteFunc(slices.Compact(out), func(v string) bool { return !possible(v) })
}

// boundsOf returns the bounds of a set, and for each the next integer towards the other.
func boundsOf(s label.Set) []string {
	lo, hi, hasLo, hasHi := s.Bounds()
	var out []string
	if hasLo && lo != math.MaxInt64 {
		out = append(out, strconv.FormatInt(lo, 10), strconv.FormatInt(lo+1, 10))
	}
	if hasHi && hi != math.MinInt64 {
		out = append(out, strconv.FormatInt(hi, 10), strconv.FormatInt(hi-1, 10))
	}
	return out
}

// learnedFor counts the values that pods have mentioned so far for labels that may be open labels of a template.
func (m *Memory) learnedFor(t *template) int {
	n := 0
	for _, q := range t.reqs {
		if !t.catalog.shape.Mentions(q.Key) {
			n += len(m.asked[q.Key])
		}
	}
	for _, key := range t.catalog.multiValued {
		n += len(m.asked[key])
	}
	return n
}

// narrow takes out of mask the bits of the label's values that s does not allow. The bit of all other values stays only if s allows any
// value without bounds, and the bit of absence only if s allows the label to be absent.
func (f *openLabel) narrow(s label.Set, mask bits.Set) {
	for i, v := range f.values {
		if !s.Has(v) {
			mask.Remove(f.from + i)
		}
	}
	_, _, lo, hi := s.Bounds()
	if !s.Open() || lo || hi {
		mask.Remove(f.from + len(f.values))
	}
	if !s.HasAbsent() {
		mask.Remove(f.from + len(f.values) + 1)
	}
}

// maskShapes works out the choices that each shape has, and drops shapes that have none.
func (m *Memory) maskShapes(t *template) {
	cat := t.catalog.shape
	width := len(t.tmpl.Mask)
	t.tmpl.ShapeMask = make([]bits.Set, cat.Len())
	t.tmpl.Room = make([]quantity.Vec, cat.Len())
	slab := make(bits.Set, width*cat.Len())
	for s := range cat.Len() {
		t.tmpl.Room[s] = cat.Alloc[s]
		if !t.tmpl.Shapes.Has(s) {
			continue
		}
		mask := slab[s*width : (s+1)*width : (s+1)*width]
		copy(mask, t.tmpl.Mask)
		for o := range cat.Offers {
			if !cat.Sold[s].Has(o) {
				mask.Remove(o)
			}
		}
		for i := range t.openLabels {
			if set, says := cat.TypeLabel(s, t.openLabels[i].key); says {
				t.openLabels[i].narrow(set, mask)
			}
		}
		if !t.tmpl.SellsAny(mask) {
			t.tmpl.Shapes.Remove(s)
			continue
		}
		t.tmpl.ShapeMask[s] = mask
	}
}

// A running is a daemon that starts on some new nodes of a template.
type running struct {
	daemon int          // index
	on     bits.Set     // the shapes
	takes  quantity.Vec // of each node
}

// runningOn returns the daemons that start on new nodes of a template.
func (m *Memory) runningOn(t *template) (out []running) {
	cat := t.catalog.shape
	for i := range m.daemons {
		d := &m.daemons[i]
		if d.ignored() || !toleratesAll(d.info.tolerances, t.taints, true) {
			continue
		}
		on := bits.Make(cat.Len())
		for _, r := range d.info.terms {
			if m := t.match(r); m.OK {
				on.Or(t.sellsUnder(&m))
			}
		}
		most := make(quantity.Vec, m.resources.names.Len())
		for s := range on.All() {
			most.Max(cat.Alloc[s])
		}
		takes := atMost(d.info.need, most)
		for s := range on.All() {
			if takes.Fits(cat.Alloc[s]) {
				out = append(out, running{daemon: i, on: on, takes: takes})
				break
			}
		}
	}
	return out
}

// addDaemons takes the needs of daemons off the room of each shape. Shapes on which the same daemons start form a daemon group;
// t.ports and t.daemons are by group, like tmpl.Daemons. The groups get their Ports for each problem (makeTemplates). Without daemons there
// is no group, and DaemonOf is nil.
func (m *Memory) addDaemons(t *template) {
	cat := t.catalog.shape
	daemons := m.runningOn(t)
	if len(daemons) == 0 {
		return
	}
	t.tmpl.DaemonOf = make([]int32, cat.Len())
	groups := map[string]int32{}
	var key []byte
	for s := range cat.Len() {
		key = key[:0]
		for i := range daemons {
			key = identity.Flag(key, daemons[i].on.Has(s))
		}
		g, ok := groups[string(key)]
		if !ok {
			g = int32(len(t.tmpl.Daemons))
			groups[string(key)] = g
			overhead := make(quantity.Vec, m.resources.names.Len())
			var taken []ports.Port
			var indexes []int
			for i := range daemons {
				if r := &daemons[i]; r.on.Has(s) {
					overhead.Add(r.takes)
					taken = append(taken, m.daemons[r.daemon].info.ports...)
					indexes = append(indexes, r.daemon)
				}
			}
			t.tmpl.Daemons = append(t.tmpl.Daemons, problem.DaemonGroup{Overhead: overhead})
			t.ports, t.daemons = append(t.ports, taken), append(t.daemons, indexes)
		}
		t.tmpl.DaemonOf[s] = g
		room := slices.Clone(cat.Alloc[s])
		room.Sub(t.tmpl.Daemons[g].Overhead)
		t.tmpl.Room[s] = room
	}
}

// sellsUnder returns the shapes of the template that a match leaves and that can be bought with the choices it leaves.
func (t *template) sellsUnder(m *problem.Match) bits.Set {
	out := t.tmpl.Shapes.Clone()
	out.Keep(m.Shapes)
	if m.Mask == nil {
		return out
	}
	both := bits.Make(64 * len(t.tmpl.Mask))
	out.Only(func(sh int) bool {
		copy(both, t.tmpl.ShapeMask[sh])
		both.And(m.Mask)
		return t.tmpl.SellsAny(both)
	})
	return out
}

// match returns what requirements leave of the template's shapes and choices, or the label because of which they leave nothing.
func (t *template) match(r label.Reqs) problem.Match {
	cat := t.catalog.shape
	m := problem.Match{OK: true}
	for _, q := range r {
		if q.Key == corev1.LabelHostname {
			if !q.Set.Open() { // the name of a node that does not exist is not known
				return problem.Match{Code: reason.LabelMismatch, Key: q.Key}
			}
			continue
		}
		s, defined := t.reqs.Get(q.Key)
		if !defined && !cat.Mentions(q.Key) {
			s = label.Absent() // well-known or not, no node gets it
		}
		if !q.Set.Meets(s) {
			code := reason.Code(reason.LabelMismatch)
			if !defined && !q.Set.Empty() && !t.known.WellKnown(q.Key) {
				code = reason.LabelUnknown
			}
			return problem.Match{Code: code, Key: q.Key}
		}
		if cat.Mentions(q.Key) {
			if m.Shapes == nil {
				m.Shapes = t.tmpl.Shapes.Clone()
			}
			cat.Shapes(q.Key, q.Set, m.Shapes)
			if !m.Shapes.Any() {
				return problem.Match{Code: reason.LabelMismatch, Key: q.Key}
			}
		}
		if cat.Decides(q.Key) || t.isOpenLabel(q.Key) {
			if m.Mask == nil {
				m.Mask = t.tmpl.Mask.Clone()
			}
			cat.Admit(q.Key, q.Set, m.Mask)
			for i := range t.openLabels {
				if t.openLabels[i].key == q.Key {
					t.openLabels[i].narrow(q.Set, m.Mask)
				}
			}
			if !t.tmpl.SellsAny(m.Mask) {
				return problem.Match{Code: reason.LabelMismatch, Key: q.Key}
			}
		}
	}
	return m
}

func (t *template) isOpenLabel(key string) bool {
	return slices.ContainsFunc(t.openLabels, func(f openLabel) bool { return f.key == key })
}

// matchOf returns match(r), cached under key, the identity of r.
func (t *template) matchOf(r label.Reqs, key string) problem.Match {
	m, ok := t.matches[key]
	if !ok {
		m = t.match(r)
		t.matches[key] = m
	}
	return m
}

// keyOf returns how new nodes of the template get their domain of a topology key. number returns the number of a value. asked is from
// askedFor: what pods of this batch ask for, if a pool leaves the label open.
func (t *template) keyOf(key string, asked []string, number func(string) int32) problem.KeyOf {
	cat := t.catalog.shape
	set, defined := t.reqs.Get(key)
	switch {
	case cat.Decides(key):
		return t.offerDomains(key, set, number)
	case t.isOpenLabel(key):
		return t.openLabelDomains(key, asked, number)
	case cat.Mentions(key):
		k := problem.KeyOf{Kind: problem.ByShape, Shape: make([]int32, cat.Len())}
		for s := range k.Shape {
			k.Shape[s] = -1
			if has, says := cat.TypeLabel(s, key); says {
				if v, single := has.Intersect(set).Single(); single {
					k.Shape[s] = number(v)
				}
			}
		}
		return k
	}
	if v, single := set.Single(); defined && single {
		return problem.KeyOf{Kind: problem.Fixed, Domain: number(v)}
	}
	return problem.KeyOf{}
}

// offerDomains handles keys that the offering decides, such as the zone.
func (t *template) offerDomains(key string, set label.Set, number func(string) int32) problem.KeyOf {
	k := problem.KeyOf{Kind: problem.ByChoice}
	cat := t.catalog.shape
	at := func(v string) bits.Set {
		n := int(number(v))
		for len(k.Choice) <= n {
			k.Choice = append(k.Choice, nil)
		}
		if k.Choice[n] == nil {
			k.Choice[n] = bits.Full(64 * len(t.tmpl.Mask))
			for o := range cat.Offers {
				k.Choice[n].Remove(o)
			}
		}
		return k.Choice[n]
	}
	for _, v := range cat.Values(key) { // domains exist whether or not anything can be bought there
		if set.Has(v) {
			at(v)
		}
	}
	for o := range cat.Offers {
		if v, ok := cat.Offers[o].Labels[key]; ok && set.Has(v) {
			at(v).Add(o)
		}
	}
	return k
}

// opens reports whether the pool leaves a label open: no list says which values its nodes may have.
func (t *template) opens(key string) bool {
	set, _ := t.reqs.Get(key)
	return set.Open() && t.isOpenLabel(key) && !t.catalog.shape.Mentions(key)
}

// openLabelDomains handles labels that are chosen for each node. If the pool lists the values, they are the domains. If it leaves the label
// open, the domains are the value that a claim gets if its pods ask for none, and the values that pods ask for.
func (t *template) openLabelDomains(key string, asked []string, number func(string) int32) problem.KeyOf {
	f := &t.openLabels[slices.IndexFunc(t.openLabels, func(f openLabel) bool { return f.key == key })]
	set, _ := t.reqs.Get(key)
	values, unasked := f.values[:min(len(f.values), mostDomains)], ""
	k := problem.KeyOf{Kind: problem.ByChoice}
	if t.opens(key) {
		values = asked
		if v, ok := AnyValue(set); ok {
			values, unasked = append(slices.Clone(asked), v), v
		}
		if set.HasAbsent() {
			k.None = t.only(f, f.from+len(f.values)+1)
		}
	}
	for _, v := range values {
		bit := f.from + len(f.values) // of all others
		if i, mentioned := slices.BinarySearch(f.values, v); mentioned {
			bit = f.from + i
		}
		if !set.Has(v) || !t.tmpl.Mask.Has(bit) {
			continue
		}
		n := int(number(v))
		for len(k.Choice) <= n {
			k.Choice = append(k.Choice, nil)
		}
		k.Choice[n] = t.only(f, bit)
		if t.opens(key) && v != unasked {
			k.Asked = k.Asked.Grow(n)
			k.Asked.Add(n)
		}
	}
	return k
}

// only returns all choices, but for label f only the given bit.
func (t *template) only(f *openLabel, bit int) bits.Set {
	mask := bits.Full(64 * len(t.tmpl.Mask))
	for b := f.from; b < f.from+len(f.values)+2; b++ {
		if b != bit {
			mask.Remove(b)
		}
	}
	return mask
}

// learn remembers which values pods mention for labels that are chosen for each node, and the bounds that they set.
func (m *Memory) learn(r label.Reqs, chosen map[string]bool) {
	for _, q := range r {
		if !chosen[q.Key] {
			continue
		}
		known := m.asked[q.Key]
		if known == nil {
			known = map[string]bool{}
			m.asked[q.Key] = known
		}
		for _, v := range append(boundsOf(q.Set), q.Set.Values()...) {
			known[v] = true
		}
	}
}

// chosenKeys returns the labels that could be chosen for each node of some pool.
func (m *Memory) chosenKeys(in Input) map[string]bool {
	out := map[string]bool{}
	for _, p := range in.Pools {
		for _, q := range p.Pool.Spec.Template.Spec.Requirements {
			out[m.known.Normalize(q.Key)] = true
		}
		for _, key := range m.catalogOf(p, &in).multiValued {
			out[key] = true
		}
	}
	return out
}

// AnyValue returns one value that a set allows, always the same one: the first that is listed, or for an open set the smallest integer that
// is not negative. It returns false if there is none, or if an open set also allows the label to be absent.
func AnyValue(s label.Set) (string, bool) {
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
