package devices

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/cluster/podclass"
	"karpenter.sh/karpenter/internal/cluster/seat"
	"karpenter.sh/karpenter/internal/core/reason"
	"karpenter.sh/karpenter/internal/core/rule/devices"
	"karpenter.sh/karpenter/internal/core/work"
)

// Selects reports whether a selector of a device class or a claim takes a device of a driver. Equal arguments have equal results. The
// error is a selectorerr.MissingKey if the device lacks an attribute, and a selectorerr.Unusable if the selector fails for every device.
type Selects func(expression, driver string, d *resourcev1.Device) (bool, error)

// An Input is what the devices of a question depend on.
type Input struct {
	Snap      *cluster.Snapshot
	Memory    *Memory
	Generated Generated
	Selects   Selects
	Now       time.Time
	Pods      []*cluster.Pod   // all that are planned for now
	Groups    [][]*cluster.Pod // equal pods that use resource claims
	LeftOut   map[cluster.PodKey]int
	Kept      map[cluster.PodKey]bool // pods for which a place is kept
	Nodes     []Node                  // by bin
	Bins      map[string]int          // by node name
	Templates [][]Machine             // by template and shape
	Daemons   []Daemon
}

// A Node is a bin.
type Node struct {
	Name        string
	Initialized bool
	Gone        bool
	Types       []*cloud.InstanceType // that a node of Karpenter may turn out to be
	Claimants   []*cluster.Pod        // pods with resource claims that are bound to it
	Daemons     []int                 // DaemonSets whose pods will still come
}

// A Machine is what a template may buy.
type Machine struct {
	Type    *cloud.InstanceType // nil if it brings no devices
	Daemons []int               // DaemonSets that run on it
}

// A Daemon is a DaemonSet.
type Daemon struct {
	Namespace string
	Class     *podclass.Class // of its pods
}

// An Expected pod is not part of the question and has its room on a node.
type Expected struct {
	Pod   *cluster.Pod // nil where the seat is vacant
	Class *podclass.Class
	Bin   int
}

// Needs are what the resource claims of a group of equal pods ask for.
type Needs struct {
	Claims []*devices.Claim
	Places [][]corev1.NodeSelectorTerm // one term of each list has to hold
	Bad    reason.Count                // why the group cannot be planned; Code 0 if it can
}

// Uses reports whether pods use resource claims.
func Uses(spec *corev1.PodSpec) bool {
	claims := func(c corev1.Container) bool { return len(c.Resources.Claims) > 0 }
	return len(spec.ResourceClaims) > 0 || slices.ContainsFunc(spec.Containers, claims) || slices.ContainsFunc(spec.InitContainers, claims)
}

