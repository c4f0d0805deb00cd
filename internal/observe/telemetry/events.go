package telemetry

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	autoscalingv1beta1 "karpenter.sh/karpenter/api/autoscaling/v1beta1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
	"karpenter.sh/karpenter/internal/kit/identity"
)

// An Event is something that happened to an object, for the people who look after it.
type Event struct {
	Object  corev1.ObjectReference
	Reason  Reason
	Message string
	// Key identifies equal events: after one of them, others with the same reason and key are dropped for a while (EventRow.Again).
	// Without a key none is dropped.
	Key []string
	// Still, if set, reports whether a paced event is still true. It is called just before the event is sent; if it is not, it is
	// dropped.
	Still func() bool
}

// Writer sends one event to the API server.
type Writer func(ctx context.Context, e *corev1.Event) error

const (
	// waiting is how many events may wait to be sent; later ones are dropped and counted.
	waiting = 2000
	// pace is the rate of paced events, per second.
	pace = 20
	// pacedMax is how many objects may have a paced event waiting.
	pacedMax = 50_000
)

// Events sends events. Publish never blocks; Run does the sending.
type Events struct {
	write   Writer
	metrics *Metrics
	queue   chan *corev1.Event

	mu       sync.Mutex
	sent     map[string]time.Time // until when events of this key are held back
	swept    time.Time
	limiters map[Reason]*rate.Limiter
	paced    pacedQueue
	serial   uint64
}

// NewEvents returns Events that are sent with write once Run runs.
func NewEvents(write Writer, metrics *Metrics) *Events {
	return &Events{
		write:    write,
		metrics:  metrics,
		queue:    make(chan *corev1.Event, waiting),
		sent:     map[string]time.Time{},
		limiters: map[Reason]*rate.Limiter{},
		paced:    pacedQueue{waiting: map[types.UID]Event{}, news: make(chan struct{}, 1)},
	}
}

// Publish queues an event, unless an equal one was published a short while ago. Events of a paced reason are queued by object, and only
// the newest of each object is sent. Other events are dropped if their reason exceeds its rate or the queue is full.
func (s *Events) Publish(e Event) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	r := row(e.Reason)
	if s.heldBack(&e, r, now) {
		return
	}
	if r.Paced {
		if !s.paced.add(e) {
			s.drop(e.Reason)
		}
		return
	}
	if r.Rate > 0 {
		limiter := s.limiters[e.Reason]
		if limiter == nil {
			limiter = rate.NewLimiter(rate.Limit(r.Rate), r.Burst)
			s.limiters[e.Reason] = limiter
		}
		if !limiter.AllowN(now, 1) {
			s.drop(e.Reason)
			return
		}
	}
	select {
	case s.queue <- s.object(&e, now):
	default:
		s.drop(e.Reason)
	}
}

// Tell publishes an event about each of some objects. The object is added to key, so equal events are dropped for each object by itself.
func (s *Events) Tell(about []corev1.ObjectReference, reason Reason, message string, key ...string) {
	for _, o := range about {
		s.Publish(Event{Object: o, Reason: reason, Message: message, Key: slices.Concat(key, []string{o.Kind, o.Name, string(o.UID)})})
	}
}

func (s *Events) drop(r Reason) {
	s.metrics.EventsDropped.WithLabelValues(string(r)).Inc()
}

// heldBack reports whether an equal event was published within EventRow.Again, and remembers this one if not. Once a minute it forgets
// old keys.
func (s *Events) heldBack(e *Event, r EventRow, now time.Time) bool {
	if len(e.Key) == 0 || r.Again == 0 {
		return false
	}
	key := string(identity.Texts(identity.Text(nil, strings.ToLower(string(e.Reason))), e.Key))
	if now.Before(s.sent[key]) {
		return true
	}
	if now.Sub(s.swept) > time.Minute {
		for k, until := range s.sent {
			if !now.Before(until) {
				delete(s.sent, k)
			}
		}
		s.swept = now
	}
	s.sent[key] = now.Add(r.Again)
	return false
}

// object makes the API object of an event.
func (s *Events) object(e *Event, now time.Time) *corev1.Event {
	s.serial++
	namespace := e.Object.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	at := metav1.NewTime(now)
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%s.%x%04x", e.Object.Name,
			now.UnixNano(), s.serial&0xffff)},
		InvolvedObject:      e.Object,
		Reason:              string(e.Reason),
		Message:             short(e.Message),
		Type:                row(e.Reason).Type,
		Source:              corev1.EventSource{Component: component},
		ReportingController: component,
		FirstTimestamp:      at,
		LastTimestamp:       at,
		Count:               1,
	}
}

const component = "karpenter"

// short cuts a message to the longest that the API server accepts.
func short(s string) string {
	const most = 1024
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most-3], "") + "..."
}

