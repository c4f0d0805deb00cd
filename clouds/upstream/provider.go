package upstream

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/operator/options"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
)

// claims and nodes are the parts of the cluster's fakeCluster that the adapter reads.
type (
	claims interface {
		Get(name string) (*v1.NodeClaim, bool)
		Each() iter.Seq[*v1.NodeClaim]
	}
	nodes interface{ Each() iter.Seq[*corev1.Node] }
)

// inputs are what the adapter works with besides the provider.
type inputs struct {
	base    context.Context // values that providers expect in every context, such as their options
	scheme  *runtime.Scheme // knows the provider's node classes
	classes client.Reader   // reads node classes; may be cached
	client  client.Client   // lists claims and writes Nodes; not cached
	claims  claims
	nodes   nodes
	window  time.Duration // the consistency window: how long a started machine may be missing from the provider's list
	hooks   []cloudprovider.NodeLifecycleHook
	// corrected applies NodeOverlays to a catalogue; nil without them.
	corrected func(ctx context.Context, pool string, c *cloud.Catalog) *cloud.Catalog
}

// An adapter is a provider of upstream's interface as a cloud.Provider.
type adapter struct {
	inputs
	cloud       cloudprovider.CloudProvider
	kinds       []classKind
	claimsKnown chan struct{} // closed once it is known which claims an earlier process may have launched

	mu        sync.Mutex
	launches  map[types.UID]*launch
	firstSeen map[string]time.Time    // by provider id, when a machine without launch time was first shown
	latches   map[string]latch        // by provider id; never dropped
	offered   map[string]*poolCatalog // by pool
	shortage  map[launchKey]time.Time
	naming    map[int]bool // which of the namesOf a machine the provider has been seen to fill with the name of its claim
}

var _ cloud.Provider = (*adapter)(nil)

// A classKind is a kind of node class of the provider.
type classKind struct {
	gvk schema.GroupVersionKind
	new status.Object // copied for each read
}

func newAdapter(p cloudprovider.CloudProvider, in inputs) (*adapter, error) {
	a := &adapter{inputs: in, cloud: p, claimsKnown: make(chan struct{}), launches: map[types.UID]*launch{},
		firstSeen: map[string]time.Time{},
		latches:   map[string]latch{}, offered: map[string]*poolCatalog{}, shortage: map[launchKey]time.Time{},
		naming: map[int]bool{0: true}}
	for _, class := range p.GetSupportedNodeClasses() {
		gvk, err := apiutil.GVKForObject(class, in.scheme)
		if err != nil {
			return nil, fmt.Errorf("node class %T: %w", class, err)
		}
		a.kinds = append(a.kinds, classKind{gvk, class})
	}
	if len(a.kinds) == 0 {
		return nil, fmt.Errorf("provider %s names no kind of node class", p.Name())
	}
	return a, nil
}

// A withValues context looks a key up in values first, and then in the embedded context. Deadline and cancellation are those of the
// embedded context.
type withValues struct {
	context.Context
	values context.Context
}

func (v withValues) Value(key any) any {
	if value := v.values.Value(key); value != nil {
		return value
	}
	return v.Context.Value(key)
}

// providerContext returns ctx with the values that providers expect, such as their options (see baseOf). These hide values of ctx with the
// same key.
func (a *adapter) providerContext(ctx context.Context) context.Context {
	return withValues{ctx, a.base}
}

// baseOf returns the values that the provider expects in contexts. The gate NodeOverlay is off there: our core applies overlays, and
// providers that do so too would wait for a controller that does not run.
func baseOf(ctx context.Context) context.Context {
	o := *options.FromContext(ctx)
	o.FeatureGates.NodeOverlay = false
	return context.WithoutCancel(options.ToContext(ctx, &o))
}

// Name implements cloud.Provider.
func (a *adapter) Name() string { return a.cloud.Name() }

