package telemetry

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
)

// written collects events.
type written struct {
	*Events
	mu   sync.Mutex
	list []*corev1.Event
	fail error
}

func newWritten(t *testing.T) *written {
	w := &written{}
	w.Events = NewEvents(func(_ context.Context, e *corev1.Event) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.list = append(w.list, e)
		return w.fail
	}, NewMetrics(prometheus.NewRegistry(), ConditionKinds()))
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); w.Run(ctx) }()
	t.Cleanup(func() { stop(); <-done })
	return w
}

func (w *written) count() int { return len(w.sent()) }

func (w *written) sent() []*corev1.Event {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.list)
}

func event(r Reason, pod string, key ...string) Event {
	return Event{Object: PodRef("default", pod, types.UID(pod)), Reason: r, Message: "text", Key: key}
}

func TestEventsAreHeldBack(t *testing.T) {
	for name, tc := range map[string]struct {
		first, second Event
		after         time.Duration
		want          int
	}{
		"an equal event at once":                   {event(FailedDraining, "a", "n"), event(FailedDraining, "a", "n"), time.Second, 1},
		"an equal event after two minutes":         {event(FailedDraining, "a", "n"), event(FailedDraining, "a", "n"), 2 * time.Minute, 2},
		"an equal event within its longer window":  {event(Unconsolidatable, "a", "n"), event(Unconsolidatable, "a", "n"), 14 * time.Minute, 1},
		"an equal event within its shorter window": {event(NoCompatibleInstanceTypes, "a", "n"), event(NoCompatibleInstanceTypes, "a", "n"), 61 * time.Second, 2},
		"another key":                                 {event(FailedDraining, "a", "n"), event(FailedDraining, "a", "m"), 0, 2},
		"another reason":                              {event(FailedDraining, "a", "n"), event(AwaitingVolumeDetachment, "a", "n"), 0, 2},
		"another object of the same key":              {event(FailedDraining, "a", "n"), event(FailedDraining, "b", "n"), 0, 1},
		"events without key are never held back":      {event(FailedDraining, "a"), event(FailedDraining, "a"), 0, 2},
		"changes of conditions are never held back":   {event("Ready", "a", "n"), event("Ready", "a", "n"), 0, 2},
		"keys of several values are not run together": {event(FailedDraining, "a", "x", "y"), event(FailedDraining, "a", "xy"), 0, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWritten(t)
				w.Publish(tc.first)
				time.Sleep(tc.after)
				w.Publish(tc.second)
				if got := w.count(); got != tc.want {
					t.Errorf("%d events, want %d", got, tc.want)
				}
			})
		})
	}
}

// What is told of a node and its claim is held back for each of them by itself: a Node of the claim's name is another object.
func TestWhatIsToldOfSeveralObjects(t *testing.T) {
	node := func(uid types.UID) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: uid}}
	}
	claim := &v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "1"}}
	for name, tc := range map[string]struct {
		first, second []corev1.ObjectReference
		key           string // of the second; that of the first is "why"
		want          int
	}{
		"the same of the same":        {Refs(node("1"), claim), Refs(node("1"), claim), "why", 2},
		"the same of the other half":  {Refs(node("1"), nil), Refs(nil, claim), "why", 2},
		"something else of the same":  {Refs(node("1"), nil), Refs(node("1"), nil), "another", 2},
		"the same of its name's heir": {Refs(node("1"), nil), Refs(node("2"), nil), "why", 2},
		"of nothing":                  {Refs(nil, nil), Refs(nil, nil), "why", 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWritten(t)
				w.Tell(tc.first, FailedDraining, "text", "why")
				w.Tell(tc.second, FailedDraining, "text", tc.key)
				if n := w.count(); n != tc.want {
					t.Errorf("%d events were sent, want %d", n, tc.want)
				}
			})
		})
	}
}

func TestNominationsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWritten(t)
		for i := range 100 {
			w.Publish(event(Nominated, fmt.Sprint(i), fmt.Sprint(i)))
		}
		if got := w.count(); got != 10 {
			t.Errorf("%d events at once, want a burst of 10", got)
		}
		time.Sleep(2 * time.Second)
		for i := range 100 {
			w.Publish(event(Nominated, fmt.Sprint(i), "again", fmt.Sprint(i)))
		}
		if got := w.count(); got != 20 {
			t.Errorf("%d events two seconds later, want 5 more for each second", got)
		}
		if got := testutil.ToFloat64(w.metrics.EventsDropped.WithLabelValues("Nominated")); got != 180 {
			t.Errorf("%v events counted as dropped, want 180", got)
		}
	})
}

// A flood of paced events is sent at its own rate, and others are not held up by it.
func TestPacedEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWritten(t)
		for i := range 1000 {
			w.Publish(event(FailedScheduling, fmt.Sprint(i), fmt.Sprint(i)))
		}
		w.Publish(event(FailedDraining, "node", "n"))
		synctest.Wait()
		if got := w.count(); got > 4 {
			t.Errorf("%d events at once, want the other one and at most a few of the flood", got)
		}
		found := false
		for _, e := range w.sent() {
			found = found || e.Reason == string(FailedDraining)
		}
		if !found {
			t.Error("the other event waits behind the flood")
		}
		time.Sleep(10 * time.Second)
		if got := w.count(); got < 195 || got > 210 {
			t.Errorf("%d events after ten seconds, want about 200", got)
		}
		time.Sleep(45 * time.Second)
		if got := w.count(); got != 1001 {
			t.Errorf("%d events in the end, want all 1001", got)
		}
	})
}

func TestPacedEventsThatAreNoLongerTrueAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWritten(t)
		var untrue atomic.Bool
		for i := range 100 {
			e := event(FailedScheduling, fmt.Sprint(i), fmt.Sprint(i))
			e.Still = func() bool { return !untrue.Load() }
			w.Publish(e)
		}
		time.Sleep(time.Second)
		untrue.Store(true)
		before := w.count()
		time.Sleep(time.Minute)
		if got := w.count(); got != before {
			t.Errorf("%d events were sent after they had become untrue", got-before)
		}
	})
}

func TestEventObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWritten(t)
		e := event(FailedDraining, "a")
		e.Message = strings.Repeat("ü", 1000)
		w.Publish(e)
		w.Publish(Event{Object: corev1.ObjectReference{Kind: "Node", Name: "n"}, Reason: "Ready"})
		sent := w.sent()
		pod, node := sent[0], sent[1]
		if pod.Namespace != "default" || pod.Type != corev1.EventTypeWarning || pod.Source.Component != "karpenter" || len(pod.Message) > 1024 {
			t.Errorf("event of a pod = %+v", pod)
		}
		if node.Namespace != "default" || node.Type != corev1.EventTypeNormal || node.Name == pod.Name {
			t.Errorf("event of a node = %+v", node)
		}
	})
}

// Every reason stands in the table once.
func TestReasons(t *testing.T) {
	seen := map[Reason]bool{}
	for _, r := range EventRows() {
		if seen[r.Reason] || r.When == "" || r.Type != normal && r.Type != warning {
			t.Errorf("row of %s: %+v", r.Reason, r)
		}
		seen[r.Reason] = true
	}
}