// A Model is the devices that nodes and machines have, and the resource claims of one question, as numbers. Read makes it, Place
// completes it.
type Model struct {
	Effort  *devices.Effort
	Drivers []string // that publish devices, by number

	in        Input
	batch     map[cluster.PodKey]bool // pods that are planned for now
	claims    map[claimKey]*claim
	list      []*claim
	kinds     []*kind
	numbers   map[*kind]int
	published *published
	values    map[string]int32            // of attributes, in constraints
	useless   map[string]*devices.Refusal // selectors, and why
	onNodes   [][]*inventory              // by bin: what the node may turn out to have
	onShapes  [][]*inventory              // by template and shape, nil for a machine without devices
	states    [][]*devices.State          // by bin: onNodes without what is allocated
	// How often an option was compared with a kind of device, and how many selectors had to be evaluated for it.
	compared, evaluated int
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

// Generated is the resource claims that were made from templates, by the pod that they were made for.
type Generated map[ownClaim]*resourcev1.ResourceClaim

// ReadGenerated lists the generated claims of a snapshot.
func ReadGenerated(snap *cluster.Snapshot) Generated {
	out := Generated{}
	for c := range cluster.ResourceClaims.All(snap) {
		name := c.Annotations[resourcev1.PodResourceClaimAnnotation]
		for _, o := range c.OwnerReferences {
			if name != "" && o.Kind == "Pod" {
				out[ownClaim{o.UID, name}] = c
			}
		}
	}
	return out
}

// Alone reports whether a pod differs from all others because a claim was made for it.
func (g Generated) Alone(snap *cluster.Snapshot, p *cluster.Pod) bool {
	return slices.ContainsFunc(p.Class.Spec.ResourceClaims, func(r corev1.PodResourceClaim) bool {
		own := g.own(p, &r)
		return own != nil && (pinned(p, own) || cluster.ClaimTemplates.Get(snap, p.Namespace, *r.ResourceClaimTemplateName) == nil)
	})
}

// own is the claim that was made for a pod from a template; nil if there is none yet.
func (g Generated) own(p *cluster.Pod, r *corev1.PodResourceClaim) *resourcev1.ResourceClaim {
	if r.ResourceClaimTemplateName == nil || p.UID == "" {
		return nil
	}
	return g[ownClaim{p.UID, r.Name}]
}

// pinned reports whether the own claim of a pod is allocated for it: a bound pod gets another with its next life.
func pinned(p *cluster.Pod, own *resourcev1.ResourceClaim) bool {
	return own.Status.Allocation != nil && p.NodeName == ""
}

// Read numbers the devices of nodes and machines, and what the claims of each group of pods make of them.
func Read(in Input) (*Model, []Needs) {
	d := &Model{Effort: &devices.Effort{}, in: in, batch: make(map[cluster.PodKey]bool, len(in.Pods)), claims: map[claimKey]*claim{},
		numbers: map[*kind]int{}, values: map[string]int32{}, useless: map[string]*devices.Refusal{}}
	for _, p := range in.Pods {
		d.batch[p.PodKey] = true
	}
	needs := make([]Needs, len(in.Groups))
	for i, pods := range in.Groups {
		needs[i] = d.claimsOf(pods[0])
	}
	d.published = d.readSlices()
	for i := range in.Nodes {
		d.onNodes = append(d.onNodes, d.inventoriesOf(&in.Nodes[i]))
	}
	d.readShapes()
	d.fillAll(needs)
	d.refuseFar(needs)
	return d, needs
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
func (d *Model) cost() work.Units { return work.Units(d.compared*fitWork + d.evaluated*selectWork) }

// fillAll compares claims with devices, until that is too much for one plan. Namespaces take turns, and claims whose pods were left
// out most often come first.
func (d *Model) fillAll(needs []Needs) {
	leftOut := map[*devices.Claim]int{}
	for i, pods := range d.in.Groups {
		for _, p := range pods {
			for _, c := range needs[i].Claims {
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

// claimsOf returns what the claims of a pod ask for, where those that are allocated already allow it to run, and why no plan can place it.
func (d *Model) claimsOf(p *cluster.Pod) Needs {
	refs := p.Class.Spec.ResourceClaims
	if len(refs) == 0 {
		return Needs{Bad: badClaim("", reason.NotListed, "")}
	}
	var out Needs
	for i := range refs {
		c, place, bad := d.claimOf(p, &refs[i])
		if bad.Code != 0 {
			return Needs{Bad: bad}
		}
		if c != nil {
			out.Claims = append(out.Claims, &c.Claim)
		}
		if len(place) > 0 {
			out.Places = append(out.Places, place)
		}
	}
	return out
}

func (d *Model) claimOf(p *cluster.Pod, r *corev1.PodResourceClaim) (*claim, []corev1.NodeSelectorTerm, reason.Count) {
	snap := d.in.Snap
	switch {
	case r.ResourceClaimName != nil:
		made := cluster.ResourceClaims.Get(snap, p.Namespace, *r.ResourceClaimName)
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
	own := d.in.Generated.own(p, r)
	if own != nil && pinned(p, own) {
		return d.named(own)
	}
	tmpl := cluster.ClaimTemplates.Get(snap, p.Namespace, *r.ResourceClaimTemplateName)
	switch {
	case tmpl != nil:
		return d.fresh(claimKey{ofTemplate, tmpl.Namespace, tmpl.Name}, r.Name, &tmpl.Spec.Spec, false)
	case own != nil && p.NodeName == "":
		return d.fresh(claimKey{ownLeft, own.Namespace, own.Name}, r.Name, &own.Spec, false)
	}
	return nil, nil, badClaim(r.Name, reason.TemplateMissing, *r.ResourceClaimTemplateName)
}

// fresh is a claim that is still to be allocated.
func (d *Model) fresh(key claimKey, name string, spec *resourcev1.ResourceClaimSpec, shared bool) (*claim,
	[]corev1.NodeSelectorTerm, reason.Count) {
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
func (d *Model) named(made *resourcev1.ResourceClaim) (*claim, []corev1.NodeSelectorTerm, reason.Count) {
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
	bin, there := d.in.Bins[node]
	there = there && !d.in.Nodes[bin].Gone
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

// placeOf returns where an allocated claim may be used: on one node, on nodes that meet one of the terms, or anywhere.
func (d *Model) placeOf(made *resourcev1.ResourceClaim) (node string, terms []corev1.NodeSelectorTerm, bad reason.Count) {
	s := made.Status.Allocation.NodeSelector
	if s == nil {
		return "", nil, reason.Count{}
	}
	for _, t := range s.NodeSelectorTerms {
		if len(t.MatchFields) > 0 {
			f := &t.MatchFields[0]
			if f.Key != "metadata.name" || f.Operator != corev1.NodeSelectorOpIn || len(f.Values) != 1 || len(s.NodeSelectorTerms) != 1 {
				return "", nil, badClaim(made.Name, reason.PlaceUnknown, "")
			}
			return f.Values[0], nil, reason.Count{}
		}
	}
	return "", s.NodeSelectorTerms, reason.Count{}
}

// released reports whether no pod keeps an allocated claim where it is: all pods for which it is reserved are gone, or leave their node.
func (d *Model) released(made *resourcev1.ResourceClaim) bool {
	return d.releasedBy(made, func(p *cluster.Pod) bool { return d.batch[p.PodKey] || d.moves(p) })
}

// releasedBy is released for those of whom it is said that they leave.
func (d *Model) releasedBy(made *resourcev1.ResourceClaim, leaves func(*cluster.Pod) bool) bool {
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
func (d *Model) follows(made *resourcev1.ResourceClaim) bool {
	node, _, bad := d.placeOf(made)
	return node != "" && bad.Code == 0 && !d.released(made) && d.releasedBy(made, func(p *cluster.Pod) bool {
		return d.batch[p.PodKey] || d.moves(p) || d.in.Kept[p.PodKey]
	})
}

// moves reports whether a pod that is bound has its room on another node already: it leaves what it has.
func (d *Model) moves(p *cluster.Pod) bool {
	s, ok := d.in.Snap.Planned(p.PodKey)
	return ok && p.NodeName != "" && seat.Kept(d.in.Snap, s, d.in.Now) && d.in.Snap.Target(s.Target).Name != p.NodeName
}

// Place returns the devices that are left of each node, and those of each template by shape, once every pod that is not planned for now
// has what its claims ask for.
func (d *Model) Place(coming []Expected) (nodes, templates [][]*devices.State) {
	d.states = make([][]*devices.State, len(d.onNodes))
	for i, list := range d.onNodes {
		for _, inv := range list {
			d.states[i] = append(d.states[i], d.stateOf(inv))
		}
	}
	templates = d.shapeStates()
	for _, c := range d.list {
		if c.At != devices.Nowhere {
			d.hold(c, c.At)
		}
		for _, bin := range c.released {
			d.hold(c, bin)
		}
	}
	d.promise(coming)
	return d.states, templates
}

func (d *Model) hold(c *claim, bin int) {
	for _, s := range d.states[bin] {
		s.Hold(&c.Claim)
	}
}

// promise takes from nodes what pods get there that are bound, expected or have a place kept, and whose claims are not allocated yet, and
// what daemons take.
func (d *Model) promise(coming []Expected) {
	for i := range d.in.Nodes {
		n := &d.in.Nodes[i]
		for _, p := range n.Claimants {
			d.give(i, p, p.Class)
		}
		for _, at := range n.Daemons {
			d.giveDaemon(d.states[i], &d.in.Daemons[at])
		}
	}
	for _, c := range coming {
		p := c.Pod
		if p == nil {
			p = &cluster.Pod{Class: c.Class}
		}
		d.give(c.Bin, p, c.Class)
	}
}

// give lets a pod that is not planned for now have its devices on a node.
func (d *Model) give(bin int, p *cluster.Pod, class *podclass.Class) {
	if d.batch[p.PodKey] {
		return
	}
	var claims []*devices.Claim
	at, bound := d.in.Bins[p.NodeName]
	comes := p.NodeName != "" && !(bound && at == bin)
	for i := range class.Spec.ResourceClaims {
		r := &class.Spec.ResourceClaims[i]
		if own := d.in.Generated.own(p, r); own != nil && own.Status.Allocation != nil && !comes {
			continue // the node is without its devices already
		}
		c := d.known(p.Namespace, r, comes)
		switch {
		case c == nil:
			continue
		case c.bad.Code != 0: // it was too much to find out what it makes of devices
			d.states[bin] = nil
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
func (d *Model) known(namespace string, r *corev1.PodResourceClaim, comes bool) *claim {
	var made *resourcev1.ResourceClaim
	if r.ResourceClaimName != nil {
		made = cluster.ResourceClaims.Get(d.in.Snap, namespace, *r.ResourceClaimName)
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

func (d *Model) giveAll(bin int, claims []*devices.Claim) {
	if len(claims) == 0 {
		return
	}
	if next, no := devices.All(d.states[bin], claims); no == nil {
		d.states[bin] = next
	} else {
		d.states[bin] = nil // it is not known which it gets
	}
}

// giveDaemon lets the pod of a DaemonSet have its devices. One for which there are none does not come.
func (d *Model) giveDaemon(at []*devices.State, set *Daemon) {
	var claims []*devices.Claim
	for i := range set.Class.Spec.ResourceClaims {
		if c := d.known(set.Namespace, &set.Class.Spec.ResourceClaims[i], false); c != nil && c.bad.Code == 0 && !c.Shared {
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
func (d *Model) refuseFar(needs []Needs) {
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
	for i := range needs {
		for _, k := range needs[i].Claims {
			if bad := d.list[k.ID].bad; bad.Code != 0 {
				needs[i].Bad = bad
				break
			}
		}
	}
}

func (d *Model) mayTake(c *claim, kind int) bool {
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
