package open

import (
	"context"
	"errors"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/overlay"
	"karpenter.sh/karpenter/internal/core/quota"
)

// reservation is what a claim that is being created counts against the limits of its pool.
type reservation struct {
	pool           string
	largest, least corev1.ResourceList // capacity of the largest and of the smallest machine that the claim may become
	claim          *v1.NodeClaim       // to count it against quotas
}

// admit decides which tasks may go on, by the newest snapshot and the claims that are being created at this moment. It sets the error of
// tasks that may not, because of their pool, its limits or quotas. For the others it cuts the types of their claims to what limits leave,
// and makes a reservation until settle. gone reports which machines do not count against limits.
func (s *Service) admit(ctx context.Context, tasks []task, gone func(*cluster.Node) bool) {
	pools, notReady := s.catalogs.Pools(ctx, s.store.Snapshot()) // perhaps the cloud is asked, which others need not wait for
	s.mu.Lock()
	defer s.mu.Unlock()
	snap := s.store.Snapshot()
	shares := map[string][]*task{}
	for i := range tasks {
		t := &tasks[i]
		name := t.opening.Pool
		_, known := pools[name]
		pool := cluster.Pools.Get(snap, name)
		switch {
		case !known || pool == nil:
			t.err = &PoolError{name, "is gone, or its instance types are unknown"}
		case notReady[name] || pool.DeletionTimestamp != nil:
			t.err = &PoolError{name, "is not ready"}
		case pool.IsStatic() && !t.opening.Static:
			t.err = &PoolError{name, "has a fixed number of nodes"}
		case t.opening.Static && !pool.IsStatic():
			t.err = &PoolError{name, "has no fixed number of nodes"}
		case snap.ClaimNode(t.claim.Name) != nil: // created before; it counts already
		default:
			shares[name] = append(shares[name], t)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(shares)) {
		for _, t := range shares[name] {
			annotate(t.claim, overlay.Marks(pools[name].Catalog, overlay.Options{Types: t.opening.Types,
				Zones: t.opening.Zones, CapacityTypes: t.opening.CapacityTypes}))
		}
		if pool := cluster.Pools.Get(snap, name); len(pool.Spec.Limits) > 0 {
			r := poolRoom(pool, machinesOf(pools[name].Catalog))
			goneNow := gone
			if pool.IsStatic() {
				goneNow = noneGone
			}
			s.count(&r, snap, goneNow)
			r.share(shares[name])
		}
	}
	s.shareQuotas(snap, pools, shares, gone)
	for _, name := range slices.Sorted(maps.Keys(shares)) {
		m := machinesOf(pools[name].Catalog)
		r := poolRoom(cluster.Pools.Get(snap, name), m)
		for _, t := range shares[name] {
			t.confirmed, t.machines = snap.Revision(), m
			if t.err == nil {
				s.reserved[t.key] = reservation{name, m.largest(t.claim), r.least(t.claim), t.claim}
			}
		}
	}
}

// refuse returns the errors of a step's tasks, and if there are any gives back the reservations of all of them: no claim is created then.
func (s *Service) refuse(tasks []task) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for i := range tasks {
		errs = append(errs, tasks[i].err)
	}
	err := errors.Join(errs...)
	if err != nil {
		for i := range tasks {
			delete(s.reserved, tasks[i].key)
		}
	}
	return err
}

// count sets what counts against the limits of a room's pool: its machines that are not gone, and claims that are being created. A claim
// that has not been launched counts as its largest machine in used, and as its smallest in sure.
func (s *Service) count(r *room, snap *cluster.Snapshot, gone func(*cluster.Node) bool) {
	r.used, r.sure = corev1.ResourceList{}, corev1.ResourceList{}
	for n := range snap.Nodes() {
		if gone(n) || n.Incomplete || n.Pool() != r.pool {
			continue
		}
		if n.Node == nil && len(n.Claim.Status.Capacity) == 0 {
			add(r.used, r.largest(n.Claim))
			add(r.sure, r.least(n.Claim))
			continue
		}
		add(r.used, n.Capacity())
		add(r.sure, n.Capacity())
	}
	for _, created := range s.reserved {
		if created.pool == r.pool {
			add(r.used, created.largest)
			add(r.sure, created.least)
		}
	}
}

// leaving reports whether a machine is being deleted: it does not count against limits any more. A machine that a disruption is about to
// remove does count, because it stays if the disruption is taken back.
func leaving(n *cluster.Node) bool { return n.Deleting() }

// noneGone counts all machines. Pools with a fixed number of nodes never have more nodes than their limit, not even for a moment.
func noneGone(*cluster.Node) bool { return false }

// replaced returns a function that reports whether a machine is replaced by a step, this one (claims) or another one. Such machines do
// not count against limits when their replacements are created.
func replaced(claims map[types.UID]bool) func(*cluster.Node) bool {
	return func(n *cluster.Node) bool { return n.MarkedForRemoval || n.Claim != nil && claims[n.Claim.UID] }
}

// machines are the instance types of a pool, by name.
type machines map[string]*cloud.InstanceType

func machinesOf(catalog *cloud.Catalog) machines {
	m := make(machines, len(catalog.Types))
	for _, it := range catalog.Types {
		m[it.Name] = it
	}
	return m
}

// largest returns the most of each resource that a claim's machine may have, and 1 of the resource "nodes".
func (m machines) largest(c *v1.NodeClaim) corev1.ResourceList {
	if listed := typesOf(c); listed != nil {
		return m.most(listed.Values)
	}
	return m.most(slices.Collect(maps.Keys(m)))
}

// most is the same for a list of types.
func (m machines) most(names []string) corev1.ResourceList {
	out := corev1.ResourceList{v1.ResourceNodes: *resource.NewQuantity(1, resource.DecimalSI)}
	for _, name := range names {
		it := m[name]
		if it == nil {
			continue
		}
		quota.Raise(out, it.Capacity)
		for i := range it.Offerings {
			quota.Raise(out, it.Offerings[i].Capacity)
		}
	}
	return out
}

// typesOf returns the requirement in which a claim lists instance types, nil if it lists none.
func typesOf(c *v1.NodeClaim) *v1.NodeSelectorRequirementWithMinValues {
	for i := range c.Spec.Requirements {
		if r := &c.Spec.Requirements[i]; r.Key == corev1.LabelInstanceTypeStable && r.Operator == corev1.NodeSelectorOpIn {
			return r
		}
	}
	return nil
}

func add(to, more corev1.ResourceList) {
	for name, q := range more {
		sum := to[name]
		sum.Add(q)
		to[name] = sum
	}
}

func subtract(from, less corev1.ResourceList) {
	for name, q := range less {
		rest := from[name]
		rest.Sub(q)
		from[name] = rest
	}
}
