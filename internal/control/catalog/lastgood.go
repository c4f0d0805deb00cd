package catalog

import (
	"maps"
	"sync"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
	"karpenter.sh/karpenter/api/label"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/rollout"
)

// lastGood puts the state that passed last into pools whose rollout is stopped, where their RolloutPolicy asks for it. A pool is another
// pointer only when it, or its policy, is.
type lastGood struct {
	known *label.Vocabulary // nil: nothing is put back

	mu   sync.Mutex
	made map[string]made // by pool
}

// made is what was made of a pool under a policy.
type made struct {
	of     *v1.NodePool
	policy *v1alpha1.RolloutPolicy // nil if its state was not put back
	out    *v1.NodePool
}

// WithRollouts makes new machines of pools whose rollout is stopped start with the state that passed last, where their RolloutPolicy asks
// for it.
func (s *Service) WithRollouts(known *label.Vocabulary) *Service {
	s.lastGood.known = known
	return s
}

// pools returns the pools as new machines are made from them, by name.
func (l *lastGood) pools(snap *cluster.Snapshot) (out []*v1.NodePool) {
	var of map[string]*rollout.Policy
	if l.known != nil {
		_, of = rollout.Read(snap)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	next := map[string]made{}
	for p := range cluster.Pools.All(snap) {
		m := l.pool(snap, of[p.Name], p)
		if m.out != p {
			next[p.Name] = m
		}
		out = append(out, m.out)
	}
	l.made = next
	return out
}

// pool returns a pool as new machines are made from it. The annotation that carries images to the claims of a stopped pool is taken from
// all others: an author of NodePools may not choose images by it.
func (l *lastGood) pool(snap *cluster.Snapshot, policy *rollout.Policy, p *v1.NodePool) made {
	was := l.made[p.Name]
	if policy != nil {
		if e := policy.Entry(p.Name); policy.GoesBack(snap, p, e) {
			if was.of == p && was.policy == policy.Object {
				return was
			}
			if out, err := rollout.Restore(snap, p, e.LastGood, l.known); err == nil {
				return made{p, policy.Object, out}
			}
		}
	}
	if _, written := p.Annotations[v1.LastGoodImagesAnnotationKey]; !written {
		return made{p, nil, p}
	}
	if was.of == p && was.policy == nil {
		return was
	}
	out := *p
	out.Annotations = maps.Clone(p.Annotations)
	delete(out.Annotations, v1.LastGoodImagesAnnotationKey)
	return made{p, nil, &out}
}
