package lower

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/cluster/podclass"
	"karpenter.sh/karpenter/internal/cluster/seat"
	"karpenter.sh/karpenter/internal/core/label"
	"karpenter.sh/karpenter/internal/core/reason"
	"karpenter.sh/karpenter/internal/core/rule/devices"
	"karpenter.sh/karpenter/internal/core/work"
)

// Selects reports whether a selector of a device class or a claim takes a device of a driver. It gives the same
// answer for the same question. Of an attribute that the device does not have it says so with a
// selectorerr.MissingKey, and with a selectorerr.Unusable that no device should be asked about.
type Selects func(expression, driver string, d *resourcev1.Device) (bool, error)

// A deviceDesk answers what the pods of one question have to do with devices. It is made when the first of them asks.
type deviceDesk struct {
	*builder
	effort     *devices.Effort
	generated  map[ownClaim]*resourcev1.ResourceClaim // by the pod that they were made for
	claims     map[claimKey]*claim
	list       []*claim
	kinds      []*deviceKind
	numbers    map[*deviceKind]int
	publishers []string // drivers, by number
	published  *published
	values     map[string]int32            // of attributes, in constraints
	useless    map[string]*devices.Refusal // selectors, and why
	batch      map[cluster.PodKey]bool     // made when first needed
	nodesHave  [][]*inventory              // by bin: what it may turn out to have
	shapes     [][]*inventory              // by template and shape, nil for one without
	// What claims were told of kinds of devices, and how many selectors had to be asked for it.
	told, evaluated int
}

// A claim is what a resource claim, or all claims of a template, ask for.
type claim struct {
	devices.Claim
	spec     *resourcev1.ResourceClaimSpec
	bad      reason.Count
	released []int // bins where it is allocated, but for no pod

	namespace string
}

// A claimKey says which claims are one.
type claimKey struct {
	as              claimKind
	namespace, name string
}

type claimKind byte

const (
	byName     claimKind = iota
	ofTemplate           // all that are made from one
	ownLeft              // made from a template that is gone
	following            // by name, for pods that may come to a place that is kept for them
)

// An ownClaim names the claim that was made from a template for a pod.
type ownClaim struct {
	pod  types.UID
	name string
}

// deviceDesk returns the desk.
func (b *builder) deviceDesk() *deviceDesk {
	if b.devices == nil {
		d := &deviceDesk{builder: b, effort: &devices.Effort{}, generated: map[ownClaim]*resourcev1.ResourceClaim{},
			claims: map[claimKey]*claim{}, numbers: map[*deviceKind]int{}, values: map[string]int32{},
			useless: map[string]*devices.Refusal{}}
		for c := range b.in.Snap.ResourceClaims() {
			name := c.Annotations[resourcev1.PodResourceClaimAnnotation]
			for _, o := range c.OwnerReferences {
				if name != "" && o.Kind == "Pod" {
					d.generated[ownClaim{o.UID, name}] = c
				}
			}
		}
		b.devices = d
	}
	return b.devices
}

// alone reports whether a pod is a question of its own for what was made for it.
func (d *deviceDesk) alone(p *cluster.Pod) bool {
	return slices.ContainsFunc(p.Class.Spec.ResourceClaims, func(r corev1.PodResourceClaim) bool {
		own := d.own(p, &r)
		return own != nil && (d.pinned(p, own) || d.in.Snap.ResourceClaimTemplate(p.Namespace, *r.ResourceClaimTemplateName) == nil)
	})
}

// own is the claim that was made for a pod from a template; nil if there is none yet.
func (d *deviceDesk) own(p *cluster.Pod, r *corev1.PodResourceClaim) *resourcev1.ResourceClaim {
	if r.ResourceClaimTemplateName == nil || p.UID == "" {
		return nil
	}
	return d.generated[ownClaim{p.UID, r.Name}]
}

// pinned reports whether the own claim of a pod is allocated for it: a bound pod gets another with its next life.
func (d *deviceDesk) pinned(p *cluster.Pod, own *resourcev1.ResourceClaim) bool {
	return own.Status.Allocation != nil && p.NodeName == ""
}

// deviceNeeds is what the resource claims of a cohort ask for.
type deviceNeeds struct {
	claims []*devices.Claim
	alone  bool // the cohort is one pod, for the sake of a claim of its own
}