// Run sends what is published until ctx ends.
func (s *Events) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { s.runPaced(ctx) })
	watched := s.metrics.Loop("events", 1)
	defer s.metrics.End(watched)
	alive := time.NewTicker(beatEvery)
	defer alive.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-alive.C:
			watched.Beat()
		case e := <-s.queue:
			watched.Turn(ctx, "sending an event", func(ctx context.Context) error { return s.send(ctx, e) })
		}
	}
}

// runPaced sends paced events one by one, at most pace in a second, until ctx ends.
func (s *Events) runPaced(ctx context.Context) {
	watched := s.metrics.Loop("events.paced", 1)
	defer s.metrics.End(watched)
	tick := time.NewTicker(time.Second / pace)
	defer tick.Stop()
	for {
		s.mu.Lock()
		e, ok := s.paced.take()
		s.mu.Unlock()
		if !ok {
			if !watched.Wait(ctx, time.Hour, s.paced.news) {
				return
			}
			continue
		}
		sent := false
		watched.Turn(ctx, "sending a paced event", func(ctx context.Context) (err error) {
			sent, err = s.sendPaced(ctx, &e)
			return err
		})
		if !sent {
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// sendPaced sends an event if it is still true, and reports whether it tried to.
func (s *Events) sendPaced(ctx context.Context, e *Event) (sent bool, err error) {
	if e.Still != nil && !e.Still() {
		return false, nil
	}
	s.mu.Lock()
	o := s.object(e, time.Now())
	s.mu.Unlock()
	return true, s.send(ctx, o)
}

func (s *Events) send(ctx context.Context, e *corev1.Event) error {
	// An event that cannot be written is lost on purpose: nothing depends on it, and trying again would only add to the load.
	err := s.write(ctx, e)
	if err != nil && ctx.Err() == nil {
		s.drop(Reason(e.Reason))
		Log(ctx).Debug("could not write event", "reason", e.Reason, "object", e.InvolvedObject.Name, "error", err)
	}
	return err
}

// pacedQueue holds the newest paced event of each object, in the order in which the objects were first added.
type pacedQueue struct {
	order   []types.UID
	waiting map[types.UID]Event
	news    chan struct{}
}

// add queues an event, in place of an earlier one of the same object. It returns false if the queue is full.
func (q *pacedQueue) add(e Event) bool {
	uid := e.Object.UID
	if _, known := q.waiting[uid]; !known {
		if len(q.order) >= pacedMax {
			return false
		}
		q.order = append(q.order, uid)
	}
	q.waiting[uid] = e
	select {
	case q.news <- struct{}{}:
	default:
	}
	return true
}

// take removes the event of the first object, ok false if there is none.
func (q *pacedQueue) take() (Event, bool) {
	if len(q.order) == 0 {
		q.order = nil // let go of the memory of a long queue
		return Event{}, false
	}
	uid := q.order[0]
	q.order = q.order[1:]
	e := q.waiting[uid]
	delete(q.waiting, uid)
	return e, true
}

// PodRef names a pod as the object of an event.
func PodRef(namespace, name string, uid types.UID) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: namespace, Name: name, UID: uid}
}

// NodeRef names a Node as the object of an event.
func NodeRef(n *corev1.Node) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: n.UID}
}

// ClaimRef names a NodeClaim as the object of an event.
func ClaimRef(c *v1.NodeClaim) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: v1.GroupVersion.String(), Kind: "NodeClaim", Name: c.Name, UID: c.UID}
}

// Refs names a Node and its NodeClaim, of which either may be nil.
func Refs(n *corev1.Node, c *v1.NodeClaim) (out []corev1.ObjectReference) {
	if n != nil {
		out = append(out, NodeRef(n))
	}
	if c != nil {
		out = append(out, ClaimRef(c))
	}
	return out
}

// PoolRef names a NodePool as the object of an event.
func PoolRef(p *v1.NodePool) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: v1.GroupVersion.String(), Kind: "NodePool", Name: p.Name, UID: p.UID}
}

// RolloutRef names a RolloutPolicy as the object of an event.
func RolloutRef(p *v1alpha1.RolloutPolicy) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "RolloutPolicy", Name: p.Name, UID: p.UID}
}

// QuotaRef names a CapacityQuota as the object of an event.
func QuotaRef(q *autoscalingv1beta1.CapacityQuota) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: autoscalingv1beta1.GroupVersion.String(), Kind: "CapacityQuota", Name: q.Name, UID: q.UID}
}

// BufferRef names a CapacityBuffer as the object of an event.
func BufferRef(name types.NamespacedName, uid types.UID) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: autoscalingv1beta1.GroupVersion.String(), Kind: "CapacityBuffer",
		Namespace: name.Namespace, Name: name.Name, UID: uid}
}
