// Package buffer keeps room for the pods that CapacityBuffers, and with foresight other objects, announce: it finds out which pods
// those are (core/buffer, core/foresight), looks where there is room for them after all pods of users, has nodes opened for the rest, and
// tells the owners.
//
// The pods exist in the store only, as spares, and no plan is noted for them. So planning for pods of users does not see them: their
// room is given up the moment a pod needs it, and bought again afterwards. Disruption looks where they rest.
package buffer

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	autoscalingv1beta1 "karpenter.sh/karpenter/api/autoscaling/v1beta1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/buffer"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/forecast"
	"karpenter.sh/karpenter/internal/core/foresight"
	"karpenter.sh/karpenter/internal/kit/bug"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// name is this loop's name in logs and metrics.
const name = "capacitybuffer"

const (
	// lookInterval is how often buffers are looked at. Nothing is worked out again while nothing changed.
	lookInterval = time.Second
	// workloadInterval is how often workloads are read, which are not watched.
	workloadInterval = 30 * time.Second
	// firstRetry is when a workload that does not exist or could not be read is read again, and twice as late each time, up to
	// workloadInterval: users often create it just after the buffer.
	firstRetry = 2 * time.Second
	// callTime bounds one read.
	callTime = 10 * time.Second
)

// planner answers where pods go.
type planner interface {
	Plan(in engine.Question) *engine.Plan
}

// workloads reads what a buffer names. A flaw is the owner's to mend, an error may pass by itself.
type workloads interface {
	Read(ctx context.Context, namespace string, ref *autoscalingv1beta1.ScalableRef) (buffer.Source, *buffer.Flaw, error)
}

// catalogs gives the pools that our provider serves, with their instance types.
type catalogs interface {
	Pools(ctx context.Context, snap *cluster.Snapshot) (pools map[string]engine.Pool, notReady map[string]bool)
}

// opener creates claims.
type opener interface {
	Open(ctx context.Context, seed, reason string, openings []engine.Opening) ([]*v1.NodeClaim, error)
}

// learner says for which pods room is to be kept because such pods came on earlier days.
type learner interface {
	Turn(ctx context.Context, snap *cluster.Snapshot, now time.Time, lead, ahead time.Duration) []forecast.Room
}

// Deps are what the loop works with.
type Deps struct {
	Store     *cluster.Store
	Client    client.Client
	Workloads workloads
	Catalogs  catalogs
	Opener    opener
	Engine    planner // nothing else's
	Metrics   *telemetry.Metrics
	Events    *telemetry.Events
	Learner   learner // nil where nothing is learned
}

// Settings of the loop.
type Settings struct {
	// Foresight says that room is kept also for the pods that CronJobs, autoscalers and rollouts announce.
	Foresight bool

	Idle, Max time.Duration // how long what is missing must stay the same before it is bought, and the longest that is waited for
	Engine    engine.Settings
}

// Loop keeps the room of every buffer.
type Loop struct {
	Deps
	settings Settings
	watched  *telemetry.Loop
	known    map[types.NamespacedName]*resolved
	aside    bug.Aside[types.NamespacedName] // buffers over which the engine panicked
	alone    time.Time                       // until when room is looked for without pods of users, because the engine panicked over them
	missing  missing
	ahead    ahead
	news     uint64    // Snapshot.News when room was last looked for
	until    time.Time // when it is looked for again at the latest
	failures int       // looks in a row whose claims could not be created
}

// resolved is what is known of one buffer.
type resolved struct {
	uid        types.UID
	generation int64
	template   *corev1.PodTemplate
	next       time.Time // when its workload is read again
	schedule   [3]string // its annotations
	begins     time.Time // of the window of its schedule in which it keeps room, zero without a schedule
	failures   int

	flaw *buffer.Flaw
	pod  *corev1.Pod // the first of its pods
	from buffer.Source
	note buffer.Note

	tally  buffer.Tally // how many of its pods have room
	toldAt time.Time    // when its status was last written
}

