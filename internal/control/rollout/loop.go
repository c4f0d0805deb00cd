// Package rollout keeps the status of RolloutPolicies: how far each rollout is, which gates do not answer, and what tripped. It decides by
// core/rollout, which the loop of disruption asks how many drifted nodes may go.
//
// When a gate trips it pauses the NodePools by the annotation that "karpenter pause" writes. So conditions, metrics, explanations and
// "karpenter resume" work as they do for a pause of a user, and the stop survives a restart.
package rollout

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
	"karpenter.sh/karpenter/api/label"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/control/status"
	"karpenter.sh/karpenter/internal/core/paused"
	"karpenter.sh/karpenter/internal/core/rollout"
	"karpenter.sh/karpenter/internal/core/surge"
	"karpenter.sh/karpenter/internal/explain/sentence"
	"karpenter.sh/karpenter/internal/kit/patch"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

const (
	lookInterval = 5 * time.Second
	// readyWithin is how long machines and pods may take where a policy does not say so.
	readyWithin = 5 * time.Minute
	// settled is how old a pause must be before pauses ends it: for a while the picture may still show the policy from before the stop.
	settled = time.Minute
	// mostDeployments is how many Deployments are read in one turn for one policy.
	mostDeployments = 20
)

// Deps are what the loop needs.
type Deps struct {
	Store   *cluster.Store
	Client  client.Client
	Metrics *telemetry.Metrics
	Events  *telemetry.Events
	Known   *label.Vocabulary
}

// Loop keeps the status of RolloutPolicies.
type Loop struct {
	Deps
	judges map[string]*judge    // by pool
	asked  map[types.UID]*asked // by policy
	ask    func(context.Context, *v1alpha1.RolloutPolicy) []answer
}

// A judge judges the machines of one pool since a time.
type judge struct {
	rollout.Judge
	since time.Time
}

// New returns a loop that has not started.
func New(d Deps) *Loop {
	return &Loop{Deps: d, judges: map[string]*judge{}, asked: map[types.UID]*asked{}, ask: askAll}
}

// Run works until ctx ends. Only the leader may run it.
func (l *Loop) Run(ctx context.Context) error {
	l.Metrics.Repeat(ctx, telemetry.Chore{Name: "rolloutpolicy.controller", What: "looking after rollouts",
		Failed: "looking after rollouts failed", Every: lookInterval, Turn: l.turn})
	return nil
}

// turn looks after all policies once: it writes their status, pauses and resumes pools, and forgets judges of rollouts that are over.
func (l *Loop) turn(ctx context.Context, now time.Time) error {
	snap := l.Store.Snapshot()
	if !snap.Synced() || !snap.Fed() {
		return nil
	}
	all, of := rollout.Read(snap)
	since := map[string]time.Time{}
	for pool, p := range of {
		since[pool], _ = rollout.Began(p.Entry(pool))
	}
	fleets := rollout.Fleets(snap, since)
	var errs []error
	for _, p := range all {
		errs = append(errs, l.keep(ctx, snap, p, fleets, now))
	}
	errs = append(errs, l.pauses(ctx, now))
	for pool := range l.judges {
		if began := since[pool]; began.IsZero() {
			delete(l.judges, pool)
		}
	}
	return errors.Join(errs...)
}

// A trip is a gate that tripped, and by what evidence.
type trip struct {
	gate     string
	evidence string
}