// NodeClassKinds implements cloud.Provider.
func (a *adapter) NodeClassKinds() []schema.GroupVersionKind {
	out := make([]schema.GroupVersionKind, len(a.kinds))
	for i, k := range a.kinds {
		out[i] = k.gvk
	}
	return out
}

// ready returns the version of a node class, or why nothing can be launched with it.
func (a *adapter) ready(ctx context.Context, ref *v1.NodeClassReference) (string, error) {
	if ref == nil {
		return "", &cloud.ClassNotReadyError{Err: errors.New("there is no reference to a node class")}
	}
	i := slices.IndexFunc(a.kinds, func(k classKind) bool { return k.gvk.GroupKind() == ref.GroupKind() })
	if i < 0 {
		return "", &cloud.ClassNotReadyError{Err: fmt.Errorf("provider %s has no node class %s", a.Name(), ref.Kind)}
	}
	class := a.kinds[i].new.DeepCopyObject().(status.Object)
	err := a.classes.Get(ctx, client.ObjectKey{Name: ref.Name}, class)
	if apierrors.IsNotFound(err) {
		return "", &cloud.ClassNotReadyError{Err: err, Unjudged: true}
	}
	if err != nil {
		return "", fmt.Errorf("read %s %s: %w", ref.Kind, ref.Name, err)
	}
	if class.GetDeletionTimestamp() != nil {
		return "", &cloud.ClassNotReadyError{Err: fmt.Errorf("%s %s is being deleted", ref.Kind, ref.Name)}
	}
	is := class.StatusConditions().Get(status.ConditionReady)
	switch {
	case is.IsTrue() && (is.ObservedGeneration == 0 || is.ObservedGeneration == class.GetGeneration()):
		return class.GetResourceVersion(), nil
	case is.IsFalse():
		return "", &cloud.ClassNotReadyError{Err: errors.New(is.Message)}
	}
	return "", &cloud.ClassNotReadyError{Err: fmt.Errorf("%s %s has not been judged", ref.Kind, ref.Name), Unjudged: true}
}

// A poolCatalog is what was last offered to a pool.
type poolCatalog struct {
	turn    turn // of those that use the other fields
	pool    *v1.NodePool
	class   string // version of the node class
	at      time.Time
	catalog *cloud.Catalog
	sum     uint64 // fingerprint of catalog
}

// catalogLifetime is how long a catalogue is not asked for again; the provider has a cache of its own, but converting takes time.
const catalogLifetime = 10 * time.Second

// Catalog implements cloud.Provider.
func (a *adapter) Catalog(ctx context.Context, pool *v1.NodePool) (*cloud.Catalog, error) {
	class, err := a.ready(ctx, pool.Spec.Template.Spec.NodeClassRef)
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	s := a.offered[pool.Name]
	if s == nil {
		s = &poolCatalog{turn: newTurn()}
		a.offered[pool.Name] = s
	}
	a.mu.Unlock()
	if err := s.turn.take(ctx); err != nil {
		return nil, err
	}
	defer s.turn.release()
	if s.catalog != nil && s.pool.UID == pool.UID && s.pool.Generation == pool.Generation && s.class == class &&
		time.Since(s.at) < catalogLifetime {
		return s.catalog, nil
	}
	s.pool, s.class = pool, class
	return a.refresh(ctx, s)
}

// refresh asks the provider again. The caller has the turn of s.
func (a *adapter) refresh(ctx context.Context, s *poolCatalog) (*cloud.Catalog, error) {
	pool, err := convert[karpv1.NodePool](s.pool)
	if err != nil {
		return nil, err
	}
	types, err := a.cloud.GetInstanceTypes(a.providerContext(ctx), pool)
	if err != nil {
		return nil, fmt.Errorf("instance types of pool %s: %w", pool.Name, err)
	}
	now := time.Now()
	a.mu.Lock()
	maps.DeleteFunc(a.shortage, func(_ launchKey, at time.Time) bool { return now.Sub(at) >= shortageLife })
	short := maps.Clone(a.shortage)
	a.mu.Unlock()
	made := catalogOf(types, func(k launchKey) bool { _, is := short[k]; return is })
	if sum := fingerprint(made); s.catalog == nil || sum != s.sum {
		s.catalog, s.sum = made, sum
	}
	s.at = now
	return s.catalog, nil
}

