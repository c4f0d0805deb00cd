package mirror

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
)

func TestMirror(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		scheme := runtime.NewScheme()
		if err := awsv1.AddToScheme(scheme); err != nil {
			t.Fatal(err)
		}
		class := func(name string) *awsv1.EC2NodeClass {
			return &awsv1.EC2NodeClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
		}
		kube := fake.NewClientBuilder().WithScheme(scheme).WithObjects(class("b"), class("a")).Build()
		m := New[*awsv1.EC2NodeClass](kube, func() client.ObjectList { return &awsv1.EC2NodeClassList{} })
		var told []string
		ctx, cancel := context.WithCancel(t.Context())
		var done sync.WaitGroup
		m.Subscribe(ctx, func(name string) { told = append(told, name) })
		done.Go(func() { m.Run(ctx) })
		if !m.WaitForSync(ctx) {
			t.Fatal("no first list")
		}
		synctest.Wait()
		names := func() (out []string) {
			for _, nc := range m.All() {
				out = append(out, nc.Name)
			}
			return out
		}
		if !slices.Equal(names(), []string{"a", "b"}) || !slices.Equal(told, []string{"a", "b"}) {
			t.Errorf("objects %v, told %v", names(), told)
		}
		a, _ := m.Get("a")
		next := a.DeepCopy()
		next.Spec.Role = "r"
		if err := kube.Update(ctx, next); err != nil {
			t.Fatal(err)
		}
		if err := kube.Delete(ctx, class("b")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if now, _ := m.Get("a"); now == a || now.Spec.Role != "r" || a.Spec.Role != "" {
			t.Error("a change did not replace the row")
		}
		if !slices.Equal(names(), []string{"a"}) || !slices.Equal(told[2:], []string{"a", "b"}) {
			t.Errorf("objects %v, told %v", names(), told)
		}
		cancel()
		done.Wait()
	})
}

func TestNoteTakesNothingBack(t *testing.T) {
	class := func(uid types.UID, version string) *awsv1.EC2NodeClass {
		return &awsv1.EC2NodeClass{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: uid, ResourceVersion: version}}
	}
	for name, tc := range map[string]struct {
		known, noted *awsv1.EC2NodeClass
		taken        bool
	}{
		"our own write":                    {class("1", "9"), class("1", "10"), true},
		"a write that the watch has shown": {class("1", "10"), class("1", "10"), true},
		"a write that somebody changed":    {class("1", "11"), class("1", "10"), false},
		"an object that is gone":           {nil, class("1", "10"), false},
		"an object that was made anew":     {class("2", "5"), class("1", "10"), false},
	} {
		m := New[*awsv1.EC2NodeClass](nil, nil)
		if tc.known != nil {
			m.put("a", &tc.known)
		}
		told := 0
		m.Subscribe(t.Context(), func(string) { told++ })
		m.Note(tc.noted)
		got, ok := m.Get("a")
		taken := ok && got.UID == tc.noted.UID && got.ResourceVersion == tc.noted.ResourceVersion && got != tc.known
		if taken != tc.taken || (told == 1) != tc.taken {
			t.Errorf("%s: taken over %v, told %d times; want %v", name, taken, told, tc.taken)
		}
	}
}

// broken is a client that is told how to fail.
type broken struct {
	client.WithWatch
	lists, watches func() error
}

func (b *broken) List(ctx context.Context, list client.ObjectList, o ...client.ListOption) error {
	if err := b.lists(); err != nil {
		return err
	}
	return b.WithWatch.List(ctx, list, o...)
}

func (b *broken) Watch(ctx context.Context, list client.ObjectList, o ...client.ListOption) (watch.Interface, error) {
	if err := b.watches(); err != nil {
		return nil, err
	}
	return b.WithWatch.Watch(ctx, list, o...)
}

// A mirror that no longer follows the cluster says so, one of which nothing changes does not.
func TestAMirrorKnowsWhetherItIsFed(t *testing.T) {
	type mood func(over <-chan struct{}) error
	fine, refused := mood(func(<-chan struct{}) error { return nil }), mood(func(<-chan struct{}) error { return errors.New("forbidden") })
	hangs := mood(func(over <-chan struct{}) error { <-over; return errors.New("over") })
	for name, tc := range map[string]struct {
		lists, watches mood
		after          time.Duration // when it says so, zero for never
	}{
		"nothing happens":                      {fine, fine, 0},
		"watches are refused, lists are read":  {fine, refused, 0},
		"lists and watches are refused":        {refused, refused, 12 * time.Minute},
		"watches and lists are never answered": {hangs, hangs, 22 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				scheme := runtime.NewScheme()
				if err := awsv1.AddToScheme(scheme); err != nil {
					t.Fatal(err)
				}
				over := make(chan struct{})
				var spoilt atomic.Bool
				when := func(bad mood) func() error {
					return func() error {
						if !spoilt.Load() {
							return nil
						}
						return bad(over)
					}
				}
				kube := &broken{WithWatch: fake.NewClientBuilder().WithScheme(scheme).Build(), lists: when(tc.lists), watches: when(tc.watches)}
				m := New[*awsv1.EC2NodeClass](kube, func() client.ObjectList { return &awsv1.EC2NodeClassList{} })
				if _, why := m.Ear().Failed(); why != "" {
					t.Errorf("before it runs: %s", why)
				}
				ctx, stop := context.WithCancel(t.Context())
				var done sync.WaitGroup
				done.Go(func() { m.Run(ctx) })
				defer func() { stop(); close(over); done.Wait() }()
				time.Sleep(time.Minute)
				spoilt.Store(true)
				began := time.Now()
				for range 60 {
					time.Sleep(time.Minute)
					_, why := m.Ear().Failed()
					if late := time.Since(began) >= tc.after; tc.after == 0 && why != "" || tc.after > 0 && late && why == "" {
						t.Fatalf("after %s: %q", time.Since(began), why)
					}
				}
			})
		})
	}
}

// A watch that ends each time it was begun is no reason to ask again and again without a rest.
func TestAWatchThatEndsAtOnceIsAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		scheme := runtime.NewScheme()
		if err := awsv1.AddToScheme(scheme); err != nil {
			t.Fatal(err)
		}
		watches := 0
		kube := &broken{WithWatch: ended{fake.NewClientBuilder().WithScheme(scheme).Build()}, lists: func() error { return nil }, watches: func() error { watches++; return nil }}
		m := New[*awsv1.EC2NodeClass](kube, func() client.ObjectList { return &awsv1.EC2NodeClassList{} })
		ctx, stop := context.WithTimeout(t.Context(), time.Hour)
		defer stop()
		m.Run(ctx)
		if watches < 100 || watches > 130 {
			t.Errorf("%d watches in an hour, want one each thirty seconds at last", watches)
		}
	})
}

// ended is a client whose watches end at once.
type ended struct{ client.WithWatch }

func (e ended) Watch(context.Context, client.ObjectList, ...client.ListOption) (watch.Interface, error) {
	w := watch.NewFake()
	w.Stop()
	return w, nil
}
