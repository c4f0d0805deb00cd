package cluster

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"

	"karpenter.sh/karpenter/internal/kit/bounded"
)

// rowKey names a row of the node table. A Node and a claim without Node may have the same name and not be the same machine.
type rowKey struct {
	name  string
	claim bool // a claim whose Node has not come
}

func compareRows(a, b rowKey) int {
	return cmp.Or(strings.Compare(a.name, b.name), compareBools(a.claim, b.claim))
}

func compareBools(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

func (n *Node) key() rowKey { return rowKey{n.Name, n.Node == nil} }

type providerRow struct {
	id    string
	row   rowKey   // the row of the first Node, or of the first claim
	nodes []string // never changed
}

type claimRow struct {
	claim string
	row   rowKey
}

// machines is what node rows are made of: the objects as they came, and what we know besides.
type machines struct {
	nodes   map[string]*corev1.Node
	claims  map[string]*v1.NodeClaim
	csi     map[string]map[string]int // attach limits by node and driver
	bound   map[string][]*Pod         // bound pods by node, sorted; the slices are never changed, only replaced
	byID    map[string]*sameID
	visits  map[string]int      // pods that were bound to each node, but for those of DaemonSets
	removal map[string]struct{} // claims and nodes that we are about to remove
	gone    recent              // claims that were deleted a moment ago
}

// sameID lists the objects that carry one provider ID, sorted: normally one Node and one claim.
type sameID struct{ nodes, claims []string }

func newMachines() machines {
	return machines{
		nodes:   map[string]*corev1.Node{},
		claims:  map[string]*v1.NodeClaim{},
		csi:     map[string]map[string]int{},
		bound:   map[string][]*Pod{},
		byID:    map[string]*sameID{},
		removal: map[string]struct{}{},
		visits:  map[string]int{},
	}
}

// PutNode adds or replaces a Node. A version older than the known one changes nothing, so that the result of
// one's own write may be put without racing with the watch. It is news unless there is nothing in it but a heartbeat.
func (d *Draft) PutNode(n *corev1.Node) (news bool) {
	m := &d.machines
	old := m.nodes[n.Name]
	if older(n, old) {
		return false
	}
	n = d.slimNode(old, bounded.Object(n))
	m.nodes[n.Name] = n
	if old == nil {
		d.link(n.Spec.ProviderID, n.Name, nodesOf)
		return true
	}
	d.relink(old.Spec.ProviderID, n.Spec.ProviderID, n.Name, nodesOf)
	return !onlyBeat(old, n)
}

// onlyBeat reports whether nothing has happened to a Node but a heartbeat.
func onlyBeat(old, n *corev1.Node) bool {
	if old.UID != n.UID || old.Generation != n.Generation || len(old.Status.Conditions) != len(n.Status.Conditions) {
		return false
	}
	before, after := *old, *n
	before.ResourceVersion, before.ManagedFields, before.Status.Conditions = "", nil, nil
	after.ResourceVersion, after.ManagedFields, after.Status.Conditions = "", nil, nil
	for i := range old.Status.Conditions {
		a, b := old.Status.Conditions[i], n.Status.Conditions[i]
		a.LastHeartbeatTime = b.LastHeartbeatTime
		if !equality.Semantic.DeepEqual(a, b) {
			return false
		}
	}
	return equality.Semantic.DeepEqual(before, after)
}

// DeleteNode removes a Node. Its claim, if it has one, stays.
func (d *Draft) DeleteNode(name string) {
	m := &d.machines
	n := m.nodes[name]
	if n == nil {
		return
	}
	delete(m.nodes, name)
	d.dropRow(rowKey{name: name})
	d.unlink(n.Spec.ProviderID, name, nodesOf)
	d.forget(name)
}

// KnowsClaim reports whether the picture has this version of a claim.
func (d *Draft) KnowsClaim(o metav1.Object) bool {
	c := d.machines.claims[o.GetName()]
	return c != nil && c.UID == o.GetUID() && c.ResourceVersion != "" && c.ResourceVersion == o.GetResourceVersion()
}

// PutClaim adds or replaces a NodeClaim. A version older than the known one changes nothing, nor does a claim that has
// been deleted, so that the result of one's own write may be put without racing with the watch. It is news unless it was only stored anew.
func (d *Draft) PutClaim(c *v1.NodeClaim) (news bool) {
	m := &d.machines
	old := m.claims[c.Name]
	if older(c, old) || m.gone.has(c.UID) {
		return false
	}
	if old != nil && old.UID != "" && c.UID != "" && old.UID != c.UID { // the name is used again
		d.DeleteClaim(c.Name)
		old = nil
	}
	c = d.slimClaim(old, bounded.Object(c))
	m.claims[c.Name] = c
	if old == nil {
		d.link(c.Status.ProviderID, c.Name, claimsOf)
		return true
	}
	d.relink(old.Status.ProviderID, c.Status.ProviderID, c.Name, claimsOf)
	return !onlyStored(old, c)
}

// onlyStored reports whether nothing has happened to a claim but that it was stored again unchanged, as after a
// change of the storage version.
func onlyStored(old, c *v1.NodeClaim) bool {
	before, after := *old, *c
	before.ResourceVersion, after.ResourceVersion = "", ""
	return equality.Semantic.DeepEqual(before, after)
}

// DeleteClaim removes a NodeClaim. Its Node, if there is one, stays.
func (d *Draft) DeleteClaim(name string) {
	m := &d.machines
	c := m.claims[name]
	if c == nil {
		return
	}
	delete(m.claims, name)
	m.gone.add(c.UID)
	d.byClaim.delete(name)
	d.dropRow(rowKey{name, true})
	d.unlink(c.Status.ProviderID, name, claimsOf)
	d.forget(name)
}

// older reports whether an object is an earlier version of the known one. Versions of one object are
// numbers that grow.
func older[T interface {
	comparable
	metav1.Object
}](o, known T) bool {
	var none T
	if known == none || o.GetUID() != known.GetUID() {
		return false
	}
	a, err := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	if err != nil {
		return false
	}
	b, err := strconv.ParseUint(known.GetResourceVersion(), 10, 64)
	return err == nil && a < b
}

// recent remembers the last few UIDs that were added.
type recent struct {
	known map[types.UID]struct{}
	ring  [4096]types.UID
	next  int
}

func (r *recent) has(uid types.UID) bool {
	_, ok := r.known[uid]
	return ok
}

func (r *recent) add(uid types.UID) {
	if uid == "" {
		return
	}
	if r.known == nil {
		r.known = map[types.UID]struct{}{}
	}
	delete(r.known, r.ring[r.next])
	r.ring[r.next] = uid
	r.known[uid] = struct{}{}
	r.next = (r.next + 1) % len(r.ring)
}

// forget drops what we knew of a claim or node that is gone, unless an object of the same name remains.
func (d *Draft) forget(name string) {
	m := &d.machines
	if m.nodes[name] != nil || m.claims[name] != nil {
		return
	}
	delete(m.removal, name)
	delete(m.visits, name)
	d.dropSeatsOn(name)
}

// PutCSINode notes which drivers attach volumes to a node, and how many each.
func (d *Draft) PutCSINode(c *storagev1.CSINode) {
	limits := make(map[string]int, len(c.Spec.Drivers))
	for i := range c.Spec.Drivers {
		limit := -1
		if a := c.Spec.Drivers[i].Allocatable; a != nil {
			limit = 0
			if a.Count != nil {
				limit = int(*a.Count)
			}
		}
		limits[c.Spec.Drivers[i].Name] = limit
	}
	d.machines.csi[c.Name] = limits
	d.refreshNode(c.Name)
}

// DeleteCSINode forgets the limits of a node.
func (d *Draft) DeleteCSINode(name string) {
	delete(d.machines.csi, name)
	d.refreshNode(name)
}

// MarkForRemoval notes that we are about to remove a machine, named by its claim or its node. Unknown names are ignored.
func (d *Draft) MarkForRemoval(name string) {
	if d.knows(name) {
		d.machines.removal[name] = struct{}{}
		d.refreshNamed(name)
	}
}

// Unmark takes back MarkForRemoval. Pods that may stay after all lose their seats elsewhere.
func (d *Draft) Unmark(name string) {
	delete(d.machines.removal, name)
	d.refreshNamed(name)
	key := rowKey{name: name}
	if c, ok := d.byClaim.get(name); ok {
		key = c.row
	}
	if row, ok := d.nodes.get(key); ok && !row.MarkedForRemoval {
		for _, p := range row.Pods {
			d.Unplan(p.PodKey)
		}
	}
}

func (d *Draft) knows(name string) bool {
	return d.machines.nodes[name] != nil || d.machines.claims[name] != nil
}

func (d *Draft) refreshNamed(name string) {
	d.refreshNode(name)
	d.refreshClaim(name)
}

func nodesOf(s *sameID) *[]string  { return &s.nodes }
func claimsOf(s *sameID) *[]string { return &s.claims }

// link enters an object under its provider ID and remakes the rows concerned.
func (d *Draft) link(id, name string, side func(*sameID) *[]string) {
	if id == "" {
		d.refreshAlone(name, side)
		return
	}
	m := &d.machines
	if m.byID[id] == nil {
		m.byID[id] = &sameID{}
	}
	names := side(m.byID[id])
	if at, found := slices.BinarySearch(*names, name); !found {
		*names = slices.Insert(*names, at, name)
	}
	d.refreshID(id)
}

// relink enters an object that has changed, perhaps its provider ID too, and remakes the rows concerned.
func (d *Draft) relink(was, id, name string, side func(*sameID) *[]string) {
	if was != id {
		d.unlink(was, name, side)
	}
	d.link(id, name, side)
}

// unlink undoes link. The object itself may be gone already, or be about to appear under another ID.
func (d *Draft) unlink(id, name string, side func(*sameID) *[]string) {
	if id == "" {
		return
	}
	same := d.machines.byID[id]
	names := side(same)
	*names = slices.DeleteFunc(*names, func(s string) bool { return s == name })
	if len(same.nodes)+len(same.claims) == 0 {
		delete(d.machines.byID, id)
		d.byProvider.delete(id)
		return
	}
	d.refreshID(id)
}

func (d *Draft) refreshNode(name string) {
	n := d.machines.nodes[name]
	switch {
	case n == nil:
	case n.Spec.ProviderID != "":
		d.refreshID(n.Spec.ProviderID)
	default:
		d.putRow(n, nil)
	}
}

func (d *Draft) refreshClaim(name string) {
	c := d.machines.claims[name]
	switch {
	case c == nil:
	case c.Status.ProviderID != "":
		d.refreshID(c.Status.ProviderID)
	default:
		d.putRow(nil, c)
	}
}

func (d *Draft) refreshAlone(name string, side func(*sameID) *[]string) {
	var s sameID
	if side(&s) == &s.nodes {
		d.refreshNode(name)
	} else {
		d.refreshClaim(name)
	}
}

// refreshID remakes the rows of all objects with one provider ID. The first Node belongs to the first claim; should there
// be more of either, which is a mistake that others report, each is a row of its own.
func (d *Draft) refreshID(id string) {
	m := &d.machines
	same := m.byID[id]
	for i := range max(len(same.nodes), len(same.claims)) {
		var n *corev1.Node
		var c *v1.NodeClaim
		if i < len(same.nodes) {
			n = m.nodes[same.nodes[i]]
		}
		if i < len(same.claims) {
			c = m.claims[same.claims[i]]
		}
		switch {
		case i == 0 || n == nil || c == nil:
			d.putRow(n, c)
		default:
			d.putRow(n, nil)
			d.putRow(nil, c)
		}
	}
	first := rowKey{claim: true}
	if len(same.nodes) > 0 {
		first = rowKey{name: same.nodes[0]}
	} else {
		first.name = same.claims[0]
	}
	if r, ok := d.byProvider.get(id); !ok || r.row != first || !slices.Equal(r.nodes, same.nodes) {
		d.byProvider.put(providerRow{id, first, slices.Clone(same.nodes)})
	}
}

// putRow makes the row of a Node, a claim, or both.
func (d *Draft) putRow(n *corev1.Node, c *v1.NodeClaim) {
	m := &d.machines
	row := &Node{Node: n, Claim: c}
	names := make([]string, 0, 2)
	if n != nil {
		row.Name, row.ProviderID = n.Name, n.Spec.ProviderID
		row.CSINode, row.Pods, row.Visits = m.csi[n.Name], m.bound[n.Name], m.visits[n.Name]
		row.Incomplete = c == nil && incomplete(n)
		names = append(names, n.Name)
	}
	if c != nil {
		if n == nil {
			row.Name, row.ProviderID = c.Name, c.Status.ProviderID
		}
		names = append(names, c.Name)
	}
	row.MarkedForRemoval = row.Deleting()
	for _, name := range names {
		_, marked := m.removal[name]
		row.MarkedForRemoval = row.MarkedForRemoval || marked
	}
	d.putNodeRow(row)
	if c != nil {
		if n != nil {
			d.dropRow(rowKey{c.Name, true})
		}
		if r, ok := d.byClaim.get(c.Name); !ok || r.row != row.key() {
			d.byClaim.put(claimRow{c.Name, row.key()})
		}
	}
}

// putNodeRow is the only way for a row into the table, and dropRow the only one out of it.
func (d *Draft) putNodeRow(row *Node) {
	if old, replaced := d.nodes.put(row); replaced {
		d.machineSum -= old.sum()
	}
	d.machineSum += row.sum()
}

func (d *Draft) dropRow(key rowKey) {
	if old, ok := d.nodes.delete(key); ok {
		d.machineSum -= old.sum()
	}
}

// incomplete reports whether a Node without claim carries a pool's label but not what would show that it is not just about
// to be joined by its claim.
func incomplete(n *corev1.Node) bool {
	if _, managed := n.Labels[v1.NodePoolLabelKey]; !managed {
		return false
	}
	_, initialized := n.Labels[v1.NodeInitializedLabelKey]
	_, typed := n.Labels[corev1.LabelInstanceTypeStable]
	return n.Spec.ProviderID == "" || !initialized && !typed
}

// setBound replaces the pods of a node.
func (d *Draft) setBound(node string, pods []*Pod) {
	if len(pods) == 0 {
		delete(d.machines.bound, node)
	} else {
		d.machines.bound[node] = pods
	}
	key := rowKey{name: node}
	if old, ok := d.nodes.get(key); ok {
		row := *old
		row.Pods, row.Visits = pods, d.machines.visits[node]
		d.putNodeRow(&row)
	}
}
