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

// A providerRow finds the rows of a provider ID.
type providerRow struct {
	id    string
	row   rowKey   // the row of the first Node, or of the first claim
	nodes []string // never changed
}

// A claimRow finds the row of a claim.
type claimRow struct {
	claim string
	row   rowKey
}

// machines is what node rows are made of: Nodes, claims, and what else is known of them. If one of these changes, the rows concerned
// are made anew (refreshID, putRow).
type machines struct {
	rows    *nodeTables // the draft's
	nodes   map[string]*corev1.Node
	claims  map[string]*v1.NodeClaim
	csi     map[string]map[string]int // attach limits by node and driver
	bound   map[string][]*Pod         // bound pods by node, sorted; the slices are never changed, only replaced
	byID    map[string]*sameID        // by provider ID
	visits  map[string]int            // pods that were bound to each node, without those of DaemonSets
	removal map[string]struct{}       // names of claims and nodes that the controller is about to remove
	gone    recent                    // claims that were deleted a moment ago
}

// sameID lists the objects that carry one provider ID, sorted: normally one Node and one claim.
type sameID struct{ nodes, claims []string }

func newMachines(rows *nodeTables) machines {
	return machines{
		rows:    rows,
		nodes:   map[string]*corev1.Node{},
		claims:  map[string]*v1.NodeClaim{},
		csi:     map[string]map[string]int{},
		bound:   map[string][]*Pod{},
		byID:    map[string]*sameID{},
		removal: map[string]struct{}{},
		visits:  map[string]int{},
	}
}

// PutNode adds or replaces a Node. A version older than the known one changes nothing, so a loop may put the result of its own write at
// any time. news is false if nothing but a heartbeat has changed.
func (d *Draft) PutNode(n *corev1.Node) (news bool) {
	m := &d.machines
	old := m.nodes[n.Name]
	if older(n, old) {
		return false
	}
	n = slimNode(d.share, old, bounded.Object(n))
	m.nodes[n.Name] = n
	if old == nil {
		m.link(n.Spec.ProviderID, n.Name, nodesOf)
		return true
	}
	m.relink(old.Spec.ProviderID, n.Spec.ProviderID, n.Name, nodesOf)
	return !onlyBeat(old, n)
}

// onlyBeat reports whether an update changed nothing of a Node but heartbeat times and managed fields.
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
	m.dropRow(rowKey{name: name})
	m.unlink(n.Spec.ProviderID, name, nodesOf)
	d.forget(name)
}

// KnowsClaim reports whether the store has this version of a claim.
func (d *Draft) KnowsClaim(o metav1.Object) bool {
	c := d.machines.claims[o.GetName()]
	return c != nil && c.UID == o.GetUID() && c.ResourceVersion != "" && c.ResourceVersion == o.GetResourceVersion()
}

// PutClaim adds or replaces a NodeClaim. A version older than the known one changes nothing, nor does a claim that was deleted, so a
// loop may put the result of its own write at any time. news is false if nothing but the resource version has changed.
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
	c = slimClaim(d.share, old, bounded.Object(c))
	m.claims[c.Name] = c
	if old == nil {
		m.link(c.Status.ProviderID, c.Name, claimsOf)
		return true
	}
	m.relink(old.Status.ProviderID, c.Status.ProviderID, c.Name, claimsOf)
	return !onlyStored(old, c)
}

// onlyStored reports whether an update changed nothing of a claim but its resource version (a storage migration).
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
	m.dropRow(rowKey{name, true})
	m.unlink(c.Status.ProviderID, name, claimsOf)
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

// add remembers a UID, and forgets the oldest one if there are too many.
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

// forget drops marks, visits and seats of a claim or node that is gone, unless a claim or node of the same name remains.
func (d *Draft) forget(name string) {
	if d.machines.knows(name) {
		return
	}
	delete(d.machines.removal, name)
	delete(d.machines.visits, name)
	d.dropSeatsOn(name)
}

// PutCSINode notes which drivers attach volumes to a node, and how many volumes each may attach: -1 without a limit, 0 if the driver
// names allocatable volumes without a number.
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
	d.machines.refreshNode(c.Name)
}

// DeleteCSINode forgets the limits of a node.
func (d *Draft) DeleteCSINode(name string) {
	delete(d.machines.csi, name)
	d.machines.refreshNode(name)
}

// MarkForRemoval notes that the controller is about to remove a machine, named by its claim or its node. Unknown names are ignored.
func (d *Draft) MarkForRemoval(name string) {
	if d.machines.knows(name) {
		d.machines.removal[name] = struct{}{}
		d.machines.refreshNamed(name)
	}
}

