package upstream

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/operator/options"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/clouds/upstream/example"
	"karpenter.sh/karpenter/internal/testing/memapi"
)

// A rack is the example provider with bad days.
type rack struct {
	*example.Provider

	mu          sync.Mutex
	creates     int
	last        context.Context // of Create
	loseAnswers int             // so many answers of Create get lost
	refuse      error
	soldOut     bool // it has nothing, and says so only when it is asked to create
	nameless    bool // it does not write down whose a machine is
	nameOnly    bool // it writes down the name of the claim, and no annotation
	listLag     time.Duration
	created     map[string]time.Time // by provider id
	slow        time.Duration        // how long every call takes
	price       float64              // factor of every price
	typesAsked  int
	reboots     []string // operations
	unwilling   error    // to reboot
}

func (r *rack) Reboot(ctx context.Context, claim *karpv1.NodeClaim, operation string) error {
	if _, err := r.Get(ctx, claim.Status.ProviderID); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reboots = append(r.reboots, operation)
	return r.unwilling
}

// RepairPolicies adds a fault that a reboot may mend to those of the example.
func (r *rack) RepairPolicies() []cloudprovider.RepairPolicy {
	return append(r.Provider.RepairPolicies(), cloudprovider.RepairPolicy{ConditionType: "Overheated", ConditionStatus: corev1.ConditionTrue,
		ReasonRegex: ".*", TolerationDuration: time.Minute, Action: cloudprovider.RebootNode})
}

// GetInstanceTypes returns the types of the example at other prices.
func (r *rack) GetInstanceTypes(ctx context.Context, pool *karpv1.NodePool) ([]*cloudprovider.InstanceType, error) {
	r.mu.Lock()
	r.typesAsked++
	r.mu.Unlock()
	if err := r.wait(ctx); err != nil {
		return nil, err
	}
	all, err := r.Provider.GetInstanceTypes(ctx, pool)
	for _, it := range all {
		for _, o := range it.Offerings {
			o.Price *= r.price
		}
	}
	return all, err
}

func newRack() *rack {
	return &rack{Provider: example.New(), created: map[string]time.Time{}, price: 1}
}

func (r *rack) wait(ctx context.Context) error {
	if options.FromContext(ctx).FeatureGates.NodeOverlay {
		return errors.New("the provider applies NodeOverlays by itself")
	}
	select {
	case <-time.After(r.slow):
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *rack) Create(ctx context.Context, claim *karpv1.NodeClaim) (*karpv1.NodeClaim, error) {
	if err := r.wait(ctx); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.creates++
	r.last = ctx
	switch {
	case r.refuse != nil:
		return nil, r.refuse
	case r.soldOut:
		return nil, cloudprovider.NewInsufficientCapacityError(errors.New("sold out"))
	case r.nameless:
		claim = claim.DeepCopy()
		claim.Name, claim.Annotations = "", nil
	}
	if r.nameOnly {
		claim = claim.DeepCopy()
		claim.Annotations = nil
	}
	made, err := r.Provider.Create(ctx, claim)
	if err != nil {
		return nil, err
	}
	r.created[made.Status.ProviderID] = time.Now()
	if r.loseAnswers > 0 {
		r.loseAnswers--
		return nil, errors.New("the connection broke")
	}
	return made, nil
}

// listed reports whether a machine is shown already.
func (r *rack) listed(m *karpv1.NodeClaim) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Since(r.created[m.Status.ProviderID]) >= r.listLag
}

func (r *rack) List(ctx context.Context) ([]*karpv1.NodeClaim, error) {
	if err := r.wait(ctx); err != nil {
		return nil, err
	}
	all, err := r.Provider.List(ctx)
	return slices.DeleteFunc(all, func(m *karpv1.NodeClaim) bool { return !r.listed(m) }), err
}

// A fakeCluster is what the adapter sees of the cluster.
type fakeCluster struct {
	client.Client
	api     *memapi.Server
	classes map[string]*example.Rack
}

func newFakeCluster() *fakeCluster {
	ready := &example.Rack{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	ready.StatusConditions().SetTrue(status.ConditionReady)
	api := memapi.New(memapi.Scheme())
	api.Put(pool("default"))
	return &fakeCluster{Client: api.Client("adapter"), api: api, classes: map[string]*example.Rack{"default": ready}}
}

// Get reads node classes.
func (p *fakeCluster) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	class, ok := p.classes[key.Name]
	if !ok {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "racks"}, key.Name)
	}
	*o.(*example.Rack) = *class.DeepCopyObject().(*example.Rack)
	return nil
}

// objects are all of one kind.
type objects[T client.Object] struct{ api *memapi.Server }

func (o objects[T]) Each() iter.Seq[T] { return slices.Values(memapi.All[T](o.api)) }

func (o objects[T]) Get(name string) (found T, ok bool) {
	for each := range o.Each() {
		if each.GetName() == name {
			return each, true
		}
	}
	return found, false
}

// adapt returns an adapter that leads.
func adapt(t *testing.T, r cloudprovider.CloudProvider, p *fakeCluster) *adapter {
	t.Helper()
	kinds := runtime.NewScheme()
	kinds.AddKnownTypes(example.GroupVersion, &example.Rack{})
	gates := options.FeatureGates{NodeOverlay: true}
	a, err := newAdapter(r, inputs{
		base: baseOf(options.ToContext(context.Background(), &options.Options{FeatureGates: gates})), scheme: kinds, classes: p, client: p,
		claims: objects[*v1.NodeClaim]{p.api}, nodes: objects[*corev1.Node]{p.api}, window: consistencyWindow,
	})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	ctx, stop := context.WithCancel(context.Background())
	go func() { defer close(done); _ = a.watchEarlierLaunches(ctx) }()
	t.Cleanup(func() { stop(); <-done })
	<-a.claimsKnown
	return a
}