// readDevices resolves the claims of all cohorts, once it is known which nodes there are.
func (b *builder) readDevices() {
	for _, c := range b.cohorts {
		if !c.info.devices {
			continue
		}
		d := b.deviceDesk()
		claims, alts, bad := d.claimsOf(c.pods[0], c.info)
		for _, a := range alts {
			c.volumes.alternatives = cross(c.volumes.alternatives, a)
		}
		for _, alt := range c.volumes.alternatives {
			b.mem.learn(alt, b.chosen)
		}
		c.devices.claims = claims
		if bad.Code != 0 {
			for _, p := range c.pods {
				b.refuse(p, []reason.Count{bad})
			}
			c.pods = nil
		}
	}
	if b.devices != nil {
		b.devices.readAll()
	}
	b.cohorts = slices.DeleteFunc(b.cohorts, func(c *cohort) bool { return len(c.pods) == 0 })
}

// readAll finds all devices that there are and may be, and what claims make of them.
func (d *deviceDesk) readAll() {
	d.published = d.readSlices()
	for i := range d.nodes {
		d.nodesHave = append(d.nodesHave, d.inventoriesOf(i))
	}
	d.readShapes()
	d.fillAll()
	d.refuseFar()
}

const (
	// defaultClaims is how much work the claims of waiting pods may cause before places are looked for, mostClaim
	// one of them: there may be as many kinds of devices as devices, and an author of claims can ask hundreds of
	// things about each.
	defaultClaims = work.Second
	mostClaim     = work.Second / 2

	fitWork    = 300 // of what an option makes of a kind, when all selectors have been asked before
	selectWork = 5000
)

// cost is what claims have cost so far.
func (d *deviceDesk) cost() work.Units { return work.Units(d.told*fitWork + d.evaluated*selectWork) }

// fillAll says what claims make of devices. Namespaces take turns, those first whose pods were left out most often,
// until it is too much for one plan.
func (d *deviceDesk) fillAll() {
	leftOut := map[*devices.Claim]int{}
	for _, co := range d.cohorts {
		for _, p := range co.pods {
			for _, c := range co.devices.claims {
				leftOut[c] = max(leftOut[c], d.in.LeftOut[p.PodKey])
			}
		}
	}
	turns := map[*claim]int{}
	next := map[string]int{}
	order := slices.Clone(d.list)
	slices.SortStableFunc(order, func(a, b *claim) int { return cmp.Compare(leftOut[&b.Claim], leftOut[&a.Claim]) })
	for _, c := range order {
		turns[c] = next[c.namespace]
		next[c.namespace]++
	}
	slices.SortStableFunc(order, func(a, b *claim) int { return cmp.Compare(turns[a], turns[b]) })
	for _, c := range order {
		if d.cost() > defaultClaims && c.bad.Code == 0 {
			c.bad = reason.Count{Code: reason.Postponed}
		}
		d.fill(c)
	}
}

// claimsOf returns what the claims of a pod ask for, where claims that are allocated already let it be, and why it cannot be planned for.
func (d *deviceDesk) claimsOf(p *cluster.Pod, info *podInfo) (out []*devices.Claim, places [][]label.Reqs, bad reason.Count) {
	if len(info.class.Spec.ResourceClaims) == 0 {
		return nil, nil, badClaim("", reason.NotListed, "")
	}
	for i := range info.class.Spec.ResourceClaims {
		c, place, bad := d.claimOf(p, &info.class.Spec.ResourceClaims[i])
		if bad.Code != 0 {
			return nil, nil, bad
		}
		if c != nil {
			out = append(out, &c.Claim)
		}
		if place != nil {
			places = append(places, place)
		}
	}
	return out, places, reason.Count{}
}

