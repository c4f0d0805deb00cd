package watch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// server1 is a small API server for one kind: a list in pages, and watches that the test writes to.
type server1 struct {
	mu      sync.Mutex
	pages   [][]runtime.Object
	list    func(items []runtime.Object, token string) runtime.Object
	listErr error
	lists   int
	watches []string // the versions from which was watched
	live    *apiwatch.FakeWatcher
	refuse  error // the next watch fails with this
}

func (s *server1) List(_ context.Context, o metav1.ListOptions) (runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lists++
	if s.listErr != nil {
		return nil, s.listErr
	}
	page := 0
	if o.Continue != "" {
		fmt.Sscan(o.Continue, &page)
	}
	next := ""
	if page+1 < len(s.pages) {
		next = fmt.Sprint(page + 1)
	}
	var items []runtime.Object
	if page < len(s.pages) {
		items = s.pages[page]
	}
	return s.list(items, next), nil
}

func (s *server1) Watch(_ context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watches = append(s.watches, o.ResourceVersion)
	if s.refuse != nil {
		err := s.refuse
		s.refuse = nil
		return nil, err
	}
	s.live = apiwatch.NewFakeWithChanSize(1000, false)
	return s.live, nil
}

func (s *server1) send(t apiwatch.EventType, o runtime.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.live.Action(t, o)
}

func podList(items []runtime.Object, token string) runtime.Object {
	l := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "100", Continue: token}}
	for _, o := range items {
		l.Items = append(l.Items, *o.(*corev1.Pod))
	}
	return l
}

func pod(name string, version int) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: name, UID: types.UID(name), ResourceVersion: fmt.Sprint(version),
		Labels: map[string]string{"version": fmt.Sprint(version)},
	}}
}

func poolList(items []runtime.Object, token string) runtime.Object {
	l := &rawList{ListMeta: metav1.ListMeta{ResourceVersion: "100", Continue: token}}
	for _, o := range items {
		l.Items = append(l.Items, *o.(*rawObject))
	}
	return l
}

func pool(name string, weight any) *rawObject {
	return asServed(map[string]any{
		"apiVersion": "karpenter.sh/v1", "kind": "NodePool",
		"metadata": map[string]any{"name": name, "uid": name},
		"spec":     map[string]any{"weight": weight, "template": map[string]any{"spec": map[string]any{"requirements": []any{}}}},
	})
}

func asServed(content map[string]any) *rawObject {
	text, err := json.Marshal(content)
	o := &rawObject{}
	if err == nil {
		err = json.Unmarshal(text, o)
	}
	if err != nil {
		panic(err)
	}
	return o
}

// world runs one feed.
type world struct {
	store  *cluster.Store
	server *server1
	listed int
}

func run(t *testing.T, k kind, s *server1) *world {
	t.Helper()
	w := &world{store: cluster.NewStore(), server: s}
	f := &feed{kind: k, source: s, store: w.store, listed: func() { w.listed++ }}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); f.run(ctx) }()
	t.Cleanup(func() { stop(); <-done })
	synctest.Wait()
	return w
}

func (w *world) pods() []string {
	var out []string
	for p := range w.store.Snapshot().Pods() {
		out = append(out, p.Name+"@"+p.Labels.Map["version"])
	}
	return out
}

func TestFeed(t *testing.T) {
	for name, tc := range map[string]struct {
		story func(w *world)
		want  []string
		lists int
	}{
		"a list of several pages is read completely": {
			func(*world) {}, []string{"a@1", "b@2", "c@3"}, 2,
		},
		"changes are followed": {
			func(w *world) {
				w.server.send(apiwatch.Added, pod("d", 101))
				w.server.send(apiwatch.Modified, pod("a", 102))
				w.server.send(apiwatch.Deleted, pod("b", 103))
			},
			[]string{"a@102", "c@3", "d@101"}, 2,
		},
		"a watch that ends is taken up where it was": {
			func(w *world) {
				w.server.send(apiwatch.Modified, pod("a", 102))
				synctest.Wait()
				time.Sleep(5 * time.Minute)
				w.server.live.Stop()
				synctest.Wait()
				w.server.send(apiwatch.Modified, pod("b", 104))
			},
			[]string{"a@102", "b@104", "c@3"}, 2,
		},
		"a version that the server forgot means a new list, which replaces the picture": {
			func(w *world) {
				w.server.mu.Lock()
				w.server.pages = [][]runtime.Object{{pod("c", 7), pod("e", 8)}}
				w.server.mu.Unlock()
				w.server.send(apiwatch.Error, &apierrors.NewResourceExpired("too old").ErrStatus)
				time.Sleep(5 * time.Second)
			},
			[]string{"c@7", "e@8"}, 3,
		},
		"a server that fails is asked again, and what is known stays": {
			func(w *world) {
				w.server.mu.Lock()
				w.server.refuse = errors.New("unavailable")
				w.server.mu.Unlock()
				time.Sleep(5 * time.Minute)
				w.server.live.Stop()
				time.Sleep(10 * time.Second)
				w.server.send(apiwatch.Modified, pod("a", 102))
			},
			[]string{"a@102", "b@2", "c@3"}, 2,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := run(t, pods().kind, &server1{list: podList, pages: [][]runtime.Object{{pod("a", 1), pod("b", 2)}, {pod("c", 3)}}})
				tc.story(w)
				synctest.Wait()
				if got := w.pods(); !slices.Equal(got, tc.want) {
					t.Errorf("pods = %q, want %q", got, tc.want)
				}
				if w.server.lists != tc.lists || w.listed == 0 {
					t.Errorf("%d pages were read and %d lists completed, want %d pages", w.server.lists, w.listed, tc.lists)
				}
			})
		})
	}
}