// offeredTo returns what was offered to the pool of a claim, nil if nothing was offered to it yet.
func (a *adapter) offeredTo(claim *v1.NodeClaim) *poolCatalog {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.offered[claim.Labels[v1.NodePoolLabelKey]]
}

// Get implements cloud.Provider.
func (a *adapter) Get(ctx context.Context, providerID string) (cloud.Machine, error) {
	m, err := a.get(ctx, providerID)
	if err != nil {
		return cloud.Machine{}, err
	}
	return a.describe([]*karpv1.NodeClaim{m})[0], nil
}

func (a *adapter) get(ctx context.Context, providerID string) (*karpv1.NodeClaim, error) {
	m, err := a.cloud.Get(a.providerContext(ctx), providerID)
	if err == nil && m == nil {
		err = cloud.ErrNotFound
	}
	return m, convertNotFound(err)
}

// List implements cloud.Provider.
func (a *adapter) List(ctx context.Context) ([]cloud.Machine, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	all, err := a.cloud.List(a.providerContext(ctx))
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(slices.Clone(all), func(m *karpv1.NodeClaim) bool { return m == nil || m.Status.ProviderID == "" })
	out := a.describe(all)
	slices.SortFunc(out, func(a, b cloud.Machine) int { return strings.Compare(a.ProviderID, b.ProviderID) })
	a.forget(out)
	return out, nil
}

// forget drops the first-seen times of machines that are no longer listed and were first seen long ago.
func (a *adapter) forget(listed []cloud.Machine) {
	stillListed := map[string]bool{}
	for _, m := range listed {
		stillListed[m.ProviderID] = true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.firstSeen, func(id string, at time.Time) bool { return !stillListed[id] && time.Since(at) > 2*a.window })
}

// describe converts machines as the provider describes them, and adds the names of their claims and pools.
func (a *adapter) describe(all []*karpv1.NodeClaim) []cloud.Machine {
	owners, named := map[string]*v1.NodeClaim{}, map[string]*v1.NodeClaim{}
	for c := range a.claims.Each() {
		named[c.Name] = c
		if id := c.Status.ProviderID; id != "" {
			owners[id] = c
		}
	}
	latchedNodes := map[string]bool{}
	for n := range a.nodes.Each() {
		if n.Annotations[latchAnnotation] != "" {
			latchedNodes[n.Spec.ProviderID] = true
		}
	}
	launched, awaitedFrom := a.unfinished()
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	out := make([]cloud.Machine, len(all))
	ownerOf := func(m *karpv1.NodeClaim) *v1.NodeClaim {
		if c := owners[m.Status.ProviderID]; c != nil {
			return c
		}
		return launched[m.Status.ProviderID]
	}
	a.learnNaming(all, ownerOf)
	for i, m := range all {
		id := m.Status.ProviderID
		if _, known := a.firstSeen[id]; !known && m.CreationTimestamp.IsZero() {
			a.firstSeen[id] = now
		}
		made := machineOf(m, a.firstSeen[id])
		known, decided := a.latches[id]
		made.Latched = decided && known.set || !decided && latchedNodes[id]
		owner := ownerOf(m)
		for which, name := range namesOf(m) {
			if c := named[name]; owner == nil && c != nil && belongsTo(m, c) {
				owner = c
			} else if made.ClaimName == "" && a.naming[which] && (c == nil || which == 0) {
				made.ClaimName = name // of a claim that is gone
			}
		}
		switch {
		case owner != nil:
			made.ClaimName = owner.Name
			if made.PoolName == "" {
				made.PoolName = owner.Labels[v1.NodePoolLabelKey]
			}
		case made.ClaimName == "":
			made.Awaited = !awaitedFrom.IsZero() && !made.Created.Before(awaitedFrom)
		}
		out[i] = made
	}
	return out
}