func (d *deviceDesk) claimOf(p *cluster.Pod, r *corev1.PodResourceClaim) (*claim, []label.Reqs, reason.Count) {
	snap := d.in.Snap
	switch {
	case r.ResourceClaimName != nil:
		made := snap.ResourceClaim(p.Namespace, *r.ResourceClaimName)
		switch {
		case made == nil:
			return nil, nil, badClaim(*r.ResourceClaimName, reason.Missing, "")
		case made.DeletionTimestamp != nil:
			return nil, nil, badClaim(made.Name, reason.Leaving, "")
		}
		return d.named(made)
	case r.ResourceClaimTemplateName == nil:
		return nil, nil, badClaim(r.Name, reason.NamesNothing, "")
	}
	own := d.own(p, r)
	if own != nil && d.pinned(p, own) {
		return d.named(own)
	}
	tmpl := snap.ResourceClaimTemplate(p.Namespace, *r.ResourceClaimTemplateName)
	switch {
	case tmpl != nil:
		return d.fresh(claimKey{ofTemplate, tmpl.Namespace, tmpl.Name}, r.Name, &tmpl.Spec.Spec, false)
	case own != nil && p.NodeName == "":
		return d.fresh(claimKey{ownLeft, own.Namespace, own.Name}, r.Name, &own.Spec, false)
	}
	return nil, nil, badClaim(r.Name, reason.TemplateMissing, *r.ResourceClaimTemplateName)
}

// fresh is a claim that is still to be allocated.
func (d *deviceDesk) fresh(key claimKey, name string, spec *resourcev1.ResourceClaimSpec, shared bool) (*claim,
	[]label.Reqs, reason.Count) {
	c := d.claims[key]
	if c == nil {
		c = &claim{spec: spec, namespace: key.namespace, Claim: devices.Claim{ID: len(d.list), Name: name,
			Shared: shared, At: devices.Nowhere}}
		d.claims[key] = c
		d.list = append(d.list, c)
		c.bad = d.understand(c)
	}
	return c, nil, c.bad
}

// named is a claim that several pods may use. Once it is allocated its pods go where its devices are, unless everybody for whom it was
// allocated is gone or leaves: then it may stay there, and may as well be allocated anew.
func (d *deviceDesk) named(made *resourcev1.ResourceClaim) (*claim, []label.Reqs, reason.Count) {
	key := claimKey{byName, made.Namespace, made.Name}
	if made.Status.Allocation == nil {
		return d.fresh(key, made.Name, &made.Spec, true)
	}
	node, terms, bad := d.placeOf(made)
	if bad.Code != 0 {
		return nil, nil, bad
	}
	if node == "" {
		return nil, terms, reason.Count{}
	}
	bin, there := d.binOf[node]
	there = there && !d.gone[bin]
	if d.released(made) {
		c, _, bad := d.fresh(key, made.Name, &made.Spec, true)
		if there && len(c.released) == 0 {
			c.released = append(c.released, bin)
		}
		return c, nil, bad
	}
	if !there {
		return nil, nil, badClaim(made.Name, reason.InUseElsewhere, node)
	}
	c := d.claims[key]
	if c == nil {
		c = &claim{spec: &made.Spec, Claim: devices.Claim{ID: len(d.list), Name: made.Name, Shared: true, At: bin}}
		d.claims[key] = c
		d.list = append(d.list, c)
	}
	return c, nil, reason.Count{}
}

func badClaim(name string, flaw reason.Flaw, about string) reason.Count {
	return reason.Count{Code: reason.DeviceInvalid, Key: name, Flaw: flaw, Detail: about}
}

// placeOf says where an allocated claim may be used: on one node, where labels say so, or anywhere.
func (d *deviceDesk) placeOf(made *resourcev1.ResourceClaim) (node string, terms []label.Reqs, bad reason.Count) {
	s := made.Status.Allocation.NodeSelector
	if s == nil {
		return "", nil, reason.Count{}
	}
	for _, t := range s.NodeSelectorTerms {
		for _, f := range t.MatchFields {
			if f.Key != "metadata.name" || f.Operator != corev1.NodeSelectorOpIn || len(f.Values) != 1 || len(s.NodeSelectorTerms) != 1 {
				return "", nil, badClaim(made.Name, reason.PlaceUnknown, "")
			}
			return f.Values[0], nil, reason.Count{}
		}
		r, _ := expressions(d.mem.known, t.MatchExpressions) // what makes no sense no node says
		terms = append(terms, r)
	}
	return "", merged(terms), reason.Count{}
}

