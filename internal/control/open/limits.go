package open

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
)

// reservation is what a claim that is being created will count against its pool's limits.
type reservation struct {
	pool    string
	largest corev1.ResourceList
}

// admit decides which tasks may go on, against the newest snapshot and everything that is being created at this moment.
// Tasks that may not get an error; for the others a reservation is held until they settle.
func (s *Service) admit(ctx context.Context, tasks []task) {
	s.mu.Lock()
	defer s.mu.Unlock()
	snap := s.store.Snapshot()
	pools, notReady := s.catalogs.Pools(ctx, snap)
	used := map[string]corev1.ResourceList{}
	for i := range tasks {
		t := &tasks[i]
		name := t.opening.Pool
		in, known := pools[name]
		switch {
		case !known:
			t.err = &PoolError{name, "is gone, or its instance types are unknown"}
			continue
		case notReady[name]:
			t.err = &PoolError{name, "is not ready"}
			continue
		case in.Pool.IsStatic():
			t.err = &PoolError{name, "has a fixed number of nodes"}
			continue
		}
		if snap.ClaimNode(t.claim.Name) != nil { // created before; it counts already
			continue
		}
		r := reservation{name, Largest(t.claim, in.Catalog)}
		if len(in.Pool.Spec.Limits) > 0 {
			if used[name] == nil {
				used[name] = s.used(snap, name, in.Catalog)
			}
			add(used[name], r.largest)
			if over := in.Pool.Spec.Limits.Exceeded(used[name]); over != "" {
				subtract(used[name], r.largest)
				t.err = &LimitError{name, over}
				continue
			}
		}
		s.reserved[t.key] = r
	}
}

// used returns what counts against a pool's limits: its machines, and claims that are being created.
func (s *Service) used(snap *cluster.Snapshot, pool string, catalog *cloud.Catalog) corev1.ResourceList {
	out := Used(snap, pool, catalog)
	for _, r := range s.reserved {
		if r.pool == pool {
			add(out, r.largest)
		}
	}
	return out
}

// Used returns what the machines of a pool count against its limits. Machines that are on their way out do not count, so
// that they can be replaced. A claim that is not launched yet counts as the largest machine it may become.
func Used(snap *cluster.Snapshot, pool string, catalog *cloud.Catalog) corev1.ResourceList {
	out := corev1.ResourceList{}
	for n := range snap.Nodes() {
		if n.MarkedForRemoval || n.Incomplete || n.Pool() != pool {
			continue
		}
		if n.Node == nil && len(n.Claim.Status.Capacity) == 0 {
			add(out, Largest(n.Claim, catalog))
			continue
		}
		add(out, n.Capacity())
	}
	return out
}

// Largest returns the most of each resource that a claim's machine may have, and one of "nodes".
func Largest(c *v1.NodeClaim, catalog *cloud.Catalog) corev1.ResourceList {
	allowed := map[string]bool{}
	listed := false
	for i := range c.Spec.Requirements {
		if r := &c.Spec.Requirements[i]; r.Key == corev1.LabelInstanceTypeStable && r.Operator == corev1.NodeSelectorOpIn {
			listed = true
			for _, v := range r.Values {
				allowed[v] = true
			}
		}
	}
	out := corev1.ResourceList{v1.ResourceNodes: *resource.NewQuantity(1, resource.DecimalSI)}
	for _, it := range catalog.Types {
		if listed && !allowed[it.Name] {
			continue
		}
		raise(out, it.Capacity)
		for i := range it.Offerings {
			raise(out, it.Offerings[i].Capacity)
		}
	}
	return out
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
