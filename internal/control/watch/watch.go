package watch

import (
	"context"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/kit/sleep"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// Settings of the watch. The zero value watches everything that is always needed.
type Settings struct {
	// NodeClasses are the kinds that providers serve.
	NodeClasses []schema.GroupVersionKind
	// OwnerSelectors are needed for default spread constraints.
	OwnerSelectors bool
	// Overlays are needed with the feature gate NodeOverlay.
	Overlays bool
	// Commitments are needed with the feature gate CommitmentDiscounts.
	Commitments bool
	// Rollouts are needed with the feature gate RolloutPolicies.
	Rollouts bool
	// Buffers are needed with the feature gate CapacityBuffer.
	Buffers bool
	// Announcing kinds are needed for foresight.
	Announcing bool
	// Quotas are needed with the feature gate CapacityQuota.
	Quotas bool
	// Devices are needed if resource claims are planned for.
	Devices bool
	// Others are the feeds that the provider reads itself. If one of them fails, decisions stop as for a feed of this package.
	Others []Ear
}

// Watch keeps a store in step with the API server.
type Watch struct {
	store  *cluster.Store
	feeds  []*feed
	others []Ear

	mu      sync.Mutex
	missing []string // kinds whose first list has not arrived
	since   time.Time
}

// API is where everything is read.
type API struct {
	Client client.WithWatch // for the kinds of Kubernetes
	REST   rest.Interface   // for custom resources
}

// New returns a watch that has not started.
func New(api API, store *cluster.Store, s Settings) *Watch {
	kinds := own()
	for _, gvk := range s.NodeClasses {
		kinds = append(kinds, nodeClass(gvk))
	}
	kinds = append(kinds, builtin()...)
	if s.OwnerSelectors {
		kinds = append(kinds, owners()...)
	}
	if s.Overlays {
		kinds = append(kinds, overlays())
	}
	if s.Commitments {
		kinds = append(kinds, commitments())
	}
	if s.Rollouts {
		kinds = append(kinds, rollouts())
	}
	if s.Buffers {
		kinds = append(kinds, buffers()...)
	}
	if s.Announcing {
		kinds = append(kinds, announcing()...)
	}
	if s.Quotas {
		kinds = append(kinds, quotas())
	}
	if s.Devices {
		kinds = append(kinds, devices()...)
	}
	w := &Watch{store: store, since: time.Now(), others: s.Others}
	for _, k := range kinds {
		w.add(k.kind, k.source(api))
	}
	return w
}

func (w *Watch) add(k kind, s source) {
	w.missing = append(w.missing, k.name)
	w.feeds = append(w.feeds, &feed{kind: k, source: s, store: w.store, listed: func() { w.arrived(k.name) }})
}

// arrived notes that a kind is completely in the store.
func (w *Watch) arrived(kind string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.missing) == 0 {
		return
	}
	w.missing = slices.DeleteFunc(w.missing, func(s string) bool { return s == kind })
	if len(w.missing) == 0 {
		w.store.Update(func(d *cluster.Draft) { d.Synced(true) })
	}
}

// Missing names the kinds whose first list has not arrived, and says how long they have been waited for.
func (w *Watch) Missing() ([]string, time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.missing) == 0 {
		return nil, 0
	}
	return slices.Clone(w.missing), time.Since(w.since)
}

const (
	// patience is how long the first lists may take before an error is logged, and nag how often it is logged again.
	patience = 30 * time.Second
	nag      = 10 * time.Second
)

// Run watches until ctx ends.
func (w *Watch) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, f := range w.feeds {
		wg.Go(func() { f.run(ctx) })
	}
	w.complain(ctx)
	w.judge(ctx)
	return nil
}

// complain logs while the first lists take long, and returns when they have arrived.
func (w *Watch) complain(ctx context.Context) {
	for wait := patience; ; wait = nag {
		if !sleep.For(ctx, wait) {
			return
		}
		missing, d := w.Missing()
		if len(missing) == 0 {
			return
		}
		telemetry.Log(ctx).Error("cluster is waiting on sync for extended duration", "duration", d, "missing", missing)
	}
}

// server reads one kind from the API server.
type server struct {
	client client.WithWatch
	list   func() client.ObjectList
}

func (s server) List(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	l := s.list()
	return l, s.client.List(ctx, l, raw(o))
}

func (s server) Watch(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
	return s.client.Watch(ctx, s.list(), raw(o))
}

// raw converts list options for the client. Limit and Continue are set twice, because the client reads its own fields for these.
func raw(o metav1.ListOptions) *client.ListOptions {
	return &client.ListOptions{Limit: o.Limit, Continue: o.Continue, Raw: &o}
}