func TestWatchGoesOnFromTheLastBookmark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := run(t, pods().kind, &server1{list: podList})
		w.server.send(apiwatch.Bookmark, pod("", 555))
		synctest.Wait()
		time.Sleep(5 * time.Minute)
		w.server.live.Stop()
		synctest.Wait()
		if got, want := w.server.watches, []string{"100", "555"}; !slices.Equal(got, want) {
			t.Errorf("watched from versions %q, want %q", got, want)
		}
	})
}

func TestBookmarksWakeNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := run(t, pods().kind, &server1{list: podList})
		before := w.store.Snapshot()
		woken := func() bool {
			time.Sleep(time.Second)
			select {
			case <-before.Stale():
				return true
			default:
				return false
			}
		}
		w.server.send(apiwatch.Bookmark, pod("", 555))
		if woken() {
			t.Error("a bookmark is taken for news")
		}
		w.server.send(apiwatch.Added, pod("a", 556))
		if !woken() {
			t.Error("a pod is not taken for news")
		}
		before = w.store.Snapshot()
		w.server.send(apiwatch.Deleted, pod("a", 557))
		if !woken() {
			t.Error("the end of a pod is not taken for news")
		}
	})
}

// The echo of our own write is neither decoded nor news.
func TestWhatWeWroteIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := run(t, own()[1].kind, &server1{list: poolList})
		claim := &v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "c", UID: "u", ResourceVersion: "101", Labels: map[string]string{"by": "us"}}}
		w.store.Update(func(d *cluster.Draft) { d.PutClaim(claim) })
		time.Sleep(time.Second)
		before := w.store.Snapshot()
		event := func(version string) *rawObject {
			return asServed(map[string]any{"metadata": map[string]any{"name": "c", "uid": "u", "resourceVersion": version, "labels": map[string]any{"by": "them"}}})
		}
		seen := func() (by string, news bool) {
			synctest.Wait()
			time.Sleep(time.Second)
			select {
			case <-before.Stale():
				news = true
			default:
			}
			return w.store.Snapshot().ClaimNode("c").Claim.Labels["by"], news
		}
		w.server.send(apiwatch.Modified, event("101"))
		if by, news := seen(); by != "us" || news {
			t.Errorf("after the echo the claim is by %s, news: %v; want it as we put it and no news", by, news)
		}
		w.server.send(apiwatch.Modified, event("102"))
		if by, news := seen(); by != "them" || !news {
			t.Errorf("after another write the claim is by %s, news: %v; want theirs", by, news)
		}
		w.server.send(apiwatch.Modified, event("102")) // the feed knows what it must remove
		w.server.send(apiwatch.Deleted, event("103"))
		synctest.Wait()
		if w.store.Snapshot().ClaimNode("c") != nil {
			t.Error("a claim that is gone is still there")
		}
	})
}

// One pool that cannot be read does not hide the others; what was known of it stays; and it is named until it is mended.
func TestBrokenObjectsAreNamedAndLeftOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server1{list: poolList, pages: [][]runtime.Object{{pool("good", int64(1)), pool("bad", "heavy")}}}
		w := run(t, own()[0].kind, s)
		state := func() string {
			var out []string
			for p := range cluster.Pools.All(w.store.Snapshot()) {
				out = append(out, fmt.Sprint(p.Name, "=", p.Weight()))
			}
			for b := range w.store.Snapshot().Broken() {
				out = append(out, "broken "+b.Kind+"/"+b.Name)
			}
			return strings.Join(out, " ")
		}
		check := func(when, want string) {
			t.Helper()
			synctest.Wait()
			if got := state(); got != want {
				t.Errorf("%s: %q, want %q", when, got, want)
			}
		}
		check("after the list", "good=1 broken NodePool/bad")
		s.send(apiwatch.Modified, pool("good", "light"))
		check("after a good one broke", "good=1 broken NodePool/bad broken NodePool/good")
		s.send(apiwatch.Modified, pool("bad", int64(7)))
		check("after one was mended", "bad=7 good=1 broken NodePool/good")
		s.send(apiwatch.Deleted, pool("good", "light"))
		check("after a broken one was deleted", "bad=7")
	})
}

