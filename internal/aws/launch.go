package aws

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/aws/bootstrap"
	"karpenter.sh/karpenter/internal/aws/fleet"
	"karpenter.sh/karpenter/internal/aws/launch"
	"karpenter.sh/karpenter/internal/aws/launchspec"
	"karpenter.sh/karpenter/internal/aws/ttl"
	"karpenter.sh/karpenter/internal/core/need"
	"karpenter.sh/karpenter/internal/core/shape"
	"karpenter.sh/karpenter/internal/kit/bug"
	"karpenter.sh/karpenter/internal/kit/parallel"
	"karpenter.sh/karpenter/internal/kit/sleep"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// launches runs at most one launch of a claim at a time, and remembers the outcome for a while, so that a repeated launch buys nothing.
type launches struct {
	base context.Context
	mu   sync.Mutex
	// alone is the time after which every new claim was created under our lease; zero before this process launches anything.
	alone time.Time
	now   map[string]*launching           // launches that run, by claim UID and token
	done  *ttl.Map[string, cloud.Machine] // machines that were launched, by claim UID and token
	// unknown is the time since which a machine may run that we do not know of, by claim UID and token. It is the zero time once EC2 has
	// answered that a launch of the claim gave no machine.
	unknown *ttl.Map[string, time.Time]
	// machines are the machines that were launched in the last minutes, by instance id: EC2 may not show them yet.
	machines *ttl.Map[string, cloud.Machine]
	// leaving are young machines that were told to stop, by instance id. EC2 may not show yet that they were launched, so "not found"
	// does not mean that they are gone.
	leaving *ttl.Map[string, cloud.Machine]
	// gone are instances that EC2 once reported as gone, by id: an older answer of EC2 that comes later does not bring them back.
	gone *ttl.Map[string, struct{}]
}

// A launching is a launch that runs. machine and err are valid once done is closed.
type launching struct {
	pool    string
	begun   time.Time
	done    chan struct{}
	machine cloud.Machine
	err     error
}

const (
	// resultLife is how long a repeated launch gets the same answer without a call to EC2.
	resultLife = 10 * time.Minute
	// handover is how long after its first launch a process may still see claims that the leader before it has launched.
	handover = time.Minute
	// aside is how far our clock may be from EC2's: EC2 rejects calls with a larger difference.
	aside = 5 * time.Minute
	// invisible is how long EC2 may take to show a machine that it launched.
	invisible = 2 * time.Minute
)

// newLaunches returns launches; base ends the calls of all of them.
func newLaunches(base context.Context) *launches {
	return &launches{
		base: base, now: map[string]*launching{},
		done:     ttl.New[string, cloud.Machine](resultLife),
		unknown:  ttl.New[string, time.Time](resultLife),
		machines: ttl.New[string, cloud.Machine](invisible),
		leaving:  ttl.New[string, cloud.Machine](invisible),
		gone:     ttl.New[string, struct{}](resultLife),
	}
}

// do runs a launch, or waits for a running one with the same key. A launch goes on when the context of a caller ends,
// so that its machine is known when the claim is tried again.
func (l *launches) do(ctx context.Context, key, pool string, run func(context.Context) (cloud.Machine, error)) (cloud.Machine, error) {
	if err := ctx.Err(); err != nil {
		return cloud.Machine{}, err
	}
	l.mu.Lock()
	if m, ok := l.done.Get(key); ok {
		l.mu.Unlock()
		return m, nil
	}
	c := l.now[key]
	if c == nil {
		c = &launching{pool: pool, begun: time.Now(), done: make(chan struct{})}
		l.now[key] = c
		go l.run(key, c, run)
	}
	l.mu.Unlock()
	select {
	case <-c.done:
		return c.machine, c.err
	case <-ctx.Done():
		return cloud.Machine{}, ctx.Err()
	}
}

// run runs a launch and stores its outcome: the machine, or that a machine may run unknown to Karpenter.
func (l *launches) run(key string, c *launching, run func(context.Context) (cloud.Machine, error)) {
	func() {
		defer bug.Catch(&c.err, "launching a machine for claim "+key)
		c.machine, c.err = run(l.base)
	}()
	_, panicked := errors.AsType[*bug.Panic](c.err)
	switch {
	case c.err == nil:
		l.done.Sweep()
		l.done.Put(key, c.machine)
		l.unknown.Delete(key)
	case errors.Is(c.err, fleet.ErrLaunchedBefore): // unknown has the earlier launch
	case panicked || fleet.Unsure(c.err) && !isTyped(c.err):
		l.unknown.Sweep()
		l.unknown.Put(key, time.Now())
	}
	l.mu.Lock()
	delete(l.now, key) // after the outcome is stored: a caller that does not find the launch here finds its outcome
	l.mu.Unlock()
	close(c.done)
}