// released reports whether no pod keeps an allocated claim where it is: all pods for which it is reserved are gone, or leave their node.
func (d *deviceDesk) released(made *resourcev1.ResourceClaim) bool {
	return d.releasedBy(made, func(p *cluster.Pod) bool { return d.asked(p.PodKey) || d.moves(p) })
}

// releasedBy is released for those of whom it is said that they leave.
func (d *deviceDesk) releasedBy(made *resourcev1.ResourceClaim, leaves func(*cluster.Pod) bool) bool {
	return !slices.ContainsFunc(made.Status.ReservedFor, func(by resourcev1.ResourceClaimConsumerReference) bool {
		if by.APIGroup != "" || by.Resource != "pods" {
			return true
		}
		p := d.in.Snap.Pod(cluster.PodKey{Namespace: made.Namespace, Name: by.Name})
		return p != nil && p.UID == by.UID && !p.Terminal() && (p.NodeName == "" || !leaves(p))
	})
}

// follows reports whether an allocated claim may come along with pods for which places are kept: as long as they
// have not left, it is where it is for everybody else.
func (d *deviceDesk) follows(made *resourcev1.ResourceClaim) bool {
	node, _, bad := d.placeOf(made)
	return node != "" && bad.Code == 0 && !d.released(made) && d.releasedBy(made, func(p *cluster.Pod) bool {
		return d.asked(p.PodKey) || d.moves(p) || slices.ContainsFunc(d.kept, func(e expected) bool { return e.pod.PodKey == p.PodKey })
	})
}

// moves reports whether a pod that is bound has its room on another node already: it leaves what it has.
func (d *deviceDesk) moves(p *cluster.Pod) bool {
	s, ok := d.in.Snap.Planned(p.PodKey)
	return ok && p.NodeName != "" && seat.Kept(d.in.Snap, s, d.in.Now) && d.in.Snap.Target(s.Target).Name != p.NodeName
}

// makeDevices writes what every node has for those who ask, and what every machine would bring.
func (b *builder) makeDevices() {
	d := b.devices
	if d == nil {
		return
	}
	for i, list := range d.nodesHave {
		for _, inv := range list {
			b.problem.Nodes[i].Devices = append(b.problem.Nodes[i].Devices, d.stateOf(inv))
		}
	}
	d.makeShapes()
	for _, c := range d.list {
		if c.At != devices.Nowhere {
			d.hold(c, c.At)
		}
		for _, bin := range c.released {
			d.hold(c, bin)
		}
	}
	d.promise()
	b.problem.Devices = d.effort
}

func (d *deviceDesk) hold(c *claim, bin int) {
	for _, s := range d.problem.Nodes[bin].Devices {
		s.Hold(&c.Claim)
	}
}

// promise takes from nodes what pods get there that are bound, expected or have a place kept, and whose claims are not allocated yet, and
// what daemons take.
func (d *deviceDesk) promise() {
	for i, n := range d.nodes {
		for _, p := range n.claimants {
			d.give(i, p, p.Class)
		}
		for _, at := range n.coming {
			d.giveDaemon(d.problem.Nodes[i].Devices, &d.mem.daemons[at])
		}
	}
	for e := range d.comers() {
		bin, ok := d.binOf[e.target]
		if !ok || !usesDevices(e.info.class.Spec) {
			continue
		}
		p := e.pod
		if p == nil {
			p = &cluster.Pod{Class: e.info.class}
		}
		d.give(bin, p, e.info.class)
	}
}

// asked reports whether a pod is planned for now.
func (d *deviceDesk) asked(key cluster.PodKey) bool {
	if d.batch == nil {
		d.batch = make(map[cluster.PodKey]bool, len(d.in.Pods))
		for _, p := range d.in.Pods {
			d.batch[p.PodKey] = true
		}
	}
	return d.batch[key]
}

// give lets a pod that is not planned for now have its devices on a node.
func (d *deviceDesk) give(bin int, p *cluster.Pod, class *podclass.Class) {
	if d.asked(p.PodKey) {
		return
	}
	var claims []*devices.Claim
	at, bound := d.binOf[p.NodeName]
	comes := p.NodeName != "" && !(bound && at == bin)
	for i := range class.Spec.ResourceClaims {
		r := &class.Spec.ResourceClaims[i]
		if own := d.own(p, r); own != nil && own.Status.Allocation != nil && !comes {
			continue // the node is without its devices already
		}
		c := d.known(p.Namespace, r, comes)
		switch {
		case c == nil:
			continue
		case c.bad.Code != 0: // it was too much to find out what it makes of devices
			d.problem.Nodes[bin].Devices = nil
			return
		}
		claims = append(claims, &c.Claim)
		if c.Shared && c.At == devices.Nowhere {
			c.At = bin
		}
	}
	d.giveAll(bin, claims)
}