// An object over which reading or storing panics is left out like one that cannot be read: the feed lives on, and the others arrive.
func TestAPanicCostsOneObject(t *testing.T) {
	bad := func(o any) {
		if o.(*corev1.Pod).Name == "bad" {
			panic("cannot happen")
		}
	}
	put := pods().put
	for name, edit := range map[string]func(*kind){
		"while it is read": func(k *kind) {
			k.read = func(o runtime.Object) (client.Object, error) { bad(o); return o.(client.Object), nil }
		},
		"while it is stored": func(k *kind) { k.put = func(d *cluster.Draft, o client.Object) bool { bad(o); return put(d, o) } },
		"while it is looked up": func(k *kind) {
			k.known = func(_ *cluster.Draft, o metav1.Object) bool { bad(o); return false }
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := pods().kind
				edit(&k)
				w := run(t, k, &server1{list: podList, pages: [][]runtime.Object{{pod("a", 1), pod("bad", 2), pod("z", 3)}}})
				w.server.send(apiwatch.Modified, pod("bad", 4))
				w.server.send(apiwatch.Modified, pod("z", 5))
				synctest.Wait()
				if got, want := w.pods(), []string{"a@1", "z@5"}; !slices.Equal(got, want) {
					t.Errorf("pods = %q, want %q", got, want)
				}
				broken := slices.Collect(w.store.Snapshot().Broken())
				if len(broken) != 1 || broken[0].Name != "bad" || !strings.Contains(broken[0].Err, "cannot happen") {
					t.Errorf("broken = %+v, want the one that panics", broken)
				}
			})
		})
	}
}

func TestOptionalKindsMayBeAbsent(t *testing.T) {
	gvk := schema.GroupVersionKind{Group: "g", Version: "v1", Kind: "Class"}
	for name, err := range map[string]error{
		"unknown":   apierrors.NewNotFound(schema.GroupResource{Resource: "classes"}, ""),
		"forbidden": apierrors.NewForbidden(schema.GroupResource{Resource: "classes"}, "", nil),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &server1{list: poolList, listErr: err}
				w := run(t, nodeClass(gvk).kind, s)
				if w.listed != 1 {
					t.Fatal("an absent kind holds up the rest")
				}
				class := asServed(map[string]any{
					"metadata": map[string]any{"name": "c"},
					"status":   map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": "True"}}},
				})
				s.mu.Lock()
				s.listErr, s.pages = nil, [][]runtime.Object{{class}}
				s.mu.Unlock()
				time.Sleep(2 * time.Minute)
				c := w.store.Snapshot().NodeClass(&v1.NodeClassReference{Group: "g", Kind: "Class", Name: "c"})
				if c == nil || c.Ready == nil || c.Ready.Status != metav1.ConditionTrue {
					t.Errorf("class = %+v, want it ready", c)
				}
			})
		})
	}
}

func TestSyncedOnceEveryKindIsListed(t *testing.T) {
	w := &Watch{store: cluster.NewStore(), since: time.Now()}
	w.add(kind{name: "A"}, nil)
	w.add(kind{name: "B"}, nil)
	w.arrived("A")
	if missing, _ := w.Missing(); w.store.Snapshot().Synced() || !slices.Equal(missing, []string{"B"}) {
		t.Errorf("synced without B; missing = %q", missing)
	}
	w.arrived("B")
	if missing, _ := w.Missing(); !w.store.Snapshot().Synced() || missing != nil {
		t.Errorf("not synced after both; missing = %q", missing)
	}
}

// A kind that does not arrive is named, now and again, until it has.
func TestWhatDoesNotArriveIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		w := &Watch{store: cluster.NewStore(), since: time.Now()}
		w.add(kind{name: "A"}, nil)
		w.add(kind{name: "B"}, nil)
		w.arrived("A")
		done := make(chan struct{})
		go func() {
			defer close(done)
			w.complain(telemetry.WithLog(t.Context(), slog.New(telemetry.NewHandler(&log, slog.LevelInfo))))
		}()
		said := func() int {
			synctest.Wait()
			return strings.Count(log.String(), `"level":"ERROR","message":"cluster is waiting on sync for extended duration"`)
		}
		for after, want := range []int{0, 1, 2} { // after 29, 39 and 49 seconds
			time.Sleep([]time.Duration{patience - time.Second, nag, nag}[after])
			if got := said(); got != want {
				t.Errorf("it is said %d times by then, want %d", got, want)
			}
		}
		if text := log.String(); !strings.Contains(text, `"duration":"40s","missing":["B"]`) {
			t.Errorf("it does not say for how long, and what is missing: %s", text)
		}
		w.arrived("B")
		<-done
		if got := said(); got != 2 {
			t.Errorf("it is said %d times once everything is there, want no more", got)
		}
	})
}
