// Package catalog knows which pools this provider serves and which instance types each of them can launch.
//
// The provider caches its catalogues and returns the same pointer until something has changed. This service asks it for the catalogue of
// each pool. It leaves out pools that the provider does not serve or has no types for, and logs the latter once.
//
// It also applies NodeOverlays (overlays.go), so that no loop sees a catalogue without them. At launch the provider chooses from its own
// catalogue, and gets the overlays with Corrected. And it puts the state that passed last into pools whose rollout is stopped
// (lastgood.go).
package catalog

import (
	"context"
	"errors"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/label"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// provider is the part of the cloud that this service needs.
type provider interface {
	cloud.Kinds
	Catalog(ctx context.Context, pool *v1.NodePool) (*cloud.Catalog, error)
}

// Service gives all loops the same pools and catalogues. It may be used concurrently.
type Service struct {
	provider provider

	mu   sync.Mutex
	said map[string]string // the last trouble with each pool, so that it is said once

	overlays *overlays // nil without the feature gate NodeOverlay
	lastGood *lastGood // without the feature gate RolloutPolicies it restores nothing
}

// New returns a service for one provider.
func New(p provider) *Service {
	return &Service{provider: p, said: map[string]string{}, lastGood: &lastGood{}}
}

// WithOverlays makes the service apply the NodeOverlays of a store.
func (s *Service) WithOverlays(store *cluster.Store, known *label.Vocabulary) *Service {
	s.overlays = &overlays{store: store, known: known}
	return s
}

// Serves reports whether a reference names a node class of our provider.
func (s *Service) Serves(ref *v1.NodeClassReference) bool {
	return cloud.Serves(s.provider, ref)
}

// Pools returns the pools of our provider whose instance types are known, by name. Those that may not get new nodes now,
// because they are not ready or being deleted, are named in notReady as well.
func (s *Service) Pools(ctx context.Context, snap *cluster.Snapshot) (pools map[string]engine.Pool, notReady map[string]bool) {
	pools, notReady = s.known(ctx, snap)
	s.overlays.correct(snap, pools)
	return pools, notReady
}

// known returns the pools with their catalogues as the provider has them.
func (s *Service) known(ctx context.Context, snap *cluster.Snapshot) (pools map[string]engine.Pool, notReady map[string]bool) {
	pools, notReady = map[string]engine.Pool{}, map[string]bool{}
	for _, p := range s.lastGood.pools(snap) {
		if ref := p.Spec.Template.Spec.NodeClassRef; !s.Serves(ref) {
			if cloud.ServesGroup(s.provider, ref) {
				notReady[p.Name] = true // the provider's API group, but an unknown kind: explanations for pods then name the pool
			}
			continue
		}
		if p.DeletionTimestamp != nil || !meta.IsStatusConditionTrue(p.Status.Conditions, v1.ConditionTypeReady) {
			notReady[p.Name] = true
		}
		c, err := s.provider.Catalog(ctx, p)
		switch {
		case err != nil:
			s.say(ctx, p.Name, err)
		case len(c.Types) == 0:
			s.say(ctx, p.Name, errors.New("there are no instance types"))
		default:
			s.say(ctx, p.Name, nil)
			pools[p.Name] = engine.Pool{Pool: p, Catalog: c}
		}
	}
	s.forget(snap)
	return pools, notReady
}

// say logs why a pool is left out, if that is not what it logged last about the pool. nil means that the pool is not left out.
func (s *Service) say(ctx context.Context, pool string, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	s.mu.Lock()
	known := s.said[pool]
	s.said[pool] = text
	s.mu.Unlock()
	if text == known || text == "" || ctx.Err() != nil {
		return
	}
	var notReady *cloud.ClassNotReadyError
	if errors.As(err, &notReady) {
		telemetry.Log(ctx).Info("pool is left out, its node class is not ready", "NodePool", pool, "because", err)
		return
	}
	telemetry.Log(ctx).Error("pool is left out, its instance types are unknown", "NodePool", pool, "error", err)
}

// forget removes pools that are gone from said.
func (s *Service) forget(snap *cluster.Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for pool := range s.said {
		if cluster.Pools.Get(snap, pool) == nil {
			delete(s.said, pool)
		}
	}
}
