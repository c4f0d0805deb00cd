package fakecloud

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
)

// Options say what kind of cloud it is. Only Catalog is required.
type Options struct {
	// Catalog returns what can be bought for a pool: the same pointer while nothing changed. At launch it is asked with a
	// pool that holds no more than the name and the node class reference of the claim.
	Catalog func(pool *v1.NodePool) (*cloud.Catalog, error)
	// Started is called when a machine has booted, Stopped when it is gone for good; each in a goroutine of its own.
	Started, Stopped func(cloud.Machine)
	// Rebooted is called when a machine begins to boot anew, in a goroutine of its own; nil where reboots change nothing.
	Rebooted func(cloud.Machine)
	// Boot is how long a machine takes from launch to Started; nil for no time at all.
	Boot func(cloud.Machine) time.Duration
	// Shutdown is how long a machine takes from Terminate until it is gone.
	Shutdown time.Duration
	// Lag is how long Get and List do not see a new machine.
	Lag time.Duration
	// Image returns the image that new machines start from; nil for "ami-fake". Machines with another one have drifted. Claims may go back
	// to those that it returned before.
	Image func() string
	// Journal names a file in which the machines are kept; empty for none.
	Journal string
}

// dryFor is how long an offering counts as unavailable after a launch found it so.
const dryFor = 3 * time.Minute

// NodeClass is the kind of node class that this cloud serves.
var NodeClass = awsv1.GroupVersion.WithKind(awsv1.Kind)

// A Cloud is a cloud.Provider.
type Cloud struct {
	options Options

	mu       sync.Mutex
	machines map[string]*machine // by provider id, the gone ones too: a token stays used for ever
	byToken  map[string]string   // launch token → provider id
	stock    map[Where]int       // what is left of it; missing: as much as one likes
	drift    map[string]cloud.DriftReason
	images   map[string]bool // that machines started from
	fault    func(Call) Fault
	seenDry  map[offeringKey]time.Time
	catalogs map[*cloud.Catalog]*view
	journal  *journal
	launches int
	reboots  map[string]bool // operations

	asking sync.Mutex // held while a fault is asked
}

// A machine is one line of the journal.
type machine struct {
	cloud.Machine
	UID    types.UID
	Token  string
	Booted bool
	Gone   bool
	Stop   time.Time // when it will be gone, once Deleting
}

// New makes a cloud, with the machines of its journal if there is one.
func New(o Options) (*Cloud, error) {
	c := &Cloud{
		options: o, machines: map[string]*machine{}, byToken: map[string]string{}, stock: map[Where]int{},
		drift: map[string]cloud.DriftReason{}, seenDry: map[offeringKey]time.Time{}, catalogs: map[*cloud.Catalog]*view{},
		reboots: map[string]bool{},
	}
	if o.Journal == "" {
		return c, nil
	}
	old, j, err := openJournal(o.Journal)
	if err != nil {
		return nil, err
	}
	c.journal = j
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range old {
		c.machines[m.ProviderID], c.byToken[m.Token] = m, m.ProviderID
		switch {
		case m.Gone:
		case m.Deleting:
			c.stopLater(m)
		case !m.Booted:
			c.bootLater(m)
		}
	}
	return c, nil
}

// Close closes the journal. Machines keep starting and stopping, unrecorded.
func (c *Cloud) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	j := c.journal
	c.journal = nil
	return j.close()
}

// Name implements cloud.Provider.
func (c *Cloud) Name() string { return "fakecloud" }

// NodeClassKinds implements cloud.Provider.
func (c *Cloud) NodeClassKinds() []schema.GroupVersionKind {
	return []schema.GroupVersionKind{NodeClass}
}