// New returns a loop that has not started.
func New(d Deps, s Settings) *Loop {
	return &Loop{Deps: d, settings: s, known: map[types.NamespacedName]*resolved{}}
}

// Run works until ctx ends.
func (l *Loop) Run(ctx context.Context) error {
	ctx = telemetry.WithController(ctx, name)
	l.watched = l.Metrics.Loop(name, 1)
	defer l.Metrics.End(l.watched)
	for {
		err := l.watched.Turn(ctx, "looking after capacity buffers", l.turn)
		if err != nil && ctx.Err() == nil {
			telemetry.Log(ctx).Error("looking after capacity buffers failed", "error", err)
		}
		if !l.watched.Wait(ctx, lookInterval, nil) {
			return nil
		}
	}
}

// turn brings the spares up to date, looks for room for them, and writes the status of buffers. What fails is tried again in the next
// turn.
func (l *Loop) turn(ctx context.Context) error {
	now := time.Now()
	snap := l.Store.Snapshot()
	if !snap.Synced() {
		return nil
	}
	l.announce(ctx, snap, now)
	errs := []error{l.resolve(ctx, snap, now), l.room(ctx, l.Store.Snapshot(), now), l.tell(ctx, l.Store.Snapshot(), now)}
	return errors.Join(errs...)
}

func keyOf(b *autoscalingv1beta1.CapacityBuffer) types.NamespacedName {
	return types.NamespacedName{Namespace: b.Namespace, Name: b.Name}
}

// resolve brings the spares of every buffer up to date, each for itself.
func (l *Loop) resolve(ctx context.Context, snap *cluster.Snapshot, now time.Time) error {
	var errs []error
	there := map[types.NamespacedName]bool{}
	for b := range cluster.Buffers.All(snap) {
		key := keyOf(b)
		if !b.Active() { // another autoscaler's, or on its way out
			if snap.SparesOf(b.Namespace, b.Name) != nil {
				l.Store.Update(func(d *cluster.Draft) { d.DropSpares(b.Namespace, b.Name) })
			}
			continue
		}
		there[key] = true
		r := l.known[key]
		if r == nil || r.uid != b.UID {
			r = &resolved{uid: b.UID}
			l.known[key] = r
		}
		if r.fresh(snap, b, now) {
			continue
		}
		if err := l.one(ctx, snap, b, r, now); err != nil {
			errs = append(errs, fmt.Errorf("CapacityBuffer %s: %w", key, err))
		}
	}
	for key := range l.known {
		if !there[key] {
			delete(l.known, key)
		}
	}
	return errors.Join(errs...)
}

// fresh reports whether neither the buffer, its schedule nor its PodTemplate has changed, and it is not time to read its workload again.
func (r *resolved) fresh(snap *cluster.Snapshot, b *autoscalingv1beta1.CapacityBuffer, now time.Time) bool {
	var template *corev1.PodTemplate
	if ref := b.Spec.PodTemplateRef; ref != nil {
		template = cluster.PodTemplates.Get(snap, b.Namespace, ref.Name)
	}
	return r.generation == b.Generation && r.schedule == scheduleOf(b) && r.template == template && now.Before(r.next)
}

// scheduleOf returns the annotations that say when a buffer keeps room.
func scheduleOf(b *autoscalingv1beta1.CapacityBuffer) [3]string {
	return [3]string{b.Annotations[v1.ScheduleAnnotationKey], b.Annotations[v1.ScheduleDurationAnnotationKey],
		b.Annotations[v1.ScheduleTimeZoneAnnotationKey]}
}

