// Package learn keeps the histories of the NodePools and CapacityBuffers that have the annotation to learn at what times their pods
// come. It returns for which pods room should be kept. Package buffer asks it in each turn, and keeps that room as for pods that are
// announced.
package learn

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"

	autoscalingv1beta1 "karpenter.sh/karpenter/api/autoscaling/v1beta1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/cluster/podclass"
	"karpenter.sh/karpenter/internal/core/buffer"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/forecast"
	"karpenter.sh/karpenter/internal/explain/sentence"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

const (
	// mostBytes is how large all histories may be, compressed. Of larger ones the oldest days are left out.
	mostBytes = 96 << 10
	// keep is how long the history of an object is kept after it stopped learning, in case the user turns learning on again.
	keep = time.Hour
	// countInterval is how often dollars are counted.
	countInterval = 10 * time.Second
)

// catalogs gives the instance types of pools.
type catalogs interface {
	Pools(ctx context.Context, snap *cluster.Snapshot) (pools map[string]engine.Pool, notReady map[string]bool)
}

// Learner learns, for one leader.
type Learner struct {
	catalogs catalogs
	metrics  *telemetry.Metrics
	events   *telemetry.Events
	quantile float64

	mu      sync.Mutex
	all     map[forecast.Object]*learned
	levels  forecast.Levels
	looked  time.Time                        // when the last turn was
	counted time.Time                        // when dollars were last counted
	rooms   map[cluster.PodKey]forecast.Room // of the last turn, by the names of their spares
}

// learned is one object that learns.
type learned struct {
	*forecast.History
	object corev1.ObjectReference
	name   forecast.Object
	zone   *time.Location
	buffer *autoscalingv1beta1.CapacityBuffer // nil for a NodePool
	shape  *corev1.PodTemplateSpec            // of the buffer's pods, where a PodTemplate gives it
	gone   time.Time                          // since when it is not to learn, zero while it is
	slot   time.Time                          // the last slot that was counted
	price  map[forecast.Workload]float64      // dollars an hour of the room of a pod
}

// New returns a Learner that knows nothing. The quantile is the part of the days on which no more pods come than room is kept for.
func New(c catalogs, m *telemetry.Metrics, e *telemetry.Events, quantile float64) *Learner {
	return &Learner{catalogs: c, metrics: m, events: e, quantile: quantile, all: map[forecast.Object]*learned{}}
}

// Turn counts the pods that came since the last turn, and returns the room to keep for pods that are expected until now+ahead, sorted
// by time. It must be called about once a second. lead is how long machines take to get ready: kept room that is used saves that time,
// at the price of the room. Objects whose learning does not pay (Balance) get no room.
func (l *Learner) Turn(ctx context.Context, snap *cluster.Snapshot, now time.Time, lead, ahead time.Duration) []forecast.Room {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.find(snap, now)
	l.looked = now
	if len(l.all) == 0 {
		l.levels, l.rooms = forecast.Levels{}, nil
		return nil
	}
	ready := l.count(ctx, snap, now)
	came := map[*learned]map[forecast.Workload][]forecast.Arrival{}
	for _, a := range l.levels.Look(snap, now) {
		for _, o := range l.all {
			if w, ok := o.matches(&a); ok {
				if came[o] == nil {
					came[o] = map[forecast.Workload][]forecast.Arrival{}
				}
				came[o][w] = append(came[o][w], a)
			}
		}
	}
	rooms := map[cluster.PodKey]forecast.Room{}
	for _, o := range l.sorted() {
		l.day(o, now)
		for w, list := range came[o] {
			for _, a := range list {
				o.Add(a.Pod.Created.In(o.zone), w, a.TemplateOf(), 1)
			}
			served := min(len(list), ready[w])
			o.Balance.Save(float64(served) * o.price[w] * lead.Hours())
		}
		if !o.Balance.Off.IsZero() || o.Balance.Spent() {
			continue
		}
		for _, e := range o.Expect(now.In(o.zone), now.In(o.zone).Add(ahead), l.quantile) {
			if e.At.After(now.Add(ahead)) {
				continue
			}
			if r := l.room(o, e, snap, now); r.Pods > rooms[keyOf(&r)].Pods {
				rooms[keyOf(&r)] = r
			}
		}
	}
	l.rooms = rooms
	out := slices.Collect(maps.Values(rooms))
	slices.SortFunc(out, func(a, b forecast.Room) int { return cmp.Or(a.At.Compare(b.At), keyOf(&a).Compare(keyOf(&b))) })
	return out
}

// keyOf returns the name of the spares of a room.
func keyOf(r *forecast.Room) cluster.PodKey {
	return cluster.PodKey{Namespace: r.Workload.Namespace, Name: forecast.Kind + " " + r.Name()}
}

// sorted lists the objects that learn now.
func (l *Learner) sorted() (out []*learned) {
	for _, o := range l.all {
		if o.zone != nil && o.gone.IsZero() {
			out = append(out, o)
		}
	}
	slices.SortFunc(out, func(a, b *learned) int { return strings.Compare(a.name.String(), b.name.String()) })
	return out
}