// RepairPolicies implements cloud.Provider.
func (c *Cloud) RepairPolicies() []cloud.RepairPolicy {
	return []cloud.RepairPolicy{
		{ConditionType: corev1.NodeReady, Status: corev1.ConditionFalse, Toleration: 30 * time.Minute},
		{ConditionType: corev1.NodeReady, Status: corev1.ConditionUnknown, Toleration: 30 * time.Minute, Reason: ".*"},
		{ConditionType: "StorageReady", Status: corev1.ConditionFalse, Toleration: 10 * time.Minute, Reason: ".*",
			Grace: new(5 * time.Minute)},
		{ConditionType: Mendable, Status: corev1.ConditionFalse, Toleration: 10 * time.Minute, Reason: ".*",
			Grace: new(5 * time.Minute), Reboot: true},
	}
}

// Mendable is the type of a node condition that is False where a reboot may mend the machine.
const Mendable corev1.NodeConditionType = "AcceleratedHardwareReady"

// MayReboot implements cloud.Rebooter.
func (c *Cloud) MayReboot(ctx context.Context, claim *v1.NodeClaim) error {
	_, err := c.begin(ctx, Call{Method: MayReboot, Claim: claim.Name, ProviderID: claim.Status.ProviderID})
	if err != nil {
		return err
	}
	_, err = c.Get(ctx, claim.Status.ProviderID)
	return err
}

// Reboot implements cloud.Rebooter.
func (c *Cloud) Reboot(ctx context.Context, claim *v1.NodeClaim, operation string) error {
	fault, err := c.begin(ctx, Call{Method: Reboot, Claim: claim.Name, ProviderID: claim.Status.ProviderID})
	if err != nil {
		return err
	}
	m, err := c.Get(ctx, claim.Status.ProviderID)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.reboots[operation] && c.options.Rebooted != nil {
		go c.options.Rebooted(m)
	}
	c.reboots[operation] = true
	return fault.end(ctx, Reboot)
}

// Reboots counts the reboots that were asked for.
func (c *Cloud) Reboots() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.reboots)
}

// Catalog implements cloud.Provider.
func (c *Cloud) Catalog(ctx context.Context, pool *v1.NodePool) (*cloud.Catalog, error) {
	if _, err := c.begin(ctx, Call{Method: Catalog}); err != nil {
		return nil, err
	}
	base, err := c.options.Catalog(pool)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.visible(base, time.Now()), nil
}

// Launch implements cloud.Provider.
func (c *Cloud) Launch(ctx context.Context, claim *v1.NodeClaim) (cloud.Machine, error) {
	fault, err := c.begin(ctx, Call{Method: Launch, Claim: claim.Name})
	if err != nil {
		return cloud.Machine{}, err
	}
	base, err := c.options.Catalog(asPool(claim))
	if err != nil {
		return cloud.Machine{}, err
	}
	m, err := c.launch(claim, base)
	if lost := fault.end(ctx, Launch); lost != nil {
		return cloud.Machine{}, lost
	}
	return m, err
}

func (c *Cloud) launch(claim *v1.NodeClaim, base *cloud.Catalog) (cloud.Machine, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	token := string(claim.UID) + claim.Annotations[v1.LaunchTokenAnnotationKey]
	if id, ok := c.byToken[token]; ok {
		m := c.machines[id]
		if m.Gone || m.Deleting {
			return cloud.Machine{}, &cloud.LaunchError{Reason: "MachineGone",
				Message: "the machine of this launch has been stopped already",
				Err:     fmt.Errorf("token %s: %w", token, cloud.ErrNotFound)}
		}
		return c.copy(m), nil
	}
	now := time.Now()
	choice, err := c.buy(claim, c.visible(base, now), now)
	if err != nil {
		return cloud.Machine{}, err
	}
	m := choice.machine(claim, token, now)
	m.ImageID = c.image(claim)
	c.machines[m.ProviderID], c.byToken[token] = m, m.ProviderID
	c.launches++
	c.record(m)
	c.bootLater(m)
	return c.copy(m), nil
}