// one resolves a buffer and puts the pods that it asks for into the store. If its workload cannot be read now, they stay as they were,
// and the read is repeated sooner. A panic in Resolve becomes a flaw of this buffer, so that other buffers are not affected.
func (l *Loop) one(ctx context.Context, snap *cluster.Snapshot, b *autoscalingv1beta1.CapacityBuffer, r *resolved, now time.Time) error {
	from, flaw, err := l.source(ctx, snap, b, r)
	if err != nil {
		r.next = now.Add(min(firstRetry<<min(r.failures, 4), workloadInterval))
		r.failures++
		if snap.SparesOf(b.Namespace, b.Name) == nil {
			r.flaw = &buffer.Flaw{Code: buffer.Unreadable, Value: err.Error()}
			l.put(b, nil)
		}
		return err
	}
	r.generation, r.schedule, r.next = b.Generation, scheduleOf(b), now.Add(workloadInterval)
	if flaw != nil && flaw.Code == buffer.WorkloadNotFound {
		r.next = now.Add(min(firstRetry<<min(r.failures, 4), workloadInterval))
		r.failures++
	} else {
		r.failures = 0
	}
	ask := buffer.Ask{}
	window := foresight.Window{Open: true}
	if r.schedule != [3]string{} {
		r.next = now.Add(lookInterval)
		var ok bool
		if window, ok = foresight.WindowOf(b.Annotations, now, l.ahead.reach(snap, now)); !ok {
			flaw = &buffer.Flaw{Code: buffer.BadSchedule}
		}
	}
	if flaw == nil && !window.Open {
		ask.Note.Code = buffer.OffSchedule
	} else if flaw == nil {
		err = func() (err error) {
			defer bug.Catch(&err, "resolving CapacityBuffer "+keyOf(b).String())
			ask, flaw = buffer.Resolve(b, from)
			ask = ask.Beside(l.others(b))
			return nil
		}()
	}
	if err != nil {
		l.watched.Panicked()
		flaw = &buffer.Flaw{Code: buffer.Unreadable,
			Value: "Karpenter runs into a bug of its own over this buffer; please report it: " + err.Error()}
	}
	r.flaw, r.from, r.note = flaw, from, ask.Note
	old := snap.SparesOf(b.Namespace, b.Name)
	if old == nil || !r.same(old, ask.Pods) || !r.begins.Equal(window.From) {
		l.Store.Update(func(d *cluster.Draft) { d.AnnounceSpares(b.Namespace, b.Name, window.From, ask.Pods) })
	}
	r.begins = window.From
	if r.pod = nil; len(ask.Pods) > 0 {
		r.pod = ask.Pods[0]
	}
	return err
}

// others returns for how many pods other buffers keep room.
func (l *Loop) others(b *autoscalingv1beta1.CapacityBuffer) (n int) {
	for s := range l.Store.Snapshot().Spares() {
		if s.Namespace != b.Namespace || s.Buffer != b.Name {
			n += len(s.Pods)
		}
	}
	return n
}

func (l *Loop) put(b *autoscalingv1beta1.CapacityBuffer, pods []*corev1.Pod) {
	l.Store.Update(func(d *cluster.Draft) { d.PutSpares(b.Namespace, b.Name, pods) })
}

// same reports whether a buffer asks for the same pods as before. All pods of a buffer are alike, so the first ones are compared.
func (r *resolved) same(old *cluster.Spares, pods []*corev1.Pod) bool {
	if len(old.Pods) != len(pods) {
		return false
	}
	return len(pods) == 0 || r.pod != nil && equality.Semantic.DeepEqual(r.pod, pods[0])
}

// source finds the object from which the shape of a buffer's pods is taken: a PodTemplate in the snapshot, or a workload that is read
// from the API server. It sets r.template.
func (l *Loop) source(ctx context.Context, snap *cluster.Snapshot, b *autoscalingv1beta1.CapacityBuffer,
	r *resolved) (buffer.Source, *buffer.Flaw, error) {
	r.template = nil
	if flaw := buffer.Check(b); flaw != nil {
		return buffer.Source{}, flaw, nil
	}
	if ref := b.Spec.PodTemplateRef; ref != nil {
		r.template = cluster.PodTemplates.Get(snap, b.Namespace, ref.Name)
		if r.template == nil {
			return buffer.Source{}, &buffer.Flaw{Code: buffer.TemplateNotFound, Name: ref.Name, Value: b.Namespace}, nil
		}
		return buffer.Source{Template: &r.template.Template, Generation: r.template.Generation}, nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	return l.Workloads.Read(ctx, b.Namespace, b.Spec.ScalableRef)
}