// known is the claim that a reference of a pod names, if it can be allocated and is not yet, or is to be allocated
// anew as its pods come from elsewhere.
func (d *deviceDesk) known(namespace string, r *corev1.PodResourceClaim, comes bool) *claim {
	var made *resourcev1.ResourceClaim
	if r.ResourceClaimName != nil {
		made = d.in.Snap.ResourceClaim(namespace, *r.ResourceClaimName)
		if made == nil || made.Status.Allocation != nil && !comes {
			return nil
		}
	}
	before := len(d.list)
	var c *claim
	var bad reason.Count
	if made != nil && made.Status.Allocation != nil && d.follows(made) {
		c, _, bad = d.fresh(claimKey{following, made.Namespace, made.Name}, made.Name, &made.Spec, true)
	} else {
		c, _, bad = d.claimOf(&cluster.Pod{PodKey: cluster.PodKey{Namespace: namespace}}, r)
	}
	if len(d.list) > before {
		d.fill(d.list[before])
	}
	if bad.Code != 0 {
		return nil
	}
	return c
}

func (d *deviceDesk) giveAll(bin int, claims []*devices.Claim) {
	if len(claims) == 0 {
		return
	}
	if next, no := devices.All(d.problem.Nodes[bin].Devices, claims); no == nil {
		d.problem.Nodes[bin].Devices = next
	} else {
		d.problem.Nodes[bin].Devices = nil // it is not known which it gets
	}
}

// giveDaemon lets the pod of a DaemonSet have its devices. One for which there are none does not come.
func (d *deviceDesk) giveDaemon(at []*devices.State, set *daemon) {
	if !set.info.devices {
		return
	}
	var claims []*devices.Claim
	for i := range set.info.class.Spec.ResourceClaims {
		if c := d.known(set.set.Namespace, &set.info.class.Spec.ResourceClaims[i], false); c != nil && c.bad.Code == 0 && !c.Shared {
			claims = append(claims, &c.Claim)
		}
	}
	if len(claims) == 0 {
		return
	}
	if next, no := devices.All(at, claims); no == nil {
		copy(at, next)
	}
}

// refuseFar refuses pods that might get devices which are not of one node: who else gets those is not planned.
func (d *deviceDesk) refuseFar() {
	for _, c := range d.list {
		if c.At != devices.Nowhere {
			continue
		}
		for _, far := range d.published.far {
			if c.bad.Code == 0 && d.mayTake(c, d.numbers[far.kind]) {
				c.bad = badClaim(c.Name, reason.OfSeveralNodes, far.name)
			}
		}
	}
	for _, co := range d.cohorts {
		for _, k := range co.devices.claims {
			if bad := d.list[k.ID].bad; bad.Code != 0 {
				d.turnAway(co, bad)
				break
			}
		}
	}
}

// turnAway refuses the pods of a cohort. Those that are left for another plan keep the places that they have.
func (d *deviceDesk) turnAway(co *cohort, bad reason.Count) {
	for _, p := range co.pods {
		if bad.Code == reason.Postponed {
			d.postpone(p)
		} else {
			d.refuse(p, []reason.Count{bad})
		}
	}
	co.pods = nil
}

func (d *deviceDesk) mayTake(c *claim, kind int) bool {
	return slices.ContainsFunc(c.Requests, func(r devices.Request) bool {
		return slices.ContainsFunc(r.Options, func(o devices.Option) bool { return o.Fits[kind].Selected || o.Fits[kind].Bad != nil })
	})
}

// qualified is a name with its domain, which is the driver's where none is written.
func qualified(driver string, name resourcev1.QualifiedName) string {
	if strings.Contains(string(name), "/") {
		return string(name)
	}
	return driver + "/" + string(name)
}