// An unanswered says, for each pool, when the oldest launch that still runs began.
type unanswered map[string]time.Time

// unanswered returns the launches that run now.
func (l *launches) unanswered() unanswered {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := unanswered{}
	for _, c := range l.now {
		if first, ok := out[c.pool]; !ok || c.begun.Before(first) {
			out[c.pool] = c.begun
		}
	}
	return out
}

// awaits reports whether a machine may come from one of these launches. When one call launches for several claims, the machine has no
// tag that names its claim.
func (u unanswered) awaits(m *cloud.Machine) bool {
	begun, launching := u[m.PoolName]
	return launching && m.ClaimName == "" && m.Created.After(begun.Add(-aside))
}

// isTyped reports whether an error is one of the typed errors of package cloud, which all mean that nothing was launched.
func isTyped(err error) bool {
	var dry *cloud.NoCapacityError
	var refused *cloud.LaunchError
	var unready *cloud.ClassNotReadyError
	return errors.As(err, &dry) || errors.As(err, &refused) || errors.As(err, &unready)
}

// mayHaveMachine reports whether a machine may run already for a claim that is to be launched: the leader before this process may have
// launched it and ended before it wrote so. The start of this process does not limit the doubt, because a standby starts long before
// it leads; its first launch plus handover does. handover also covers the difference between our clock and the API server's. A claim
// stays in doubt until it is launched, or until nothingCame.
func (l *launches) mayHaveMachine(claim *v1.NodeClaim, key string) bool {
	if since, known := l.unknown.Get(key); known {
		return !since.IsZero()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if l.alone.IsZero() {
		l.alone = now.Add(handover)
	}
	if now.Before(l.alone) || claim.CreationTimestamp.Time.Before(l.alone) {
		l.unknown.Put(key, now)
		return true
	}
	return false
}

// inDoubt reports whether a machine may run for a claim although EC2 does not show one, because EC2 may need more time for it.
func (l *launches) inDoubt(key string) bool {
	since, known := l.unknown.Get(key)
	return known && time.Since(since) < invisible
}

// nothingCame notes that EC2 answered a launch of the claim without a machine. If EC2 later reports an earlier launch of the same token,
// it means this one, so no machine is in doubt.
func (l *launches) nothingCame(key string) {
	l.unknown.Sweep()
	l.unknown.Put(key, time.Time{})
}

// stopped moves a machine that was told to stop from done and machines to leaving.
func (l *launches) stopped(providerID string) {
	for key, m := range l.done.All() {
		if m.ProviderID == providerID {
			l.done.Delete(key)
		}
	}
	id := instanceID(providerID)
	if m, young := l.machines.Get(id); young {
		m.Deleting = true
		l.leaving.Sweep()
		l.leaving.Put(id, m)
	}
	l.machines.Delete(id)
}

// ended notes that a machine is gone for good.
func (l *launches) ended(providerID string) {
	l.stopped(providerID)
	l.gone.Sweep()
	l.gone.Put(instanceID(providerID), struct{}{})
}

// Launch starts one machine for a claim.
func (ms *machines) Launch(ctx context.Context, claim *v1.NodeClaim) (cloud.Machine, error) {
	key := string(claim.UID) + claim.Annotations[v1.LaunchTokenAnnotationKey]
	return ms.launches.do(ctx, key, claim.Labels[v1.NodePoolLabelKey], func(ctx context.Context) (cloud.Machine, error) {
		defer ms.env.tellIfSlow(claim)()
		return ms.launch(ctx, claim, key)
	})
}

// launch returns the machine that an earlier launch of the claim gave, or buys one. If everything that was chosen is
// sold out, it chooses again among more types.
func (ms *machines) launch(ctx context.Context, claim *v1.NodeClaim, key string) (cloud.Machine, error) {
	if m, ok, err := ms.adopt(ctx, claim, key); err != nil || ok {
		return m, err
	}
	nc, err := ms.classes.readyClassFor(ctx, claim.Spec.NodeClassRef.Name, claim.Annotations)
	if err != nil {
		return cloud.Machine{}, err
	}
	m, err := ms.order(ctx, nc, claim, fleet.Choose)
	for try := 0; try < rechoices && isDry(err); try++ {
		ms.launches.nothingCame(key)
		// What is sold out is known now. The other types of the claim are tried before the claim is given up.
		var again error
		if m, again = ms.order(ctx, nc, claim, fleet.ChooseWidely); errors.Is(again, fleet.ErrNothingFits) {
			break
		}
		err = again
	}
	return m, err
}

// rechoices is how often a launch chooses again after everything that it chose was sold out.
const rechoices = 3

// isDry reports whether everything that was chosen is sold out; a claim that no type fits is not dry.
func isDry(err error) bool {
	var dry *cloud.NoCapacityError
	return errors.As(err, &dry) && !errors.Is(err, fleet.ErrNothingFits)
}

// order chooses from what is available now and buys it.
func (ms *machines) order(ctx context.Context, nc *awsv1.EC2NodeClass, claim *v1.NodeClaim, choose chooser) (m cloud.Machine, err error) {
	catalog, err := ms.market.catalogFor(ctx, nc, claim.Labels[v1.NodePoolLabelKey])
	if err != nil {
		return cloud.Machine{}, &cloud.LaunchError{Reason: "InstanceTypeResolutionFailed", Message: err.Error(), Err: err}
	}
	types, launched := ms.inShare(asReckoned(catalog.Types, claim), claim, choose)
	defer launched()
	claim, done := ms.place(nc, claim, types)
	defer func() { done(isDry(err)) }()
	choice, err := choose(types, claim, shape.SpotBand(ms.env.settings.Spot.Types))
	if err != nil {
		return cloud.Machine{}, &cloud.NoCapacityError{Err: err}
	}
	if inflexible(claim, choice) {
		telemetry.Log(ctx).WarnContext(ctx, "a claim that may run on spot runs on demand, with few instance types to "+
			"choose from; more of them make spot likelier",
			"NodeClaim", claim.Name, "types", len(choice.Candidates))
	}
	if narrow(choice) {
		ms.env.reportNarrow(claim, len(choice.Candidates))
	}
	m, err = ms.buy(ctx, nc, claim, choice)
	for wait := firstWait; templateGone(err) && wait <= lastWait && sleep.For(ctx, wait); wait *= 2 {
		// buy has forgotten the template and makes it again; or EC2 does not see the new one yet.
		m, err = ms.buy(ctx, nc, claim, choice)
	}
	return m, err
}

// flexible is how many types to choose from EC2 recommends at least.
const flexible = 5

// inflexible reports whether a claim that allows spot gets an on-demand machine, and allows so few types that this may be the reason.
func inflexible(claim *v1.NodeClaim, choice fleet.Choice) bool {
	return choice.CapacityType == v1.CapacityTypeOnDemand && len(choice.Candidates) < flexible &&
		need.Of(claim.Spec.Requirements).AllowValue(v1.CapacityTypeLabelKey, v1.CapacityTypeSpot)
}

// narrow reports whether a spot machine is bought from few types, because the claim has no more that cost less than on-demand. When EC2
// takes back the capacity of one type, a large part of such nodes may go.
func narrow(choice fleet.Choice) bool {
	return choice.CapacityType == v1.CapacityTypeSpot && len(choice.Candidates) < flexible
}

// A launch whose template EC2 does not know yet is repeated after firstWait, twice that, and so on.
const (
	firstWait = 500 * time.Millisecond
	lastWait  = 8 * firstWait
)

// templateGone reports whether EC2 does not know a launch template: it was deleted, or was made a moment ago.
func templateGone(err error) bool {
	return err != nil && strings.Contains(err.Error(), "InvalidLaunchTemplateName.NotFoundException")
}

// buy makes the launch templates of a choice, asks EC2 for one machine and returns it. Where that fails, it notes what the failure
// shows: templates that are gone, reservations that are used up.
func (ms *machines) buy(ctx context.Context, nc *awsv1.EC2NodeClass, claim *v1.NodeClaim, choice fleet.Choice) (cloud.Machine, error) {
	cluster, err := ms.classes.cluster(ctx, nc.AMIFamily())
	if err != nil {
		return cloud.Machine{}, fleet.ErrorOfCall(err)
	}
	spec, err := launchspec.Make(cluster, nc, claim, choice)
	if errors.Is(err, bootstrap.ErrNoServiceCIDR) {
		return cloud.Machine{}, &cloud.ClassNotReadyError{Err: err}
	}
	if err != nil {
		return cloud.Machine{}, &cloud.LaunchError{Reason: "LaunchTemplateResolutionFailed", Message: err.Error(), Err: err}
	}
	if err := ms.ensure(ctx, spec); err != nil {
		return cloud.Machine{}, fleet.ErrorOfCall(err)
	}
	called := time.Now()
	spec.Order.InDoubt = ms.launches.inDoubt(spec.Order.Token)
	got, err := ms.fleet.Launch(ctx, spec.Order)
	if err != nil {
		ms.noteFailure(choice, spec, err)
		if message, ok := fleet.LacksServiceRole(err); ok {
			ms.env.in.Events.Publish(telemetry.Event{
				Object: telemetry.ClaimRef(claim), Reason: telemetry.SpotServiceRoleMissing, Message: message,
				Key: []string{string(claim.UID)},
			})
		}
		return cloud.Machine{}, err
	}
	return ms.bought(nc, claim, choice, got, called)
}

// ensure makes the templates of a launch in parallel.
func (ms *machines) ensure(ctx context.Context, spec *launchspec.Spec) error {
	making := func(t *launch.Template) string { return "making launch template " + t.Name() }
	return errors.Join(parallel.Of(spec.Templates, len(spec.Templates), making, func(t *launch.Template) error {
		_, err := ms.classes.templates.Ensure(ctx, t)
		return err
	})...)
}

// noteFailure forgets templates that EC2 does not know, and marks reservations as used up that gave no machine.
func (ms *machines) noteFailure(choice fleet.Choice, spec *launchspec.Spec, err error) {
	if templateGone(err) {
		for _, t := range spec.Order.Templates {
			ms.classes.templates.Forget(t.Name)
		}
	}
	var dry *cloud.NoCapacityError
	if choice.CapacityType == v1.CapacityTypeReserved && errors.As(err, &dry) {
		for _, t := range spec.Templates {
			ms.market.reservations.UsedUp(t.ReservationID)
		}
	}
}

// bought returns the machine that a launch gave, with labels and capacity, and remembers it; called is when the launch began.
func (ms *machines) bought(nc *awsv1.EC2NodeClass, claim *v1.NodeClaim, choice fleet.Choice, got fleet.Launched,
	called time.Time) (cloud.Machine, error) {
	for _, c := range choice.Candidates {
		for _, o := range c.Offerings {
			if c.Type.Name != got.InstanceType || o.Zone() != got.Zone {
				continue
			}
			efa := launchspec.EFAInterfaces(nc, claim, c.Type)
			m := cloud.Machine{
				ProviderID: providerID(got.Zone, got.InstanceID), ClaimName: claim.Name, PoolName: claim.Labels[v1.NodePoolLabelKey],
				InstanceType: got.InstanceType, ImageID: got.ImageID, Zone: got.Zone, CapacityType: choice.CapacityType,
				Labels:      launchspec.Labels(c.Type, o, launchspec.Tenancy(claim)),
				Annotations: ms.classes.annotations(nc), Created: time.Now(),
			}
			m.Labels[awsv1.LabelNodeClass] = nc.Name
			m.Capacity, m.Allocatable = launchspec.Resources(c.Type, efa)
			if id := o.Labels[awsv1.LabelCapacityReservationID]; id != "" {
				ms.market.reservations.Launched(id, called)
			}
			ms.launches.machines.Sweep()
			ms.launches.machines.Put(got.InstanceID, m)
			return m, nil
		}
	}
	// Garbage collection stops it, as a machine without a claim.
	return cloud.Machine{}, &cloud.LaunchError{Reason: v1.ReasonLaunchFailed, Err: errUnexpected,
		Message: fmt.Sprintf("EC2 launched %s in %s, which was not asked for", got.InstanceType, got.Zone)}
}

var errUnexpected = errors.New("the launched machine was not asked for")

// zonesOf counts the machines of a pool by zone: those of claims, and those of the last minutes that no claim names yet.
func (ms *machines) zonesOf(pool string) map[string]int {
	out, known := map[string]int{}, map[string]bool{}
	for claim := range ms.env.claims.Each() {
		if zone := claim.Labels[corev1.LabelTopologyZone]; zone != "" && claim.DeletionTimestamp == nil &&
			claim.Labels[v1.NodePoolLabelKey] == pool {
			out[zone]++
			known[claim.Status.ProviderID] = true
		}
	}
	for _, m := range ms.launches.machines.All() {
		if m.PoolName == pool && !known[m.ProviderID] {
			out[m.Zone]++
		}
	}
	return out
}

// annotations returns the annotations by which a claim remembers its class as it was at launch.
func (c *classes) annotations(nc *awsv1.EC2NodeClass) map[string]string {
	out := map[string]string{awsv1.AnnotationInstanceProfileName: nc.Status.InstanceProfile}
	for _, key := range []string{awsv1.AnnotationNodeClassHash, awsv1.AnnotationNodeClassHashVersion} {
		if value, ok := nc.Annotations[key]; ok {
			out[key] = value
		}
	}
	return out
}

// adopt returns the machine of an earlier launch of the claim, false if there is none. The answer of that launch was lost, or an earlier
// leader began it.
func (ms *machines) adopt(ctx context.Context, claim *v1.NodeClaim, key string) (cloud.Machine, bool, error) {
	if !ms.launches.mayHaveMachine(claim, key) {
		return cloud.Machine{}, false, nil
	}
	found, err := ms.fleet.OfClaim(ctx, claim.Name)
	if err != nil {
		return cloud.Machine{}, false, fmt.Errorf("look for the claim's machine: %w", err)
	}
	for _, i := range found {
		m := ms.machine(ctx, i, ms.claimsByMachine)
		if m.Deleting {
			continue
		}
		m.ClaimName = claim.Name
		if nc, ok := ms.classes.objects.Get(claim.Spec.NodeClassRef.Name); ok {
			m.Annotations = ms.classes.annotations(nc)
		}
		return m, true, nil
	}
	return cloud.Machine{}, false, nil
}

// readyClass returns a class that can be launched.
func (c *classes) readyClass(ctx context.Context, name string) (*awsv1.EC2NodeClass, error) {
	if !c.objects.WaitForSync(ctx) {
		return nil, ctx.Err()
	}
	nc, ok := c.objects.Get(name)
	switch {
	case !ok: // it may have been created at the same moment as the pool that refers to it
		return nil, &cloud.ClassNotReadyError{Err: fmt.Errorf("EC2NodeClass %s does not exist", name), Unjudged: true}
	case nc.DeletionTimestamp != nil:
		return nil, &cloud.ClassNotReadyError{Err: fmt.Errorf("EC2NodeClass %s is being deleted", name)}
	}
	ready := condition.Get(nc, awsv1.ConditionTypeReady)
	switch {
	case ready == nil || ready.Status == metav1.ConditionUnknown:
		return nil, &cloud.ClassNotReadyError{Err: fmt.Errorf(
			"EC2NodeClass %s: it is not known yet whether it is ready: %s", name, notReady(nc)), Unjudged: true}
	case ready.Status == metav1.ConditionFalse:
		return nil, &cloud.ClassNotReadyError{Err: fmt.Errorf("EC2NodeClass %s: %s", name, notReady(nc))}
	case !classChecked(nc):
		return nil, &cloud.ClassNotReadyError{Err: fmt.Errorf("EC2NodeClass %s was changed and is not checked yet", name), Unjudged: true}
	case nc.Spec.PlacementGroupSelector != nil && nc.Status.PlacementGroup == nil: // found, and not kept: else it were not ready
		return nil, &cloud.ClassNotReadyError{Err: fmt.Errorf(
			"EC2NodeClass %s: the CustomResourceDefinition has no status.placementGroup; apply the one that comes with "+
				"this version of Karpenter", name), Unjudged: true}
	}
	return nc, nil
}

// notReady returns in one line why a class is not ready: the message of Ready, and the first message of a condition that does not only
// wait for other conditions.
func notReady(nc *awsv1.EC2NodeClass) string {
	ready := condition.Get(nc, awsv1.ConditionTypeReady)
	if ready == nil {
		return "it was not looked up yet"
	}
	for _, t := range nc.ConditionRules().Dependents {
		c := condition.Get(nc, t)
		if c != nil && c.Status != metav1.ConditionTrue && c.Message != "" &&
			c.Reason != awsv1.ReasonDependenciesNotReady && c.Reason != condition.ReasonAwaitingReconciliation {
			return ready.Message + " (" + c.Message + ")"
		}
	}
	return ready.Message
}
