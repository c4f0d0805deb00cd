package upstream

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/operator/options"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/clouds/upstream/example"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/cluster/follow"
	"karpenter.sh/karpenter/internal/testing/fakecloud"
	"karpenter.sh/karpenter/internal/testing/memapi"
	"karpenter.sh/karpenter/internal/testing/sim"
)

// A simpleProvider is the fake cloud behind Karpenter's interface: every call of Create buys another machine.
type simpleProvider struct {
	cloudprovider.CloudProvider
	cloud    *fakecloud.Cloud
	class    status.Object
	keepsUID bool // it keeps annotations of the claim with the machine
	keeps    bool // it keeps the name of the claim with the machine
	timeless bool // it does not say when a machine was started

	mu     sync.Mutex
	calls  int
	owners map[string]types.UID // by provider id: for which claim a machine was bought
}

func (p *simpleProvider) Name() string                             { return "simple" }
func (p *simpleProvider) GetSupportedNodeClasses() []status.Object { return []status.Object{p.class} }
func (p *simpleProvider) RepairPolicies() []cloudprovider.RepairPolicy {
	return example.New().RepairPolicies()
}

func (p *simpleProvider) IsDrifted(context.Context, *karpv1.NodeClaim) (cloudprovider.DriftReason, error) {
	return "", nil
}

func (p *simpleProvider) GetInstanceTypes(ctx context.Context, pool *karpv1.NodePool) (out []*cloudprovider.InstanceType, _ error) {
	c, err := p.cloud.Catalog(ctx, &v1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: pool.Name}})
	if err != nil {
		return nil, err
	}
	for _, it := range c.Types {
		made := &cloudprovider.InstanceType{Name: it.Name, Capacity: it.Capacity, Overhead: &cloudprovider.InstanceTypeOverhead{},
			Requirements: scheduling.NewRequirements()}
		for key, values := range it.Labels {
			made.Requirements.Add(scheduling.NewRequirement(key, corev1.NodeSelectorOpIn, values...))
		}
		for _, o := range it.Offerings {
			made.Offerings = append(made.Offerings, &cloudprovider.Offering{Available: o.Available, Price: o.Price.Dollars(),
				Requirements: scheduling.NewLabelRequirements(o.Labels)})
		}
		out = append(out, made)
	}
	return out, nil
}

func (p *simpleProvider) Create(ctx context.Context, asked *karpv1.NodeClaim) (*karpv1.NodeClaim, error) {
	c, err := convert[v1.NodeClaim](asked)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	p.calls++
	c.Annotations = map[string]string{v1.LaunchTokenAnnotationKey: strconv.Itoa(p.calls)}
	p.mu.Unlock()
	m, err := p.cloud.Launch(ctx, c)
	if _, soldOut := errors.AsType[*cloud.NoCapacityError](err); soldOut {
		return nil, cloudprovider.NewInsufficientCapacityError(err)
	}
	if err != nil {
		return nil, err
	}
	return p.shown(m), nil
}

// bought notes for which claim a machine was bought. It is called when the machine boots, also if its answer was lost.
func (p *simpleProvider) bought(id string, claim types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.owners[id] = claim
}

// shown describes a machine as the provider does.
func (p *simpleProvider) shown(m cloud.Machine) *karpv1.NodeClaim {
	out := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Labels: maps.Clone(m.Labels)}}
	out.Labels[karpv1.NodePoolLabelKey] = m.PoolName
	out.Status = karpv1.NodeClaimStatus{ProviderID: m.ProviderID, Capacity: m.Capacity, Allocatable: m.Allocatable}
	if p.keeps {
		out.Name = m.ClaimName
	}
	if p.keepsUID {
		p.mu.Lock()
		out.Annotations = map[string]string{nameAnnotation: m.ClaimName, uidAnnotation: string(p.owners[m.ProviderID])}
		p.mu.Unlock()
	}
	if !p.timeless {
		out.CreationTimestamp = metav1.NewTime(m.Created.Truncate(time.Second))
	}
	if m.Deleting {
		out.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	}
	return out
}

func (p *simpleProvider) List(ctx context.Context) (out []*karpv1.NodeClaim, _ error) {
	all, err := p.cloud.List(ctx)
	for _, m := range all {
		out = append(out, p.shown(m))
	}
	return out, err
}

func (p *simpleProvider) Get(ctx context.Context, id string) (*karpv1.NodeClaim, error) {
	m, err := p.cloud.Get(ctx, id)
	if err != nil {
		return nil, notFound(err)
	}
	return p.shown(m), nil
}

