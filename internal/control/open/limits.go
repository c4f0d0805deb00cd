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
)

// reservation is what a claim that is being created will count against its pool's limits.
type reservation struct {
	pool    string
	largest corev1.ResourceList
}

// admit decides which tasks may go on, against the newest snapshot and everything that is being created at this moment.
// Tasks that may not get an error; for the others a reservation is held until they settle. gone tells which machines do not count.
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
		pool := snap.Pool(name)
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
		pool, m := snap.Pool(name), machinesOf(pools[name].Catalog)
		if len(pool.Spec.Limits) > 0 {
			if pool.IsStatic() {
				gone = nothing
			}
			r := room{pool: pool, machines: m, used: s.used(snap, name, m, gone)}
			r.share(shares[name])
		}
		for _, t := range shares[name] {
			t.confirmed, t.machines = snap.Revision(), m
			if t.err == nil {
				s.reserved[t.key] = reservation{name, m.largest(t.claim)}
			}
		}
	}
}

// refuse gives up the tasks of a step of which one was refused.
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

// used returns what counts against a pool's limits: its machines, and claims that are being created.
func (s *Service) used(snap *cluster.Snapshot, pool string, m machines, gone func(*cluster.Node) bool) corev1.ResourceList {
	out := used(snap, pool, m, gone)
	for _, r := range s.reserved {
		if r.pool == pool {
			add(out, r.largest)
		}
	}
	return out
}

// leaving machines are being deleted, for good. Their room is free for new pods. Those that a disruption is about to remove count until
// then: if it is taken back, they stay.
func leaving(n *cluster.Node) bool { return n.Deleting() }

// nothing is gone for pools with a fixed number of nodes: they never have more nodes than their limit, not even for a moment.
func nothing(*cluster.Node) bool { return false }

// replaced machines do not count for what replaces them, nor do those of other steps, within the budgets of their pool.
func replaced(claims map[types.UID]bool) func(*cluster.Node) bool {
	return func(n *cluster.Node) bool { return n.MarkedForRemoval || n.Claim != nil && claims[n.Claim.UID] }
}

// used returns what the machines of a pool count against its limits. A claim that is not launched yet counts as the largest machine
// it may become.
func used(snap *cluster.Snapshot, pool string, m machines, gone func(*cluster.Node) bool) corev1.ResourceList {
	out := corev1.ResourceList{}
	for n := range snap.Nodes() {
		if gone(n) || n.Incomplete || n.Pool() != pool {
			continue
		}
		if n.Node == nil && len(n.Claim.Status.Capacity) == 0 {
			add(out, m.largest(n.Claim))
			continue
		}
		add(out, n.Capacity())
	}
	return out
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

// largest returns the most of each resource that a claim's machine may have, and one of "nodes".
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
		raise(out, it.Capacity)
		for i := range it.Offerings {
			raise(out, it.Offerings[i].Capacity)
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

func raise(to, by corev1.ResourceList) {
	for name, q := range by {
		if have, ok := to[name]; !ok || have.Cmp(q) < 0 {
			to[name] = q.DeepCopy()
		}
	}
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