// find updates the list of objects that learn from the annotations of pools and buffers. The history of an object that no longer learns
// is dropped after a while (keep).
func (l *Learner) find(snap *cluster.Snapshot, now time.Time) {
	there := map[forecast.Object]bool{}
	for p := range cluster.Pools.All(snap) {
		if o := l.learns(p, telemetry.PoolRef(p), there, now); o != nil {
			o.buffer = nil
		}
	}
	for b := range cluster.Buffers.All(snap) {
		if !b.Active() {
			continue
		}
		o := l.learns(b, telemetry.BufferRef(client.ObjectKeyFromObject(b), b.UID), there, now)
		if o == nil {
			continue
		}
		if o.buffer, o.shape = b, nil; b.Spec.PodTemplateRef != nil {
			if t := cluster.PodTemplates.Get(snap, b.Namespace, b.Spec.PodTemplateRef.Name); t != nil {
				o.shape = &t.Template
			}
		}
	}
	for name, o := range l.all {
		switch {
		case there[name]:
		case o.gone.IsZero():
			o.gone = now
		case now.Sub(o.gone) > keep:
			delete(l.all, name)
		}
	}
}

// learns returns the record of an object that learns, and creates it if necessary; there gets its name. It returns nil if the object
// does not learn, and publishes an event if its annotations cannot be read. If learning switched itself off, the user turns it on again
// by removing the annotation and adding it anew.
func (l *Learner) learns(from client.Object, ref corev1.ObjectReference, there map[forecast.Object]bool, now time.Time) *learned {
	annotations := from.GetAnnotations()
	switch value := annotations[v1.LearnAnnotationKey]; value {
	case "", "false":
		return nil
	case "true":
	default:
		l.events.Tell([]corev1.ObjectReference{ref}, telemetry.LearningOff, sentence.BadLearn(value), value)
		return nil
	}
	zone, err := time.LoadLocation(annotations[v1.ScheduleTimeZoneAnnotationKey])
	if err != nil {
		l.events.Tell([]corev1.ObjectReference{ref}, telemetry.LearningOff, sentence.BadZone(annotations[v1.ScheduleTimeZoneAnnotationKey]))
		return nil
	}
	name := forecast.Object{Kind: ref.Kind, Namespace: from.GetNamespace(), Name: from.GetName()}
	o := l.all[name]
	if o == nil {
		o = &learned{History: &forecast.History{}}
		l.all[name] = o
	}
	if !o.gone.IsZero() {
		o.gone, o.Balance = time.Time{}, forecast.Balance{Usual: o.Balance.Usual, Today: o.Balance.Today}
	}
	o.object, o.name, o.zone = ref, name, zone
	if o.price == nil {
		o.price, o.slot = map[forecast.Workload]float64{}, now.Truncate(forecast.Slot)
	}
	there[name] = true
	return o
}

// matches reports whether an object counts a pod that came, and as a pod of which workload.
func (o *learned) matches(a *forecast.Arrival) (forecast.Workload, bool) {
	b := o.buffer
	switch {
	case b == nil:
		return a.Workload, a.Pool != "" && o.name.Name == a.Pool
	case b.Namespace != a.Workload.Namespace:
		return forecast.Workload{}, false
	case b.Spec.ScalableRef != nil:
		return a.Workload, b.Spec.ScalableRef.Kind == a.Workload.Kind && b.Spec.ScalableRef.Name == a.Workload.Name
	}
	same := o.shape != nil && equality.Semantic.DeepEqual(podclass.Requests(&o.shape.Spec), podclass.Requests(a.Pod.Class.Spec))
	return forecast.Workload{Namespace: b.Namespace, Kind: "PodTemplate", Name: b.Spec.PodTemplateRef.Name}, same
}

// room returns the room to keep for the expected pods. Pods that wait already are taken off. For a buffer its limits count, and the
// room that it keeps anyway is taken off.
func (l *Learner) room(o *learned, e forecast.Expected, snap *cluster.Snapshot, now time.Time) forecast.Room {
	w := e.Class.Workload
	r := forecast.Room{Object: o.name, Workload: w, Slot: e.Slot, At: e.At, Pods: e.Left, Template: e.Class.Template, Basis: e.Basis}
	if !e.Slot.After(now) {
		r.Pods -= l.levels.Waiting(w)
	}
	if o.buffer != nil {
		b, own := o.buffer.DeepCopy(), 0
		if s := snap.SparesOf(b.Namespace, b.Name); s != nil {
			own = len(s.Pods)
		}
		b.Spec.Replicas, b.Spec.Percentage = new(int32(max(0, r.Pods))), nil //nolint:gosec // a count of pods
		ask, _ := buffer.Resolve(b, buffer.Source{Template: r.Template})
		r.Pods = len(ask.Pods) - own
	}
	return r
}

