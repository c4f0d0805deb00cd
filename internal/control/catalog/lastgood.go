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

// lastGood puts the state that passed last into pools whose rollout is stopped, if their RolloutPolicy has onFailure LastGood. It caches
// the changed copies, so that a pool has the same pointer until the pool or its policy changes: others compare pools by pointer.
type lastGood struct {
	known *label.Vocabulary // nil: nothing is put back

	mu   sync.Mutex
	made map[string]made // by pool
}

// made is the copy that was made of a pool, or the pool itself.
type made struct {
	of     *v1.NodePool
	policy *v1alpha1.RolloutPolicy // nil if the state that passed last was not put into it
	out    *v1.NodePool
}

// WithRollouts makes the service put the state that passed last into pools whose rollout is stopped, if their RolloutPolicy has onFailure
// LastGood.
func (s *Service) WithRollouts(known *label.Vocabulary) *Service {
	s.lastGood.known = known
	return s
}

// pools returns all pools of a snapshot, sorted by name, with the templates from which new machines are made now. It
// remembers the copies that it made, for the next call.
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

// pool returns a pool with the template from which new machines are made now: the earlier copy while pool and policy are the same. If the
// pool does not go back to an earlier state, or that cannot be restored, the annotation that passes images to claims is removed from it: an
// author of NodePools must not choose images by writing it.
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
