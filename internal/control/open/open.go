// Package open creates the NodeClaims of a plan, each exactly once, and records them in the store.
//
// The name of a claim is derived from its plan, so that repeating a create whose answer was lost finds the claim that the
// first attempt made. Before a claim is created, its pool's limits are confirmed against the newest snapshot together
// with everything that is being created at this moment; what would exceed them is not created. A created claim
// and the pods that it is for are in the store before Open or Replace returns.
//
// open.go creates claims, limits.go and quotas.go decide whether they may be created, share.go divides what limits leave among them.
package open

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/history/journal"
	"karpenter.sh/karpenter/internal/kit/parallel"
	"karpenter.sh/karpenter/internal/kit/sleep"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

const (
	// atOnce is how many claims are created at the same time.
	atOnce = 100
	// attempts is how often a create is tried whose outcome is not known, pausing in between.
	attempts = 4
	retryIn  = 250 * time.Millisecond
	// callTime bounds one create. A call that takes longer may or may not have worked, and is repeated.
	callTime = 10 * time.Second
	// names is how many names are tried for one claim if other claims have them.
	names = 8
)

// catalogs gives the instance types of pools.
type catalogs interface {
	Pools(ctx context.Context, snap *cluster.Snapshot) (pools map[string]engine.Pool, notReady map[string]bool)
}

// Service creates claims for all loops. It may be used concurrently.
type Service struct {
	Journal *journal.Journal // may be nil

	store    *cluster.Store
	client   client.Client
	catalogs catalogs
	metrics  *telemetry.Metrics
	events   *telemetry.Events

	mu       sync.Mutex
	reserved map[taskKey]reservation // claims that are being created
}

// New returns a service.
func New(store *cluster.Store, c client.Client, catalogs catalogs, m *telemetry.Metrics, e *telemetry.Events) *Service {
	return &Service{store: store, client: c, catalogs: catalogs, metrics: m, events: e, reserved: map[taskKey]reservation{}}
}

// A LimitError says that a claim was not created because it would exceed a limit of its pool or of a CapacityQuota.
type LimitError struct {
	Pool     string
	Quota    string // "" where it is the pool's own limit
	Resource corev1.ResourceName
	// Needs is what the smallest machine has that the claim lists; Used is what the pool has, with what is being opened at this moment.
	Limit, Used, Needs resource.Quantity
}

func (e *LimitError) Error() string {
	if e.Quota != "" {
		return fmt.Sprintf("CapacityQuota %s would exceed its limit of %s: %s are allowed, %s used, and the smallest machine has %s",
			e.Quota, e.Resource, e.Limit.String(), e.Used.String(), e.Needs.String())
	}
	return fmt.Sprintf("pool %s would exceed its limit of %s: %s are allowed, %s used, and the smallest machine of the claim has %s",
		e.Pool, e.Resource, e.Limit.String(), e.Used.String(), e.Needs.String())
}

// RefusedBy names the pool.
func (e *LimitError) RefusedBy() string { return e.Pool }

// A PoolError says that a claim was not created because its pool may not get nodes now.
type PoolError struct{ Pool, Why string }

func (e *PoolError) Error() string { return fmt.Sprintf("pool %s %s", e.Pool, e.Why) }

// RefusedBy names the pool.
func (e *PoolError) RefusedBy() string { return e.Pool }

// Open creates one claim for each opening, for pods that have no place or for a pool with a fixed number of nodes. seed names the
// decision: the same seed and openings give the same names, and claims that were created under these names before are returned
// unchanged. reason is for the metric. The result has an entry for each opening, nil if no claim was created; the error joins all
// failures.
func (s *Service) Open(ctx context.Context, seed, reason string, openings []engine.Opening) ([]*v1.NodeClaim, error) {
	tasks := s.tasks(seed, reason, openings, nil)
	s.admit(ctx, tasks, leaving)
	return s.createAll(ctx, tasks)
}

// Replace is Open for nodes that replace others, with annotations for their claims. If limits refuse one of them, none is created.
func (s *Service) Replace(ctx context.Context, seed, reason string, r engine.Replacement,
	annotations map[string]string) ([]*v1.NodeClaim, error) {
	tasks := s.tasks(seed, reason, r.Open, annotations)
	s.admit(ctx, tasks, replaced(r.Of))
	if err := s.refuse(tasks); err != nil {
		return make([]*v1.NodeClaim, len(tasks)), err
	}
	return s.createAll(ctx, tasks)
}

// tasks makes a task with a complete claim for each opening.
func (s *Service) tasks(seed, reason string, openings []engine.Opening, annotations map[string]string) []task {
	tasks := make([]task, len(openings))
	for i, name := range s.Names(seed, openings) {
		tasks[i] = task{key: taskKey{seed, name}, opening: &openings[i], seed: seed, reason: reason,
			claim: prepare(&openings[i], name, annotations)}
	}
	return tasks
}