// day notes that the controller watches at this time. After each slot it counts the expected and the arrived pods of the slot, and once a
// day it decides whether learning pays.
func (l *Learner) day(o *learned, now time.Time) {
	if slot := now.Truncate(forecast.Slot); slot.After(o.slot) {
		expected, came := o.Score.Add(o.Expect(o.slot.In(o.zone), o.slot.In(o.zone), l.quantile))
		l.metrics.ForecastPods.WithLabelValues(o.name.String(), "expected").Add(float64(expected))
		l.metrics.ForecastPods.WithLabelValues(o.name.String(), "came").Add(float64(came))
		o.slot = slot
	}
	off := 0.0
	if o.See(now.In(o.zone)) {
		if b := o.Balance; o.Balance.Day(now) {
			l.events.Tell([]corev1.ObjectReference{o.object}, telemetry.LearningOff, sentence.LearningOff(b.Unused, b.Saved, o.Balance.Off))
		}
	}
	if !o.Balance.Off.IsZero() || o.Balance.Spent() {
		off = 1
	}
	l.metrics.ForecastOff.WithLabelValues(o.name.String()).Set(off)
}

// count returns for how many pods of each workload kept room is ready. Every countInterval it adds the cost of kept room, and of all
// machines (Bill), to the balances. Room on machines that would exist anyway counts as if it was bought.
func (l *Learner) count(ctx context.Context, snap *cluster.Snapshot, now time.Time) map[forecast.Workload]int {
	ready := map[forecast.Workload]int{}
	passed := now.Sub(l.counted)
	hours := min(passed, 2*countInterval).Hours() // bounded, because the first turn comes long after the zero time
	var pools map[string]engine.Pool
	price := func(n *cluster.Node) float64 {
		if pools == nil {
			pools, _ = l.catalogs.Pools(ctx, snap)
		}
		p, _ := pools[n.Pool()].Catalog.Price(n.Claim.Labels)
		return p.Dollars()
	}
	if passed >= countInterval {
		l.counted = now
		for n := range snap.Nodes() {
			if n.Claim == nil {
				continue
			}
			for _, o := range l.all {
				if o.buffer != nil || o.name.Name == n.Pool() {
					o.Balance.Today.Bill += price(n) * hours
				}
			}
		}
	}
	for s := range snap.Spares() {
		r, ok := l.rooms[cluster.PodKey{Namespace: s.Namespace, Name: s.Buffer}]
		if !ok || l.all[r.Object] == nil {
			continue
		}
		for _, p := range s.Pods {
			n := snap.PlaceOf(p)
			if n == nil {
				continue
			}
			if n.Initialized() {
				ready[r.Workload]++
			}
			if passed < countInterval || n.Claim == nil {
				continue
			}
			o := l.all[r.Object]
			cost := price(n) * part(podclass.Requests(p.Class.Spec), n.Claim.Status.Allocatable)
			o.price[r.Workload] = cost
			o.Balance.Keep(cost * hours)
			l.metrics.ForecastUnused.WithLabelValues(o.name.String()).Add(cost * hours)
		}
	}
	return ready
}

// part returns the part of a machine that a pod needs: the largest over all resources, at most 1.
func part(requests, of corev1.ResourceList) (most float64) {
	for name, has := range of {
		if asks, ok := requests[name]; ok && has.Sign() > 0 {
			most = max(most, asks.AsApproximateFloat64()/has.AsApproximateFloat64())
		}
	}
	return min(most, 1)
}

// Report returns what each object expects from some hours ago until some hours ahead, by name.
func (l *Learner) Report(now time.Time, back, ahead time.Duration) []forecast.Report {
	packed, _ := l.Kept() // what cannot be kept has no size
	l.mu.Lock()
	defer l.mu.Unlock()
	out := []forecast.Report{}
	for _, o := range l.sorted() {
		r := o.Report(o.name, now.In(o.zone), back, ahead, l.quantile)
		r.Bytes = len(packed)
		out = append(out, r)
	}
	return out
}

// kept is the stored form of a history.
type kept struct {
	Object  forecast.Object   `json:"object"`
	History *forecast.History `json:"history"`
	Until   time.Time         `json:"until"` // pods that were created later are not counted
}

// Kept returns the histories, compressed, for Restore; nil if there are none. If they are too large, it drops their oldest days, also in
// memory.
func (l *Learner) Kept() ([]byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []kept
	for name, o := range l.all {
		all = append(all, kept{name, o.History, l.levels.Until(l.looked)})
	}
	if len(all) == 0 {
		return nil, nil
	}
	for {
		var packed bytes.Buffer
		zip := gzip.NewWriter(&packed)
		if err := json.NewEncoder(zip).Encode(all); err != nil {
			return nil, err
		}
		if err := zip.Close(); err != nil {
			return nil, err
		}
		if packed.Len() <= mostBytes {
			return packed.Bytes(), nil
		}
		for _, k := range all {
			k.History.Shorten()
		}
	}
}

// Restore takes over the histories that Kept returned, without invalid ones. Objects that do not learn any more are forgotten after a
// while.
func (l *Learner) Restore(packed []byte) error {
	if len(packed) == 0 {
		return nil
	}
	text, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return err
	}
	var all []kept
	if err := json.NewDecoder(text).Decode(&all); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range all {
		if k.History.Valid() {
			l.all[k.Object] = &learned{History: k.History}
			l.levels.Since = k.Until
		}
	}
	return nil
}
