// Package catalog knows which pools our provider serves and what each of them can launch.
//
// The provider remembers its catalogues and says by pointer whether there is news; this service asks it, leaves out
// the pools that are not ours or cannot be served, and says so once. NodeOverlays are applied here, so that no loop
// sees a catalogue without them; the provider, which chooses at launch from its own, asks for them with Corrected.
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

// Service answers for all loops. It may be used concurrently.
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
				notReady[p.Name] = true // one of our kinds that is not served: pods hear of it
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

// say logs trouble with a pool when it is new.
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

// forget drops what was said about pools that are gone.
func (s *Service) forget(snap *cluster.Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for pool := range s.said {
		if cluster.Pools.Get(snap, pool) == nil {
			delete(s.said, pool)
		}
	}
}