// Unmark undoes MarkForRemoval. The pods of the machine lose their seats elsewhere, because they stay.
func (d *Draft) Unmark(name string) {
	delete(d.machines.removal, name)
	d.machines.refreshNamed(name)
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

func (m *machines) knows(name string) bool {
	return m.nodes[name] != nil || m.claims[name] != nil
}

// refreshNamed makes the rows of the Node and of the claim of a name anew, after something in them changed. Unknown names are ignored.
func (m *machines) refreshNamed(name string) {
	m.refreshNode(name)
	m.refreshClaim(name)
}

// nodesOf and claimsOf choose the list of a sameID that an object belongs to (side, below).
func nodesOf(s *sameID) *[]string  { return &s.nodes }
func claimsOf(s *sameID) *[]string { return &s.claims }

// link adds an object to the list of its provider ID, and makes the rows concerned anew. side is nodesOf or claimsOf.
func (m *machines) link(id, name string, side func(*sameID) *[]string) {
	if id == "" {
		m.refreshAlone(name, side)
		return
	}
	if m.byID[id] == nil {
		m.byID[id] = &sameID{}
	}
	names := side(m.byID[id])
	if at, found := slices.BinarySearch(*names, name); !found {
		*names = slices.Insert(*names, at, name)
	}
	m.refreshID(id)
}

// relink is link for an object that has changed; was is the provider ID that it had.
func (m *machines) relink(was, id, name string, side func(*sameID) *[]string) {
	if was != id {
		m.unlink(was, name, side)
	}
	m.link(id, name, side)
}

// unlink takes an object off the list of its provider ID, and makes the rows of the others with that ID anew. The object's own row is up to
// the caller: the object may be gone already, or be about to appear under another ID.
func (m *machines) unlink(id, name string, side func(*sameID) *[]string) {
	if id == "" {
		return
	}
	same := m.byID[id]
	names := side(same)
	*names = slices.DeleteFunc(*names, func(s string) bool { return s == name })
	if len(same.nodes)+len(same.claims) == 0 {
		delete(m.byID, id)
		m.rows.byProvider.delete(id)
		return
	}
	m.refreshID(id)
}

// refreshNode makes the row of a Node anew, together with those of all objects with its provider ID.
func (m *machines) refreshNode(name string) {
	n := m.nodes[name]
	switch {
	case n == nil:
	case n.Spec.ProviderID != "":
		m.refreshID(n.Spec.ProviderID)
	default:
		m.putRow(n, nil)
	}
}

// refreshClaim does for a claim what refreshNode does for a Node.
func (m *machines) refreshClaim(name string) {
	c := m.claims[name]
	switch {
	case c == nil:
	case c.Status.ProviderID != "":
		m.refreshID(c.Status.ProviderID)
	default:
		m.putRow(nil, c)
	}
}

// refreshAlone makes the row of an object without provider ID anew: a Node for nodesOf, a claim for claimsOf.
func (m *machines) refreshAlone(name string, side func(*sameID) *[]string) {
	var s sameID
	if side(&s) == &s.nodes {
		m.refreshNode(name)
	} else {
		m.refreshClaim(name)
	}
}

// refreshID makes the rows of all objects with one provider ID anew. The first Node and the first claim make one row. Further Nodes and
// claims, which are a mistake that loops report, have rows of their own.
func (m *machines) refreshID(id string) {
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
			m.putRow(n, c)
		default:
			m.putRow(n, nil)
			m.putRow(nil, c)
		}
	}
	first := rowKey{claim: true}
	if len(same.nodes) > 0 {
		first = rowKey{name: same.nodes[0]}
	} else {
		first.name = same.claims[0]
	}
	if r, ok := m.rows.byProvider.get(id); !ok || r.row != first || !slices.Equal(r.nodes, same.nodes) {
		m.rows.byProvider.put(providerRow{id, first, slices.Clone(same.nodes)})
	}
}

// putRow makes the row of a Node, a claim, or both.
func (m *machines) putRow(n *corev1.Node, c *v1.NodeClaim) {
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
	m.putNodeRow(row)
	if c != nil {
		if n != nil {
			m.dropRow(rowKey{c.Name, true})
		}
		if r, ok := m.rows.byClaim.get(c.Name); !ok || r.row != row.key() {
			m.rows.byClaim.put(claimRow{c.Name, row.key()})
		}
	}
}

// putNodeRow is the only way for a row into the table, and dropRow the only one out of it.
func (m *machines) putNodeRow(row *Node) {
	if old, replaced := m.rows.nodes.put(row); replaced {
		m.rows.machineSum -= old.sum()
	}
	m.rows.machineSum += row.sum()
}

func (m *machines) dropRow(key rowKey) {
	if old, ok := m.rows.nodes.delete(key); ok {
		m.rows.machineSum -= old.sum()
	}
}

// incomplete reports whether a Node without a claim may be the Node of a claim that exists: it has the label of a pool, but no provider
// ID, or no sign that it was registered before.
func incomplete(n *corev1.Node) bool {
	if _, managed := n.Labels[v1.NodePoolLabelKey]; !managed {
		return false
	}
	_, initialized := n.Labels[v1.NodeInitializedLabelKey]
	_, typed := n.Labels[corev1.LabelInstanceTypeStable]
	return n.Spec.ProviderID == "" || !initialized && !typed
}

// setBound replaces the pods of a node, and updates the pods and the visits of its row.
func (m *machines) setBound(node string, pods []*Pod) {
	if len(pods) == 0 {
		delete(m.bound, node)
	} else {
		m.bound[node] = pods
	}
	key := rowKey{name: node}
	if old, ok := m.rows.nodes.get(key); ok {
		row := *old
		row.Pods, row.Visits = pods, m.visits[node]
		m.putNodeRow(&row)
	}
}