// keep looks at the pools of a policy and writes its status. If that write stops a pool, keep also reports the gate that tripped, in log,
// metric and event. It does so only once the status is written, so that a stop is reported once. The pools are paused by pauses.
func (l *Loop) keep(ctx context.Context, snap *cluster.Snapshot, p *rollout.Policy, fleets map[string]*rollout.Fleet, now time.Time) error {
	told := p.Object.DeepCopy()
	unread := p.Unread()
	valid(told, p, unread, now)
	if unread != nil {
		return status.Write(ctx, l.Store, l.Client, cluster.Rollouts.Put, told, p.Object)
	}
	looks, trips, silent := l.look(ctx, snap, p, fleets, now)
	told.Status.Pools = nil
	for i := range looks {
		entry := p.Next(p.Entry(looks[i].Pool.Name), &looks[i], now)
		if entry.Tripped != nil && entry.Evidence == "" {
			entry.Evidence = trips[0].evidence
		}
		told.Status.Pools = append(told.Status.Pools, entry)
	}
	rollout.Bound(told.Status.Pools)
	gates(told, silent, l.startsWith(snap, p, told.Status.Pools), now)
	if err := status.Write(ctx, l.Store, l.Client, cluster.Rollouts.Put, told, p.Object); err != nil || len(trips) == 0 {
		return err
	}
	written := cluster.Rollouts.Get(l.Store.Snapshot(), told.Name)
	if written == nil || !slices.ContainsFunc(written.Status.Pools, func(e v1alpha1.RolloutPool) bool { return e.Tripped != nil }) {
		return nil // another program changed it meanwhile; the next turn finds the same
	}
	telemetry.Log(ctx).Error("a gate of a rollout tripped; stopping voluntary disruption of its NodePools", "RolloutPolicy", told.Name,
		"gate", trips[0].gate, "evidence", trips[0].evidence)
	l.Metrics.RolloutTrips.WithLabelValues(told.Name, trips[0].gate).Inc()
	l.Events.Publish(telemetry.Event{Object: telemetry.RolloutRef(told), Reason: telemetry.RolloutStopped,
		Key: []string{string(told.UID), now.String()}, Message: condition.Get(told, v1alpha1.ConditionTypeGatesPassed).Message})
	return nil
}

// look looks at the pools of a policy. It returns a Look for each, the gates that trip, and texts about gates that do not answer. Gates are
// judged only for pools with a rollout that is not stopped; but a gate that trips for one of them trips for all pools of the policy.
func (l *Loop) look(ctx context.Context, snap *cluster.Snapshot, p *rollout.Policy, fleets map[string]*rollout.Fleet, now time.Time) (
	looks []rollout.Look, trips []trip, silent []string) {
	spec := &p.Object.Spec.Gates
	active := false
	for _, pool := range p.Pools {
		e := p.Entry(pool.Name)
		seen := rollout.Look{Pool: pool, Revision: rollout.Revision(snap, pool), Fleet: fleets[pool.Name],
			Resumed: resumed(pool, e, now)}
		if _, since := rollout.Began(e); !since.IsZero() && e.Tripped == nil && e.Revision == seen.Revision {
			active = true
			v := l.judge(pool.Name, since).Look(snap, rollout.Limits{Pool: pool.Name, Since: since, Ready: readyOf(spec)}, now)
			seen.Waits = v.Waits
			trips = append(trips, tripped(spec, &v)...)
			if spec.DeploymentsAvailable {
				more, err := l.unavailable(ctx, v.Failing)
				trips = append(trips, more...)
				if err != nil {
					silent = append(silent, fmt.Sprintf("%s: %v", rollout.DeploymentsAvailable, err))
				}
			}
		}
		looks = append(looks, seen)
	}
	if active {
		more, quiet := l.answers(ctx, p.Object, now)
		trips, silent = append(trips, more...), append(silent, quiet...)
	} else {
		delete(l.asked, p.Object.UID)
	}
	for i := range looks {
		looks[i].Trips = len(trips) > 0
		looks[i].Waits = looks[i].Waits || len(silent) > 0
	}
	return looks, trips, silent
}

// judge returns the judge of the machines of a pool that were created since a time. For another time than before it is a new one.
func (l *Loop) judge(pool string, since time.Time) *judge {
	j := l.judges[pool]
	if j == nil || !j.since.Equal(since) {
		j = &judge{since: since}
		l.judges[pool] = j
	}
	return j
}

// readyOf returns how long machines and pods may take to get ready by these gates.
func readyOf(g *v1alpha1.RolloutGates) time.Duration {
	if g.ReadyWithin == nil {
		return readyWithin
	}
	return g.ReadyWithin.Duration
}

