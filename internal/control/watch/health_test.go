package watch

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/kit/watchhealth"
)

// moody is an API server that can be told how to answer.
type moody struct {
	*server1
	over           chan struct{} // closed at the end of the test
	lists, watches atomic.Value  // how the next requests are answered: a mood
}

type mood struct {
	err  error         // this is the answer
	mute bool          // there is no answer before the caller gives up
	dead bool          // nor then
	ends time.Duration // a watch that is given ends after this, zero for never
	last runtime.Object
}

var (
	fine      = mood{ends: 4 * time.Minute}
	forbidden = mood{err: apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", nil)}
	endless   = mood{}
	mute      = mood{mute: true}
	dead      = mood{dead: true}
)

func newMoody(s *server1) *moody {
	m := &moody{server1: s, over: make(chan struct{})}
	m.feel(fine)
	return m
}

func (m *moody) feel(is mood) {
	m.lists.Store(is)
	m.watches.Store(is)
}

func (m *moody) List(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	is := m.lists.Load().(mood)
	if err := m.keepsWaiting(ctx, is); err != nil {
		return nil, err
	}
	return m.server1.List(ctx, o)
}

func (m *moody) keepsWaiting(ctx context.Context, is mood) error {
	switch {
	case is.dead:
		<-m.over
	case is.mute:
		<-ctx.Done()
	default:
		return is.err
	}
	return errors.New("over")
}

func (m *moody) Watch(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
	is := m.watches.Load().(mood)
	if err := m.keepsWaiting(ctx, is); err != nil {
		return nil, err
	}
	w, err := m.server1.Watch(ctx, o)
	if is.last != nil {
		m.send(apiwatch.Error, is.last)
	}
	if is.ends > 0 {
		live := m.live
		time.AfterFunc(is.ends, live.Stop)
	}
	return w, err
}

// begin runs a watch of one kind, in which the first list has arrived and five minutes have passed.
func begin(t *testing.T, k kind, m *moody) *cluster.Store {
	t.Helper()
	store := cluster.NewStore()
	w := &Watch{store: store, since: time.Now()}
	w.add(k, m)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(func() { stop(); close(m.over); <-done })
	time.Sleep(5 * time.Minute)
	if !store.Snapshot().Synced() || !store.Snapshot().Fed() {
		t.Fatalf("synced %v, fed %v; want both", store.Snapshot().Synced(), store.Snapshot().Fed())
	}
	return store
}

func TestFeedsThatFailAreTold(t *testing.T) {
	gone := mood{last: &apierrors.NewInternalError(errors.New("no conversion")).ErrStatus}
	expired := mood{last: &apierrors.NewResourceExpired("too old").ErrStatus}
	for name, tc := range map[string]struct {
		list, watch mood
		fed, failed time.Duration // the longest time for which it surely works, and the shortest after which it surely does not; zero for never
	}{
		"nothing happens":                              {fine, fine, 0, 0},
		"watches do not end, and are ended by us":      {endless, endless, 0, 0},
		"watches are refused":                          {fine, forbidden, 3*time.Minute + 50*time.Second, 4*time.Minute + 30*time.Second},
		"every watch ends with an error":               {fine, gone, 3*time.Minute + 50*time.Second, 4*time.Minute + 30*time.Second},
		"places are forgotten at once, lists are read": {fine, expired, 0, 0},
		"places are forgotten, lists are refused":      {forbidden, expired, 3*time.Minute + 50*time.Second, 4*time.Minute + 30*time.Second},
		"calls never return":                           {dead, dead, 14 * time.Minute, 14*time.Minute + 10*time.Second},
		"nobody answers":                               {mute, mute, 3*time.Minute + 50*time.Second, 14*time.Minute + 10*time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMoody(&server1{list: podList})
				store := begin(t, pods().kind, m) // the first watch ends in three minutes
				m.lists.Store(tc.list)
				m.watches.Store(tc.watch)
				began := time.Now()
				for range 24 * 60 {
					time.Sleep(5 * time.Second)
					fed, after := store.Snapshot().Fed(), time.Since(began)
					if !fed && (tc.failed == 0 || after < tc.fed) || fed && tc.failed > 0 && after > tc.failed {
						t.Fatalf("after %s: fed = %v", after, fed)
					}
				}
			})
		})
	}
}

func TestAFeedThatHeals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMoody(&server1{list: podList})
		store := begin(t, pods().kind, m)
		m.feel(forbidden)
		time.Sleep(10 * time.Minute)
		told := slices.Collect(store.Snapshot().FailedFeeds())
		if len(told) != 1 || told[0].Kind != "Pod" || told[0].Why != forbidden.err.Error() || time.Since(told[0].Since).Round(time.Minute) != 7*time.Minute {
			t.Fatalf("failed = %+v, want pods, since the watch ended seven minutes ago", told)
		}
		m.feel(fine)
		time.Sleep(45 * time.Second)
		if !store.Snapshot().Fed() {
			t.Error("a feed that works again still counts as failed")
		}
	})
}