// namesOf returns where a provider may show the name of a machine's claim. The first is an annotation that Create gave it.
func namesOf(m *karpv1.NodeClaim) [3]string {
	return [3]string{m.Annotations[nameAnnotation], m.Name, m.Labels[corev1.LabelHostname]}
}

// learnNaming learns from machines with a claim where the provider shows the claim's name. A machine that shows another name there is no
// machine of the claims that wait for the outcome of their launch. The caller holds the mutex.
func (a *adapter) learnNaming(all []*karpv1.NodeClaim, ownerOf func(*karpv1.NodeClaim) *v1.NodeClaim) {
	for _, m := range all {
		for i, name := range namesOf(m) {
			if c := ownerOf(m); c != nil && name == c.Name {
				a.naming[i] = true
			}
		}
	}
}

// Terminate implements cloud.Provider.
func (a *adapter) Terminate(ctx context.Context, providerID string) error {
	var asked *karpv1.NodeClaim
	var err error
	for c := range a.claims.Each() {
		if c.Status.ProviderID == providerID {
			asked, err = convert[karpv1.NodeClaim](c)
		}
	}
	if asked == nil && err == nil {
		asked, err = a.get(ctx, providerID)
	}
	if err != nil {
		return err
	}
	return convertNotFound(a.cloud.Delete(a.providerContext(ctx), asked))
}

// Inherited implements cloud.Provider: no such provider served Provisioners with machines that can be told apart.
func (a *adapter) Inherited(context.Context) ([]cloud.Machine, error) { return nil, nil }

// Adopt implements cloud.Provider.
func (a *adapter) Adopt(context.Context, *v1.NodeClaim, string) (cloud.Machine, error) {
	return cloud.Machine{}, cloud.ErrNotFound
}

// Drifted implements cloud.Provider.
func (a *adapter) Drifted(ctx context.Context, claim *v1.NodeClaim) (cloud.DriftReason, error) {
	asked, err := convert[karpv1.NodeClaim](claim)
	if err != nil {
		return "", err
	}
	reason, err := a.cloud.IsDrifted(a.providerContext(ctx), asked)
	return cloud.DriftReason(reason), convertNotFound(err)
}

// MayReboot implements cloud.Rebooter. Such a provider does not say beforehand what it would refuse.
func (a *adapter) MayReboot(ctx context.Context, claim *v1.NodeClaim) error {
	_, err := a.get(ctx, claim.Status.ProviderID)
	return err
}

// Reboot implements cloud.Rebooter.
func (a *adapter) Reboot(ctx context.Context, claim *v1.NodeClaim, operation string) error {
	asked, err := convert[karpv1.NodeClaim](claim)
	if err != nil {
		return err
	}
	err = a.cloud.Reboot(a.providerContext(ctx), asked, operation)
	if cloudprovider.IsNodeRebootNotImplementedError(err) || cloudprovider.IsNodeRebootFailedError(err) {
		return fmt.Errorf("%w: %w", cloud.ErrRebootRefused, err)
	}
	return convertNotFound(err)
}

// RepairPolicies implements cloud.Provider.
func (a *adapter) RepairPolicies() []cloud.RepairPolicy {
	var out []cloud.RepairPolicy
	for _, p := range a.cloud.RepairPolicies() {
		out = append(out, cloud.RepairPolicy{
			ConditionType: p.ConditionType, Status: p.ConditionStatus, Reason: p.ReasonRegex, Toleration: p.TolerationDuration,
			Grace: p.TerminationGracePeriod, Priority: p.Priority, Reboot: p.Action == cloudprovider.RebootNode,
		})
	}
	return out
}