// tripped returns which of the gates NodesReady and MovedPodsReady are on, as they are by default, and trip by a verdict.
func tripped(g *v1alpha1.RolloutGates, v *rollout.Verdict) (out []trip) {
	for _, one := range []struct {
		gate rollout.Gate
		on   *bool
	}{{rollout.NodesReady, g.NodesReady}, {rollout.MovedPodsReady, g.MovedPodsReady}} {
		if (one.on == nil || *one.on) && v.Trips(one.gate) {
			out = append(out, trip{string(one.gate), sentence.Tripped(one.gate, v)})
		}
	}
	return out
}

// unavailable returns a trip for each Deployment that has a pod failing on a new machine and is not available. It reads them from the API
// server, mostDeployments at most.
func (l *Loop) unavailable(ctx context.Context, failing []*cluster.Pod) (out []trip, err error) {
	for _, p := range failing[:min(len(failing), mostDeployments)] {
		name := types.NamespacedName{Namespace: p.Namespace, Name: surge.Deployment(p)}
		if name.Name == "" {
			continue
		}
		var d appsv1.Deployment
		if err := l.Client.Get(ctx, name, &d); apierrors.IsNotFound(err) {
			continue
		} else if err != nil {
			return out, err
		}
		for i := range d.Status.Conditions {
			if c := &d.Status.Conditions[i]; c.Type == appsv1.DeploymentAvailable && c.Status != corev1.ConditionTrue {
				why := fmt.Sprintf("gate %s: Deployment %s is not available, and its pod %s fails on a new machine",
					rollout.DeploymentsAvailable, name, p.Name)
				out = append(out, trip{string(rollout.DeploymentsAvailable), why})
			}
		}
	}
	return out, nil
}

// valid sets the condition Valid.
func valid(o *v1alpha1.RolloutPolicy, p *rollout.Policy, unread error, now time.Time) {
	switch {
	case unread != nil:
		condition.SetFalse(o, v1alpha1.ConditionTypeValid, v1alpha1.ReasonNotRead, unread.Error(), now)
	case len(p.Overlap) > 0:
		condition.SetFalse(o, v1alpha1.ConditionTypeValid, v1alpha1.ReasonPoolsOverlap,
			"an older RolloutPolicy holds for NodePools "+strings.Join(p.Overlap, ", "), now)
	default:
		condition.SetTrue(o, v1alpha1.ConditionTypeValid, now)
	}
}

// mostTold is for how many pools a condition says from which template their new machines start.
const mostTold = 10

// startsWith returns text to append to a message, "" for none: for each pool that is stopped under a policy with onFailure LastGood, from
// which template and images its new machines start.
func (l *Loop) startsWith(snap *cluster.Snapshot, p *rollout.Policy, entries []v1alpha1.RolloutPool) string {
	out, told := "", 0
	for i := range entries {
		e := &entries[i]
		pool := cluster.Pools.Get(snap, e.Name)
		if pool == nil || !p.GoesBack(snap, pool, e) {
			continue
		}
		if told++; told > mostTold {
			return out + "; for other pools see their condition " + v1.ConditionTypeDisruptionPaused
		}
		last, err := rollout.Restore(snap, pool, e.LastGood, l.Known)
		out += "; " + sentence.LastGood(e, last, err)
	}
	return out
}

// gates sets the conditions GatesAnswered and GatesPassed of a policy.
func gates(o *v1alpha1.RolloutPolicy, silent []string, startsWith string, now time.Time) {
	if len(silent) > 0 {
		condition.SetFalse(o, v1alpha1.ConditionTypeGatesAnswered, v1alpha1.ReasonNoAnswer, strings.Join(silent, "; "), now)
	} else {
		condition.SetTrue(o, v1alpha1.ConditionTypeGatesAnswered, now)
	}
	at := slices.IndexFunc(o.Status.Pools, func(e v1alpha1.RolloutPool) bool { return e.Tripped != nil })
	if at < 0 {
		condition.SetTrue(o, v1alpha1.ConditionTypeGatesPassed, now)
		return
	}
	condition.SetFalse(o, v1alpha1.ConditionTypeGatesPassed, v1alpha1.ReasonGateTripped, o.Status.Pools[at].Evidence+startsWith, now)
}