// createAll creates the claims of the tasks that were admitted, records them in the store, and reports the outcome of each task. It
// returns the claims, nil for tasks without one, and all errors.
func (s *Service) createAll(ctx context.Context, tasks []task) ([]*v1.NodeClaim, error) {
	var admitted []*task
	for i := range tasks {
		if tasks[i].err == nil {
			admitted = append(admitted, &tasks[i])
		}
	}
	failures := parallel.Of(admitted, atOnce, (*task).doing, func(t *task) (err error) {
		defer s.settle(t)
		t.created, err = s.create(ctx, t)
		return err
	})
	for i, err := range failures {
		admitted[i].err = err
	}
	claims := make([]*v1.NodeClaim, len(tasks))
	var errs []error
	for i := range tasks {
		claims[i] = tasks[i].created
		errs = append(errs, tasks[i].err)
		s.report(ctx, &tasks[i])
	}
	return claims, errors.Join(errs...)
}

// doing describes a task, for the report of a panic.
func (t *task) doing() string { return "creating NodeClaim " + t.claim.Name }

// A taskKey identifies a claim that is being created: two decisions may ask for claims of one name at once.
type taskKey struct{ seed, claim string }

// task is one claim on its way.
type task struct {
	key     taskKey // of its reservation
	opening *engine.Opening
	seed    string
	reason  string
	claim   *v1.NodeClaim // as to be created

	confirmed uint64   // revision of the snapshot by which it was admitted
	machines  machines // of its pool

	created *v1.NodeClaim
	found   bool // the claim was created by an earlier attempt
	err     error
}

// prepare completes the claim of an opening.
func prepare(o *engine.Opening, name string, annotations map[string]string) *v1.NodeClaim {
	c := o.Claim.DeepCopy()
	c.Name, c.GenerateName = name, ""
	if !slices.Contains(c.Finalizers, v1.TerminationFinalizer) {
		c.Finalizers = append(c.Finalizers, v1.TerminationFinalizer)
	}
	annotate(c, annotations)
	return c
}

// annotate adds annotations to a claim.
func annotate(c *v1.NodeClaim, annotations map[string]string) {
	if c.Annotations == nil {
		c.Annotations = map[string]string{}
	}
	maps.Copy(c.Annotations, annotations)
}

// create creates the claim of a task, or finds the claim that an earlier attempt created. It tries several names if others have them.
func (s *Service) create(ctx context.Context, t *task) (*v1.NodeClaim, error) {
	for n := range names {
		if n > 0 {
			t.claim.Name = name(t.seed, t.opening, n)
		}
		claim, taken, err := s.createNamed(ctx, t)
		if !taken {
			return claim, err
		}
	}
	return nil, fmt.Errorf("create claim for pool %s: all names are taken", t.opening.Pool)
}

// createNamed creates a claim under the name that it has, with retries while the outcome is not known. taken says that a claim which asks
// for something else has the name.
func (s *Service) createNamed(ctx context.Context, t *task) (claim *v1.NodeClaim, taken bool, err error) {
	for n := range attempts {
		if n > 0 && !sleep.For(ctx, retryIn<<n) {
			break
		}
		claim = t.claim.DeepCopy()
		call, cancel := context.WithTimeout(ctx, callTime)
		err = s.client.Create(call, claim)
		cancel()
		switch {
		case err == nil:
			return claim, false, nil
		case apierrors.IsAlreadyExists(err):
			return s.adopt(ctx, t)
		case final(err):
			return nil, false, fmt.Errorf("create claim %s: %w", t.claim.Name, err)
		}
	}
	return nil, false, fmt.Errorf("create claim %s: %w", t.claim.Name, err)
}

// final reports whether the API server has refused for good, so that nothing was created and asking again is of no use.
func final(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) ||
		apierrors.IsUnauthorized(err) || apierrors.IsNotFound(err) || apierrors.IsRequestEntityTooLargeError(err)
}

// adopt reads the claim that has the name already. If it asks for the same, an earlier attempt created it, and it is returned; otherwise
// taken is true.
func (s *Service) adopt(ctx context.Context, t *task) (claim *v1.NodeClaim, taken bool, err error) {
	claim = &v1.NodeClaim{}
	err = s.client.Get(ctx, client.ObjectKey{Name: t.claim.Name}, claim)
	if apierrors.IsNotFound(err) {
		return nil, true, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("read claim %s: %w", t.claim.Name, err)
	}
	if claim.DeletionTimestamp != nil || !sameRequest(claim, t.claim) {
		return nil, true, nil
	}
	t.found = true
	return claim, false, nil
}