// A short failure is none, however often it comes.
func TestShortFailuresAreForgiven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMoody(&server1{list: podList})
		store := begin(t, pods().kind, m)
		for range 20 {
			m.live.Stop()
			m.feel(forbidden)
			time.Sleep(25 * time.Second)
			m.feel(fine)
			for range 60 {
				if time.Sleep(time.Second); !store.Snapshot().Fed() {
					t.Fatal("half a minute of errors counts as failure")
				}
			}
		}
	})
}

// What was taken from us is still there: the classes stay, and are told of as no longer read.
func TestAClosedKindIsNotAnEmptyOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		class := asServed(map[string]any{"metadata": map[string]any{"name": "c"}})
		m := newMoody(&server1{list: poolList, pages: [][]runtime.Object{{class}}})
		store := begin(t, nodeClass(schema.GroupVersionKind{Group: "g", Version: "v1", Kind: "Class"}).kind, m)
		m.feel(forbidden)
		m.send(apiwatch.Error, &apierrors.NewResourceExpired("too old").ErrStatus)
		time.Sleep(2 * time.Minute)
		if store.Snapshot().NodeClass(&v1.NodeClassReference{Group: "g", Kind: "Class", Name: "c"}) == nil {
			t.Error("a class that is there counts as gone")
		}
		if store.Snapshot().Fed() {
			t.Error("classes that may not be read count as read")
		}
	})
}

// What the provider follows itself counts like what is read here, from when it listens.
func TestWhatTheProviderNoLongerHearsStopsDisruption(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ear := &watchhealth.Ear{}
		store := cluster.NewStore()
		w := New(API{Client: fake.NewClientBuilder().Build(), REST: &rest.RESTClient{}}, store, Settings{Others: []Ear{{Kind: "a copy", Ear: ear}}})
		w.feeds = nil
		w.missing = nil
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- w.Run(ctx) }()
		defer func() { stop(); <-done }()
		time.Sleep(time.Hour)
		if !store.Snapshot().Fed() {
			t.Error("what nobody listens to yet counts as failed")
		}
		ear.Hear()
		time.Sleep(12 * time.Minute)
		if told := slices.Collect(store.Snapshot().FailedFeeds()); len(told) != 1 || told[0].Kind != "a copy" {
			t.Errorf("failed = %+v, want the copy", told)
		}
		ear.Hear()
		time.Sleep(time.Minute)
		if !store.Snapshot().Fed() {
			t.Error("what is heard again still counts as failed")
		}
	})
}

func TestMinorKindsStopNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMoody(&server1{list: podList})
		k := pods().kind
		k.minor = true
		store := begin(t, k, m)
		m.feel(forbidden)
		time.Sleep(time.Hour)
		if !store.Snapshot().Fed() {
			t.Error("a kind that decisions do not need stops them")
		}
	})
}

// What there is of devices stops nothing but what has to do with devices, and that until it is read again.
func TestKindsOfDevicesStopDevicesOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMoody(&server1{list: podList})
		store := begin(t, ofDevices(pods()).kind, m)
		if !store.Snapshot().DevicesFed() {
			t.Error("devices are not read before anything has failed")
		}
		m.feel(forbidden)
		time.Sleep(10 * time.Minute)
		if s := store.Snapshot(); !s.Fed() || s.DevicesFed() {
			t.Errorf("fed %v, devices %v; want the first only", s.Fed(), s.DevicesFed())
		}
		m.feel(fine)
		time.Sleep(45 * time.Second)
		if !store.Snapshot().DevicesFed() {
			t.Error("devices that are read again still count as unread")
		}
	})
	for _, k := range devices() {
		if !k.devices || !k.optional || k.minor {
			t.Errorf("%s is no kind of devices", k.name)
		}
	}
}

func TestNeededKinds(t *testing.T) {
	var needed []string
	for _, k := range slices.Concat(own(), []served{nodeClass(schema.GroupVersionKind{Kind: "Class"})}, builtin(), owners()) {
		if !k.minor {
			needed = append(needed, k.name)
		}
	}
	slices.Sort(needed)
	want := []string{
		"CSINode", "Class", "DaemonSet", "Namespace", "Node", "NodeClaim", "NodePool", "PersistentVolume", "PersistentVolumeClaim", "Pod",
		"PodDisruptionBudget", "StorageClass", "VolumeAttachment",
	}
	if !slices.Equal(needed, want) {
		t.Errorf("needed = %q, want %q", needed, want)
	}
}