// resumed reports whether a user has resumed a pool that a gate stopped: the pool has the mark of this stop, so it was paused for it, and
// is not paused any more.
func resumed(pool *v1.NodePool, e *v1alpha1.RolloutPool, now time.Time) bool {
	if e == nil || e.Tripped == nil || pool.Annotations[v1.RolloutTrippedAnnotationKey] != stampOf(e) {
		return false
	}
	_, halted := paused.Read(pool.Annotations, now)
	return !halted
}

// stampOf returns the time of the stop in an entry, by which the annotation RolloutTripped of the pool names the stop.
func stampOf(e *v1alpha1.RolloutPool) string { return e.Tripped.UTC().Format(time.RFC3339) }

// pauses pauses the pools that a gate has stopped, once for each stop: a pool that a user has resumed is not paused again. It ends the
// pauses of pools that are not stopped any more, because their policy is gone, or the pool or class has a new spec. Pauses by users are
// left alone.
func (l *Loop) pauses(ctx context.Context, now time.Time) error {
	snap := l.Store.Snapshot()
	_, of := rollout.Read(snap)
	var errs []error
	for pool := range cluster.Pools.All(snap) {
		var e *v1alpha1.RolloutPool
		p := of[pool.Name]
		if p != nil {
			e = p.Entry(pool.Name)
		}
		_, halted := paused.Read(pool.Annotations, now)
		next := pool.DeepCopy()
		switch ours := pool.Annotations[v1.PausedByAnnotationKey] == v1.PausedByRollout; {
		case e != nil && e.Tripped != nil:
			if halted || pool.Annotations[v1.RolloutTrippedAnnotationKey] == stampOf(e) {
				continue // it is paused already, or a user has resumed it
			}
			pause(next, e, l.startsWith(snap, p, []v1alpha1.RolloutPool{*e}))
		case ours && halted && aged(pool, now):
			for _, key := range []string{v1.PausedAnnotationKey, v1.PausedReasonAnnotationKey, v1.PausedByAnnotationKey} {
				delete(next.Annotations, key)
			}
		default:
			continue
		}
		errs = append(errs, l.write(ctx, pool, next))
	}
	return errors.Join(errs...)
}

// aged reports whether the last stop of a pool is so long ago that the picture surely shows the status that stopped it. A stop whose time
// cannot be read counts as old.
func aged(pool *v1.NodePool, now time.Time) bool {
	at, err := time.Parse(time.RFC3339, pool.Annotations[v1.RolloutTrippedAnnotationKey])
	return err != nil || now.Sub(at) >= settled
}

// pause sets the annotations of a pool that a gate stopped: those of "karpenter pause", and which stop it was.
func pause(pool *v1.NodePool, e *v1alpha1.RolloutPool, startsWith string) {
	if pool.Annotations == nil {
		pool.Annotations = map[string]string{}
	}
	pool.Annotations[v1.PausedAnnotationKey] = "true"
	pool.Annotations[v1.PausedReasonAnnotationKey] = "its RolloutPolicy stopped it: " + e.Evidence + startsWith
	pool.Annotations[v1.PausedByAnnotationKey] = v1.PausedByRollout
	pool.Annotations[v1.RolloutTrippedAnnotationKey] = stampOf(e)
}

// write writes the annotations of a pool and updates the picture. If the pool is paused now, it publishes an event.
func (l *Loop) write(ctx context.Context, pool, next *v1.NodePool) error {
	err := l.Client.Patch(ctx, next, patch.Over(pool))
	switch {
	case apierrors.IsConflict(err) || apierrors.IsNotFound(err):
		return nil // the next turn tries again
	case err != nil:
		return fmt.Errorf("pause or resume NodePool %s: %w", pool.Name, err)
	}
	l.Store.Update(func(d *cluster.Draft) { cluster.Pools.Put(d, next) })
	if next.Annotations[v1.PausedAnnotationKey] != "" {
		l.Events.Publish(telemetry.Event{Object: telemetry.PoolRef(pool), Reason: telemetry.DisruptionStopped,
			Key:     []string{string(pool.UID), next.Annotations[v1.RolloutTrippedAnnotationKey]},
			Message: next.Annotations[v1.PausedReasonAnnotationKey]})
	}
	return nil
}