// Terminate implements cloud.Provider.
func (c *Cloud) Terminate(ctx context.Context, providerID string) error {
	fault, err := c.begin(ctx, Call{Method: Terminate, ProviderID: providerID})
	if err != nil {
		return err
	}
	if err := c.terminate(providerID); err != nil {
		return err
	}
	return fault.end(ctx, Terminate)
}

func (c *Cloud) terminate(providerID string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	m, ok := c.machines[providerID]
	if !ok || m.Gone {
		return fmt.Errorf("terminate %s: %w", providerID, cloud.ErrNotFound)
	}
	c.stop(m)
	return nil
}

// stop begins to stop a machine, once.
func (c *Cloud) stop(m *machine) {
	if m.Deleting {
		return
	}
	m.Deleting, m.Stop = true, time.Now().Add(c.options.Shutdown)
	c.record(m)
	c.stopLater(m)
}

// Vanish makes a machine go at once, as when an operator stops it by hand.
func (c *Cloud) Vanish(providerID string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m := c.machines[providerID]; m != nil && !m.Gone {
		m.Deleting = true
		c.gone(m)
	}
}

// Get implements cloud.Provider.
func (c *Cloud) Get(ctx context.Context, providerID string) (cloud.Machine, error) {
	if _, err := c.begin(ctx, Call{Method: Get, ProviderID: providerID}); err != nil {
		return cloud.Machine{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	m, ok := c.machines[providerID]
	if !ok || m.Gone || !c.lagged(m) {
		return cloud.Machine{}, fmt.Errorf("get %s: %w", providerID, cloud.ErrNotFound)
	}
	return c.copy(m), nil
}

// List implements cloud.Provider.
func (c *Cloud) List(ctx context.Context) ([]cloud.Machine, error) {
	if _, err := c.begin(ctx, Call{Method: List}); err != nil {
		return nil, err
	}
	return c.list(func(m *machine) bool { return c.lagged(m) && (m.Provisioner == "" || m.PoolName != "") }), nil
}

// Inherited implements cloud.Provider.
func (c *Cloud) Inherited(ctx context.Context) ([]cloud.Machine, error) {
	if _, err := c.begin(ctx, Call{Method: Inherited}); err != nil {
		return nil, err
	}
	return c.list(func(m *machine) bool { return c.lagged(m) && m.Provisioner != "" }), nil
}

// Bequeath makes a machine look as if a Karpenter without NodeClaims had launched it.
func (c *Cloud) Bequeath(providerID, provisioner string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.machines[providerID]
	m.Provisioner, m.PoolName, m.ClaimName = provisioner, "", ""
	c.record(m)
}

// Adopt implements cloud.Provider.
func (c *Cloud) Adopt(ctx context.Context, claim *v1.NodeClaim, providerID string) (cloud.Machine, error) {
	fault, err := c.begin(ctx, Call{Method: Adopt, Claim: claim.Name, ProviderID: providerID})
	if err != nil {
		return cloud.Machine{}, err
	}
	m, err := c.adopt(claim, providerID)
	if lost := fault.end(ctx, Adopt); lost != nil {
		return cloud.Machine{}, lost
	}
	return m, err
}

func (c *Cloud) adopt(claim *v1.NodeClaim, providerID string) (cloud.Machine, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m, ok := c.machines[providerID]
	pool := claim.Labels[v1.NodePoolLabelKey]
	if !ok || m.Gone || m.Provisioner == "" || m.PoolName != "" && m.PoolName != pool {
		return cloud.Machine{}, fmt.Errorf("adopt %s: %w", providerID, cloud.ErrNotFound)
	}
	m.PoolName, m.ClaimName = pool, claim.Name
	c.record(m)
	return c.copy(m), nil
}

// Machines returns what really runs, whatever List would see.
func (c *Cloud) Machines() []cloud.Machine {
	return c.list(func(*machine) bool { return true })
}

func (c *Cloud) list(see func(*machine) bool) []cloud.Machine {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []cloud.Machine
	for _, m := range c.machines {
		if !m.Gone && see(m) {
			all = append(all, c.copy(m))
		}
	}
	slices.SortFunc(all, func(a, b cloud.Machine) int { return cmp.Compare(a.ProviderID, b.ProviderID) })
	return all
}

// Launches counts the machines that were ever started in this process.
func (c *Cloud) Launches() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.launches
}

// SetLatch implements cloud.Provider.
func (c *Cloud) SetLatch(ctx context.Context, providerID string, latched bool) error {
	if _, err := c.begin(ctx, Call{Method: SetLatch, ProviderID: providerID}); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	m, ok := c.machines[providerID]
	if !ok || m.Gone {
		return fmt.Errorf("latch %s: %w", providerID, cloud.ErrNotFound)
	}
	m.Latched = latched
	c.record(m)
	return nil
}

// Drifted implements cloud.Provider.
func (c *Cloud) Drifted(ctx context.Context, claim *v1.NodeClaim) (cloud.DriftReason, error) {
	if _, err := c.begin(ctx, Call{Method: Drifted, Claim: claim.Name, ProviderID: claim.Status.ProviderID}); err != nil {
		return "", err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	m, ok := c.machines[claim.Status.ProviderID]
	if !ok || m.Gone {
		return "", fmt.Errorf("drift of %s: %w", claim.Status.ProviderID, cloud.ErrNotFound)
	}
	if c.options.Image != nil && m.ImageID != c.options.Image() {
		return awsv1.DriftReasonAMI, nil
	}
	return c.drift[claim.Name], nil
}

// image returns the image that the machine of a claim starts from.
func (c *Cloud) image(claim *v1.NodeClaim) string {
	if c.options.Image == nil {
		return "ami-fake"
	}
	now := c.options.Image()
	if c.images == nil {
		c.images = map[string]bool{}
	}
	c.images[now] = true
	for id := range strings.SplitSeq(claim.Annotations[v1.LastGoodImagesAnnotationKey], ",") {
		if c.images[id] {
			return id
		}
	}
	return now
}

func (c *Cloud) lagged(m *machine) bool { return time.Since(m.Created) >= c.options.Lag }

func (c *Cloud) copy(m *machine) cloud.Machine {
	out := m.Machine
	out.Labels, out.Annotations = maps.Clone(m.Labels), maps.Clone(m.Annotations)
	out.Capacity, out.Allocatable = m.Capacity.DeepCopy(), m.Allocatable.DeepCopy()
	return out
}

func (c *Cloud) bootLater(m *machine) {
	var boot time.Duration
	if c.options.Boot != nil {
		boot = c.options.Boot(c.copy(m))
	}
	time.AfterFunc(boot-time.Since(m.Created), func() {
		c.mu.Lock()
		if m.Booted || m.Deleting {
			c.mu.Unlock()
			return
		}
		m.Booted = true
		c.record(m)
		out := c.copy(m)
		c.mu.Unlock()
		if c.options.Started != nil {
			c.options.Started(out)
		}
	})
}

func (c *Cloud) stopLater(m *machine) {
	time.AfterFunc(time.Until(m.Stop), func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.gone(m)
	})
}

func (c *Cloud) gone(m *machine) {
	if m.Gone {
		return
	}
	m.Gone = true
	c.record(m)
	if c.options.Stopped != nil {
		go c.options.Stopped(c.copy(m))
	}
}

func (c *Cloud) record(m *machine) {
	if c.journal != nil {
		c.journal.append(m)
	}
}

// asPool is as much of its pool as a claim knows.
func asPool(claim *v1.NodeClaim) *v1.NodePool {
	pool := &v1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: claim.Labels[v1.NodePoolLabelKey]}}
	pool.Spec.Template.Spec.NodeClassRef = claim.Spec.NodeClassRef
	return pool
}

// providerID is the same for the same token, so that a run can be repeated.
func providerID(zone, token string) string {
	h := fnv.New64a()
	h.Write([]byte(token))
	return fmt.Sprintf("fakecloud:///%s/i-%016x", zone, h.Sum64())
}