// sameRequest reports whether two claims ask for the same, by the fields that the API server does not fill in.
func sameRequest(have, want *v1.NodeClaim) bool {
	return sameRequirements(have, want) &&
		equality.Semantic.DeepEqual(have.Spec.Resources, want.Spec.Resources) &&
		equality.Semantic.DeepEqual(have.Spec.NodeClassRef, want.Spec.NodeClassRef) &&
		equality.Semantic.DeepEqual(have.Spec.Taints, want.Spec.Taints)
}

// sameRequirements compares requirements. Of the instance types one list may be a part of the other: limits may have left more or fewer
// types when the first claim was created.
func sameRequirements(have, want *v1.NodeClaim) bool {
	a, b := typesOf(have), typesOf(want)
	if a == nil || b == nil {
		return equality.Semantic.DeepEqual(have.Spec.Requirements, want.Spec.Requirements)
	}
	like := want.DeepCopy()
	typesOf(like).Values = a.Values
	within := func(x, y []string) bool {
		return !slices.ContainsFunc(x, func(name string) bool { return !slices.Contains(y, name) })
	}
	return equality.Semantic.DeepEqual(have.Spec.Requirements, like.Spec.Requirements) &&
		(within(a.Values, b.Values) || within(b.Values, a.Values))
}

// settle gives back the reservation of a task. If its claim was created, it puts the claim into the store and plans its pods onto it.
func (s *Service) settle(t *task) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.reserved, t.key)
	if t.created == nil {
		return
	}
	now := time.Now()
	s.store.Update(func(d *cluster.Draft) {
		d.PutClaim(t.created.DeepCopy())
		for _, p := range madePods(t.opening) {
			d.Plan(p.PodKey, t.created.Name, now)
		}
	})
}

// madePods returns the pods of an opening that exist. Spares, for which a buffer keeps room, are left out: they are neither planned nor
// nominated.
func madePods(o *engine.Opening) []*cluster.Pod {
	if !slices.ContainsFunc(o.Pods, func(p *cluster.Pod) bool { return p.Spare != nil }) {
		return o.Pods
	}
	return slices.DeleteFunc(slices.Clone(o.Pods), func(p *cluster.Pod) bool { return p.Spare != nil })
}

// reportNotCreated reports that the API server did not accept a claim: events on its pool and pods, and a record in the journal.
func (s *Service) reportNotCreated(t *task) {
	text := fmt.Sprintf("could not create a NodeClaim: %v", t.err)
	about := []journal.Object{{Kind: "NodePool", Name: t.opening.Pool}}
	if pool := cluster.Pools.Get(s.store.Snapshot(), t.opening.Pool); pool != nil {
		s.events.Publish(telemetry.Event{Object: telemetry.PoolRef(pool), Reason: telemetry.NodeClaimNotCreated,
			Key: []string{string(pool.UID), text}, Message: text})
	}
	for _, p := range madePods(t.opening) {
		about = append(about, journal.Object{Kind: "Pod", Namespace: p.Namespace, Name: p.Name})
		s.events.Publish(telemetry.Event{Object: telemetry.PodRef(p.Namespace, p.Name, p.UID), Reason: telemetry.NodeClaimNotCreated,
			Key: []string{string(p.UID), text}, Message: text})
	}
	s.Journal.Add(journal.Record{Act: journal.Refused, Loop: "opener", Snapshot: t.confirmed,
		Reason: string(telemetry.NodeClaimNotCreated), Text: text, About: about})
}

// report reports a claim that was created, or that was not: log, metric, journal, and events on its pods. Claims of earlier attempts were
// reported then. Refusals by limits are reported by the loop that asked.
func (s *Service) report(ctx context.Context, t *task) {
	pool := t.opening.Pool
	if t.created == nil {
		telemetry.Log(ctx).Error("could not create nodeclaim", "NodePool", pool, "error", t.err)
		if _, told := t.err.(interface{ RefusedBy() string }); !told {
			s.reportNotCreated(t)
		}
		return
	}
	if t.found {
		return
	}
	relaxed := t.created.Annotations[v1.NodeClaimMinValuesRelaxedAnnotationKey]
	if relaxed != "true" {
		relaxed = "false"
	}
	s.metrics.NodeClaimsCreated.WithLabelValues(t.reason, pool, relaxed).Inc()
	telemetry.Log(ctx).Info("created nodeclaim", "NodePool", pool, "NodeClaim", t.created.Name,
		"requests", t.created.Spec.Resources.Requests, "instance-types", telemetry.FirstFew(t.opening.Types,
			telemetry.Itself), "pods", len(madePods(t.opening)),
		"price", t.opening.Price.Dollars())
	s.Journal.Add(s.record(t))
	for _, p := range madePods(t.opening) {
		s.events.Publish(telemetry.Event{
			Object: telemetry.PodRef(p.Namespace, p.Name, p.UID), Reason: telemetry.Nominated, Key: []string{string(p.UID)},
			Message: "Pod should schedule on: nodeclaim/" + t.created.Name,
		})
	}
}
