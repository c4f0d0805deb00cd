package buffer

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/buffer"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/forecast"
	"karpenter.sh/karpenter/internal/core/foresight"
	"karpenter.sh/karpenter/internal/explain/sentence"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

const (
	// slack is added to the time that machines take to start. It covers a turn of this loop and the wait before missing room is bought.
	slack = 5 * time.Second
	// learnInterval is how often new machines are looked for.
	learnInterval = 30 * time.Second
)

// ahead is what the loop remembers of announcements.
type ahead struct {
	times   foresight.Times // how long machines take to start
	trust   foresight.Trust
	learned time.Time                               // when times last learned from machines
	pods    map[types.NamespacedName]*corev1.Pod    // the first spare of each announcement that is in the store
	basis   map[types.NamespacedName]forecast.Basis // why the learner expects the pods of an announcement
}

// reach returns how long before its time an announcement enters the store: twice the time that machines take to start. At most every
// learnInterval it first learns that time from new machines.
func (a *ahead) reach(snap *cluster.Snapshot, now time.Time) time.Duration {
	if !now.Before(a.learned.Add(learnInterval)) {
		a.times.Learn(snap)
		a.learned = now
	}
	return 2 * (a.times.Lead("", nil) + slack)
}

// announce brings the spares of announcements in the store up to date. An announcement enters at twice the time that machines take to
// start. From then on disruption keeps machines that have room for it, since to stop one and to open another takes that long. New
// machines are opened later, just in time (look.wait).
func (l *Loop) announce(ctx context.Context, snap *cluster.Snapshot, now time.Time) {
	var believed []foresight.Announcement
	if l.settings.Foresight {
		believed = l.believed(snap, now)
	}
	if l.Learner != nil {
		believed = append(believed, l.learned(ctx, snap, now, believed)...)
	}
	if len(believed) == 0 && len(l.ahead.pods) == 0 {
		return
	}
	known := map[types.NamespacedName]*corev1.Pod{}
	total := 0
	for s := range snap.Spares() {
		if _, announced := l.ahead.pods[keyOfSpares(s)]; !announced {
			total += len(s.Pods)
		}
	}
	for _, a := range believed {
		n := min(a.Pods, buffer.Most, buffer.MostOfAll-total)
		if n <= 0 {
			continue
		}
		total += n
		key := types.NamespacedName{Namespace: a.Namespace, Name: a.Source()}
		one := buffer.Announced(a.Namespace, a.Source(), a.Created, a.Template, 1)[0]
		known[key] = one
		old := snap.SparesOf(key.Namespace, key.Name)
		if old != nil && len(old.Pods) == n && old.Pods[0].Spare.Due.Equal(a.At) && equality.Semantic.DeepEqual(l.ahead.pods[key], one) {
			continue
		}
		pods := buffer.Announced(a.Namespace, a.Source(), a.Created, a.Template, n)
		l.Store.Update(func(d *cluster.Draft) { d.AnnounceSpares(key.Namespace, key.Name, a.At, pods) })
	}
	for key := range l.ahead.pods {
		if known[key] == nil {
			l.Store.Update(func(d *cluster.Draft) { d.DropSpares(key.Namespace, key.Name) })
		}
	}
	l.ahead.pods = known
}

// believed returns the announcements of CronJobs, autoscalers and rollouts whose earlier pods came. It counts how many pods of earlier
// announcements came, and publishes an event for an object that is no longer believed.
func (l *Loop) believed(snap *cluster.Snapshot, now time.Time) []foresight.Announcement {
	believed, ended := l.ahead.trust.Judge(foresight.All(snap, now, l.ahead.reach(snap, now)), now)
	for _, o := range ended {
		l.Metrics.PodsAnnounced.WithLabelValues(o.Object.Kind, "came").Add(float64(o.Came))
		l.Metrics.PodsAnnounced.WithLabelValues(o.Object.Kind, "missed").Add(float64(o.Missed))
		if o.Off {
			l.Events.Tell([]corev1.ObjectReference{o.Object}, telemetry.AnnouncedInVain,
				sentence.AnnouncedInVain(o.Object.Kind, foresight.MostMissed))
		}
	}
	return believed
}

// learned returns announcements of pods that the learner expects because such pods came on earlier days. Pods that a known announcement
// of the same Deployment covers are taken off.
func (l *Loop) learned(ctx context.Context, snap *cluster.Snapshot, now time.Time,
	known []foresight.Announcement) []foresight.Announcement {
	reach := l.ahead.reach(snap, now)
	var out []foresight.Announcement
	l.ahead.basis = map[types.NamespacedName]forecast.Basis{}
	for _, r := range l.Learner.Turn(ctx, snap, now, reach/2-slack, reach) {
		for _, a := range known {
			if r.Workload == (forecast.Workload{Namespace: a.Namespace, Kind: "Deployment", Name: a.Deployment}) {
				r.Pods -= a.Pods
			}
		}
		a := foresight.Announcement{Kind: forecast.Kind, Namespace: r.Workload.Namespace, Name: r.Name(), At: r.At, Pods: r.Pods,
			Template: r.Template}
		l.ahead.basis[types.NamespacedName{Namespace: a.Namespace, Name: a.Source()}] = r.Basis
		out = append(out, a)
	}
	return out
}

// wait leaves out the openings that need not start yet. k.waits is the time until the first of them has to start.
func (k *look) wait(times *foresight.Times, now time.Time) {
	all := k.open
	k.open, k.pods = nil, 0
	for _, o := range all {
		if first := firstDue(&o); !first.IsZero() {
			if until := first.Add(-times.Lead(o.Pool, o.Types) - slack).Sub(now); until > 0 {
				if k.waits == 0 || until < k.waits {
					k.waits = until
				}
				continue
			}
		}
		k.open, k.pods = append(k.open, o), k.pods+len(o.Pods)
	}
}

// firstDue returns when the first pod of an opening is due, zero if one is due at once.
func firstDue(o *engine.Opening) time.Time {
	first := o.Pods[0].Spare.Due
	for _, p := range o.Pods {
		if due := p.Spare.Due; due.IsZero() || due.Before(first) {
			first = due
		}
	}
	return first
}

// explain writes the announcements of an opening on its claim.
func (l *Loop) explain(o *engine.Opening, now time.Time) {
	count := map[sentence.Announced]int{}
	for _, p := range o.Pods {
		basis := l.ahead.basis[types.NamespacedName{Namespace: p.Namespace, Name: p.Spare.Buffer}]
		count[sentence.Announced{Source: p.Spare.Buffer, Namespace: p.Namespace, Due: p.Spare.Due, Learned: basis}]++
	}
	if text := sentence.OpenedAhead(count, now); text != "" {
		if o.Claim.Annotations == nil {
			o.Claim.Annotations = map[string]string{}
		}
		o.Claim.Annotations[v1.OpenedAheadAnnotationKey] = text
	}
}

// tellAhead publishes the announcements that a claim was opened for.
func (l *Loop) tellAhead(c *v1.NodeClaim) {
	if c == nil || c.Annotations[v1.OpenedAheadAnnotationKey] == "" {
		return
	}
	l.Events.Publish(telemetry.Event{Object: telemetry.ClaimRef(c), Reason: telemetry.OpenedAhead, Key: []string{string(c.UID)},
		Message: c.Annotations[v1.OpenedAheadAnnotationKey]})
}