func (p *simpleProvider) Delete(ctx context.Context, c *karpv1.NodeClaim) error {
	return notFound(p.cloud.Terminate(ctx, c.Status.ProviderID))
}

func notFound(err error) error {
	if errors.Is(err, cloud.ErrNotFound) {
		return cloudprovider.NewNodeClaimNotFoundError(err)
	}
	return err
}

// A crashWorld is a cluster with a simpleProvider, over which processes start and are killed.
type crashWorld struct {
	*sim.World
	t        *testing.T
	seed     uint64
	rand     *rand.Rand    // of the test's own goroutine
	troubles *rand.Rand    // used under the cloud's fault hook
	listTime time.Duration // how long a call of List takes at most
	listLag  time.Duration // how long a machine is not listed
	provider *simpleProvider
	process  int
	rivals   bool // two processes have acted at once, which the lease prevents

	mu        sync.Mutex
	unclaimed map[string]time.Time // by provider id: since when no claim can have the machine
	taken     map[string]bool      // by provider id: machines that were ever in the status of a claim
	wrong     string               // the first law that did not hold
}

const crashPods = 32

func TestCrashesOverAProviderThatPromisesLittle(t *testing.T) {
	sim.EachSeed(t, "CLOUDS_CRASH_SEEDS", 30, 2000, func(t *testing.T, seed uint64) {
		w := newCrashWorld(t, seed)
		ctx, stop := context.WithCancel(t.Context())
		var world sync.WaitGroup
		world.Go(func() { w.Run(ctx) })
		world.Go(func() { w.watch(ctx) })
		w.live(w.between(0, 2*time.Second))
		w.addPods()
		for range 1 + w.rand.IntN(4) {
			w.live(w.between(0, 20*time.Second))
			w.deleteSome()
			time.Sleep(w.between(0, 10*time.Second))
		}
		end := w.start()
		w.Cloud.SetStock(fakecloud.Where{Zone: "a"}, -1)
		w.eventually("every pod runs", 15*time.Minute, w.allRun)
		w.eventually("machines, claims and nodes are the same", 6*time.Minute, w.same)
		sim.ScaleToZero(t, w.World)
		for range w.rand.IntN(3) {
			time.Sleep(w.between(0, 20*time.Second))
			end()
			time.Sleep(w.between(0, 5*time.Second))
			end = w.start()
		}
		for _, c := range memapi.All[*v1.NodeClaim](w.API) {
			sim.Delete(t, w.World, c)
		}
		w.eventually("nothing is left", 15*time.Minute, w.nothing)
		end()
		stop()
		world.Wait()
		if w.wrong != "" {
			t.Errorf("seed %d: %s (%s)", seed, w.wrong, w.about())
		}
		time.Sleep(time.Minute) // machines that are still stopping do so
	})
}

func newCrashWorld(t *testing.T, seed uint64) *crashWorld {
	w := &crashWorld{t: t, seed: seed, rand: rand.New(rand.NewPCG(seed, 1)), troubles: rand.New(rand.NewPCG(seed, 2)),
		unclaimed: map[string]time.Time{}, taken: map[string]bool{}}
	catalog := &cloud.Catalog{Types: []*cloud.InstanceType{fakecloud.Kind("m.2xlarge", 8, 0.4, "a", "b")}}
	keepsUID, keeps := w.rand.IntN(3) == 0, w.rand.IntN(2) == 0
	w.listLag = w.between(0, 90*time.Second)
	if !keepsUID && !keeps && w.rand.IntN(4) == 0 {
		w.listLag = 3 * time.Minute // longer than the consistency window
	}
	if w.rand.IntN(2) == 0 {
		w.listTime = 20 * time.Second
	}
	var err error
	w.World, err = sim.New(sim.Options{
		Cloud: fakecloud.Options{
			Catalog: func(*v1.NodePool) (*cloud.Catalog, error) { return catalog, nil },
			Boot: func(m cloud.Machine) time.Duration {
				c := &v1.NodeClaim{}
				_ = w.API.Client("test").Get(context.Background(), types.NamespacedName{Name: m.ClaimName}, c)
				w.provider.bought(m.ProviderID, c.UID)
				return 2*time.Second + time.Duration(len(m.ProviderID)%3)*time.Second
			},
			Shutdown: 3 * time.Second, Lag: w.listLag,
		},
		ReadyAfter: time.Second, PodStart: time.Second, PodStop: time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	w.provider = &simpleProvider{cloud: w.Cloud, class: &example.Rack{}, keepsUID: keepsUID, keeps: keeps,
		timeless: w.rand.IntN(4) == 0, owners: map[string]types.UID{}}
	w.API.Put(sim.ReadyClass("default"))
	w.API.Put(sim.Pool("default"))
	w.Cloud.SetFault(w.fault)
	if w.rand.IntN(3) == 0 {
		w.Cloud.SetStock(fakecloud.Where{Zone: "a"}, w.rand.IntN(4))
	}
	return w
}

func (w *crashWorld) fault(c fakecloud.Call) fakecloud.Fault {
	f := fakecloud.Fault{Delay: time.Duration(w.troubles.IntN(300)) * time.Millisecond}
	switch c.Method {
	case fakecloud.Launch, fakecloud.Terminate:
		f.After = time.Duration(w.troubles.IntN(3000)) * time.Millisecond
	case fakecloud.List:
		f.Delay += time.Duration(w.troubles.Int64N(int64(w.listTime) + 1))
	}
	switch w.troubles.IntN(25) {
	case 0:
		f.Lost = true
	case 1:
		f.Err = fmt.Errorf("%s: throttled", c.Method)
	}
	return f
}

func (w *crashWorld) between(from, to time.Duration) time.Duration {
	return from + time.Duration(w.rand.Int64N(int64(to-from)))
}

// about says what kind of provider a seed has.
func (w *crashWorld) about() string {
	return fmt.Sprintf("a machine is listed after %v; the provider keeps UID %v, name %v, no times %v; a list takes %v",
		w.listLag, w.provider.keepsUID, w.provider.keeps, w.provider.timeless, w.listTime)
}

// start starts a process that remembers nothing, and returns what kills it.
func (w *crashWorld) start() (kill func()) {
	w.process++
	kinds := runtime.NewScheme()
	kinds.AddKnownTypeWithName(fakecloud.NodeClass, w.provider.class.(*example.Rack))
	store, client := cluster.NewStore(), w.API.Client(fmt.Sprint("adapter ", w.process))
	a, err := newAdapter(w.provider, inputs{
		base: baseOf(options.ToContext(context.Background(), &options.Options{})), scheme: kinds, classes: newFakeCluster(), client: client,
		claims: follow.Claims(store), nodes: follow.Nodes(store), window: consistencyWindow,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	o := sim.KarpenterOptions{Name: fmt.Sprint("process ", w.process), Lag: 20 * time.Millisecond,
		Delay: 30 * time.Millisecond, Provision: true, Store: store, Cloud: a}
	o.Claim.Settled = a.settled
	k := w.Karpenter(o)
	k.Add(a.watchEarlierLaunches)
	w.mu.Lock()
	clear(w.unclaimed) // what only short-lived processes could have stopped does not count
	w.mu.Unlock()
	ctx, stop := context.WithCancel(sim.Loud(w.t.Context(), "CRASH_LOG", w.process))
	done := make(chan struct{})
	go func() { k.Run(ctx); close(done) }()
	return func() { stop(); <-done }
}

// live runs a process for a while. Now and then the next one begins before the last one has ended.
func (w *crashWorld) live(d time.Duration) {
	kill := w.start()
	if w.rand.IntN(4) == 0 {
		time.Sleep(d / 2)
		next := w.start()
		w.rivals = true
		time.Sleep(d / 2)
		kill()
		kill = next
	}
	time.Sleep(d)
	kill()
}

func (w *crashWorld) addPods() {
	for i := range crashPods {
		w.API.Put(sim.Pod(fmt.Sprintf("web-%02d", i), "1900m", sim.OwnedBy("web")))
	}
}

// deleteSome deletes a tenth of the claims, whatever they are about.
func (w *crashWorld) deleteSome() {
	for _, c := range memapi.All[*v1.NodeClaim](w.API) {
		if w.rand.IntN(10) == 0 {
			sim.Delete(w.t, w.World, c)
		}
	}
}

// watch looks at the laws every second.
func (w *crashWorld) watch(ctx context.Context) {
	for ctx.Err() == nil {
		if wrong := w.look(); wrong != "" && w.wrong == "" {
			w.wrong = wrong
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// look returns which law does not hold now. A machine has no claim from when the claim that it was bought for is gone or has another one.
func (w *crashWorld) look() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	byUID, withID := map[types.UID]*v1.NodeClaim{}, map[string]bool{}
	for _, c := range memapi.All[*v1.NodeClaim](w.API) {
		byUID[c.UID] = c
		if id := c.Status.ProviderID; id != "" {
			withID[id], w.taken[id] = true, true
		}
	}
	running := map[string]bool{}
	for _, m := range w.Cloud.Machines() {
		if m.Deleting {
			continue
		}
		running[m.ProviderID] = true
		if w.rivals && w.kept(m.ProviderID) {
			continue // it waits for a person
		}
		w.provider.mu.Lock()
		c := byUID[w.provider.owners[m.ProviderID]]
		w.provider.mu.Unlock()
		if withID[m.ProviderID] || c != nil && c.Status.ProviderID == "" {
			delete(w.unclaimed, m.ProviderID)
			continue
		}
		since, known := w.unclaimed[m.ProviderID]
		if listed := m.Created.Add(w.listLag); !known && time.Now().After(listed) {
			w.unclaimed[m.ProviderID] = time.Now()
		} else if alone := time.Since(since); known && alone > w.longestAlone() {
			return fmt.Sprintf("machine %s has no claim for %v", m.ProviderID, alone)
		}
	}
	maps.DeleteFunc(w.unclaimed, func(id string, _ time.Time) bool { return !running[id] })
	for _, n := range memapi.All[*corev1.Node](w.API) {
		if n.Labels[v1.NodeRegisteredLabelKey] != "" && !w.taken[n.Spec.ProviderID] {
			return fmt.Sprintf("node %s is registered, and no claim ever had its machine", n.Name)
		}
	}
	return ""
}

// kept reports whether a machine is one of so many without a claim that they look like a mistake. A person has it stopped then.
func (w *crashWorld) kept(id string) bool {
	for _, n := range memapi.All[*corev1.Node](w.API) {
		if n.Spec.ProviderID == id && n.Annotations[latchAnnotation] != "" {
			if n.Annotations[v1.OrphanAnnotationKey] == "" {
				n = n.DeepCopy()
				n.Annotations[v1.OrphanAnnotationKey] = v1.OrphanTerminate
				w.API.Put(n)
			}
			return true
		}
	}
	return false
}

// longestAlone returns how long the provider may list a machine without a claim while a process runs. A machine without a name may belong to
// any launch whose answer is not known, until the consistency window of that launch has passed. A machine that is first listed after the
// window is an orphan, and only the regular search finds it.
func (w *crashWorld) longestAlone() time.Duration {
	if (w.provider.keeps || w.provider.keepsUID) && w.listLag < consistencyWindow {
		return 2 * time.Minute
	}
	return 2*time.Minute + consistencyWindow
}

// eventually waits for something to become true, and to be true a second later as well.
func (w *crashWorld) eventually(what string, within time.Duration, is func() string) {
	w.t.Helper()
	deadline := time.Now().Add(within)
	for {
		why := is()
		if why == "" {
			time.Sleep(time.Second)
			if why = is(); why == "" {
				return
			}
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("seed %d: not within %s: %s: %s (%s)", w.seed, within, what, why, w.about())
		}
		time.Sleep(time.Second)
	}
}

func (w *crashWorld) allRun() string {
	running, pods := 0, 0
	memapi.Each(w.API, func(p *corev1.Pod) {
		pods++
		if p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
			running++
		}
	})
	if running == crashPods && pods == crashPods {
		return ""
	}
	return fmt.Sprintf("%d of %d pods run", running, pods)
}

func (w *crashWorld) same() string {
	var machines, claims, nodes []string
	for _, m := range w.Cloud.Machines() {
		machines = append(machines, m.ProviderID)
	}
	memapi.Each(w.API, func(c *v1.NodeClaim) { claims = append(claims, c.Status.ProviderID) })
	memapi.Each(w.API, func(n *corev1.Node) { nodes = append(nodes, n.Spec.ProviderID) })
	for _, ids := range [][]string{machines, claims, nodes} {
		slices.Sort(ids)
	}
	if slices.Equal(machines, claims) && slices.Equal(claims, nodes) {
		return ""
	}
	return fmt.Sprintf("%d machines, %d claims, %d nodes", len(machines), len(claims), len(nodes))
}

func (w *crashWorld) nothing() string {
	if why := w.same(); why != "" || len(w.Cloud.Machines()) > 0 {
		return fmt.Sprintf("%s; %d machines", why, len(w.Cloud.Machines()))
	}
	return ""
}
