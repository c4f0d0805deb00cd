package operator

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/control/catalog"
	"karpenter.sh/karpenter/internal/history/journal"
	"karpenter.sh/karpenter/internal/observe"
	"karpenter.sh/karpenter/internal/observe/telemetry"
	"karpenter.sh/karpenter/internal/testing/fakecloud"
	"karpenter.sh/karpenter/internal/testing/memapi"
)

func TestAHangingLoopFailsTheLivenessProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := telemetry.NewMetrics(prometheus.NewRegistry(), telemetry.ConditionKinds())
		h := healthHandler(checks{alive(m), func() error { return nil }})
		probe := func() (int, string) {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/healthz", nil))
			return w.Code, w.Body.String()
		}
		watched := m.Loop("disruption", 1)
		go watched.Turn(t.Context(), "hanging", func(context.Context) error { time.Sleep(11 * time.Minute); return nil })
		time.Sleep(9 * time.Minute)
		if code, text := probe(); code != http.StatusOK {
			t.Errorf("after nine minutes: %d %s, want OK", code, text)
		}
		time.Sleep(90 * time.Second)
		if code, text := probe(); code != http.StatusServiceUnavailable || !strings.Contains(text, "disruption") {
			t.Errorf("after ten minutes and a half: %d %s, want a failure that names the loop", code, text)
		}
		time.Sleep(time.Minute)
		watched.Turn(t.Context(), "going on", func(context.Context) error { return nil })
		if code, text := probe(); code != http.StatusOK {
			t.Errorf("when the loop goes on: %d %s, want OK", code, text)
		}
	})
}

// somewhere is an API server of some version.
type somewhere string

func (v somewhere) ServerVersion() (*version.Info, error) {
	return &version.Info{GitVersion: string(v)}, nil
}

func (somewhere) ServerGroups() (*metav1.APIGroupList, error) { return &metav1.APIGroupList{}, nil }

// unwatched is a client that nobody watches with: the store is filled by the test.
type unwatched struct{ client.Client }

func (unwatched) Watch(context.Context, client.ObjectList, ...client.ListOption) (watch.Interface, error) {
	return nil, errors.New("nobody watches here")
}

// someParts are the parts of a program on an API and a cloud in memory.
func someParts(t *testing.T) *parts {
	t.Helper()
	kinds, err := scheme(NodeClasses{AddToScheme: awsv1.AddToScheme})
	if err != nil {
		t.Fatal(err)
	}
	api := memapi.New(kinds)
	c := api.Client("test")
	machines, err := fakecloud.New(fakecloud.Options{})
	if err != nil {
		t.Fatal(err)
	}
	m := telemetry.NewMetrics(prometheus.NewRegistry(), telemetry.ConditionKinds())
	store := cluster.NewStore()
	store.Update(func(d *cluster.Draft) { d.Synced(true) })
	settings := DefaultSettings()
	settings.Gates.StaticCapacity, settings.Gates.NodeRepair, settings.LegacyNodeRepair = true, true, true // behind them are loops
	settings.Journal.Dir, settings.RecordDir = t.TempDir(), t.TempDir()
	return &parts{
		store: store, clients: &clients{main: unwatched{c}, evictions: c, hints: c, version: somewhere("v1.36.0")},
		cloud: meter(machines, m), catalogs: catalog.New(machines), metrics: m, settings: settings, journal: journal.New(),
		events: telemetry.NewEvents(func(context.Context, *corev1.Event) error { return nil }, m),
	}
}

// everyLoop is all that Run runs, but for the feeds, which are watched over by what they hear, and for the provider's own.
func (p *parts) everyLoop() []func(context.Context) error {
	loops, times := p.loops()
	observer := observe.New(observe.Deps{
		Store: p.store, Metrics: p.metrics, Events: p.events, Times: times, Catalogs: p.catalogs, Leading: func() bool { return true },
		Missing: func() ([]string, time.Duration) { return nil, 0 },
	})
	return append(append(p.always(), loops...), observer.Run)
}

// withLoop runs one of all loops while the test looks at it.
func withLoop(t *testing.T, i int, p func(*testing.T) *parts, test func(*testing.T, *parts)) {
	synctest.Test(t, func(t *testing.T) {
		p := p(t)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- p.everyLoop()[i](ctx) }()
		test(t, p)
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// These are all loops of the program, but for the provider's. Whoever adds one adds it here, and learns what else is asked of it.
func TestAllLoopsAreKnown(t *testing.T) {
	t.Setenv("GOGC", "")
	var got []string
	for i := range len(someParts(t).everyLoop()) {
		withLoop(t, i, someParts, func(_ *testing.T, p *parts) {
			time.Sleep(time.Minute)
			got = append(got, p.metrics.Loops()...)
		})
	}
	slices.Sort(got)
	want := []string{
		"disruption", "disruption.queue", "events", "events.paced", "gated", "heap", "instance.garbagecollection", "journal", "node.health", "node.termination",
		"nodeclaim.disruption", "nodeclaim.garbagecollection", "nodeclaim.lifecycle", "nodepool.counter", "nodepool.readiness",
		"nodepool.registrationhealth", "observer", "pod.hint", "provisioner", "recording", "static",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("loops (-want +got):\n%s", diff)
	}
}

// refusing are parts to which API server and cloud refuse everything, with something to do for everybody.
func refusing(t *testing.T) *parts {
	p := someParts(t)
	no := errors.New("not now")
	p.cloud.Provider.(*fakecloud.Cloud).SetFault(func(fakecloud.Call) fakecloud.Fault { return fakecloud.Fault{Err: no} })
	c := interceptor.NewClient(p.clients.main, interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return no
		},
		List:   func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return no },
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return no },
		Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error { return no },
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			return no
		},
		Update: func(context.Context, client.WithWatch, client.Object, ...client.UpdateOption) error { return no },
		SubResourcePatch: func(context.Context, client.Client, string, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
			return no
		},
		SubResourceUpdate: func(context.Context, client.Client, string, client.Object, ...client.SubResourceUpdateOption) error {
			return no
		},
	})
	p.clients.main, p.clients.evictions, p.clients.hints = c, c, c
	kind := p.cloud.NodeClassKinds()[0]
	ref := &v1.NodeClassReference{Group: kind.Group, Kind: kind.Kind, Name: "default"}
	pool := &v1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "default", UID: "pool"}}
	pool.Spec.Template.Spec.NodeClassRef = ref
	claim := &v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "new", UID: "new", Labels: map[string]string{v1.NodePoolLabelKey: "default"}}}
	claim.Spec.NodeClassRef = ref
	going := claim.DeepCopy()
	going.Name, going.UID, going.Finalizers, going.DeletionTimestamp = "going", "going", []string{v1.TerminationFinalizer}, new(metav1.Now())
	going.Status.ProviderID, going.Status.NodeName = "fake:///going", "node"
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node", UID: "node", Labels: going.Labels, Finalizers: going.Finalizers, DeletionTimestamp: going.DeletionTimestamp}}
	node.Spec.ProviderID = going.Status.ProviderID
	p.store.Update(func(d *cluster.Draft) {
		cluster.Pools.Put(d, pool)
		d.PutClaim(claim)
		d.PutClaim(going)
		d.PutNode(node)
	})
	return p
}

// A loop all of whose turns fail lives: a restart would mend nothing, and the failures are counted and told.
func TestLoopsThatFailLive(t *testing.T) {
	t.Setenv("GOGC", "")
	failed := map[string]bool{}
	for i := range len(someParts(t).everyLoop()) {
		withLoop(t, i, refusing, func(t *testing.T, p *parts) {
			for minute := range 30 {
				time.Sleep(time.Minute)
				if silent := p.metrics.Silent(longestSilence); len(silent) > 0 {
					t.Fatalf("after %d minutes of failures %q seem to hang", minute+1, silent)
				}
			}
			for _, name := range p.metrics.Loops() {
				if testutil.ToFloat64(p.metrics.ReconcileErrors.WithLabelValues(name)) > 0 {
					failed[name] = true
				}
			}
		})
	}
	if got, want := slices.Sorted(maps.Keys(failed)), []string{
		"gated", "instance.garbagecollection", "node.termination", "nodeclaim.disruption", "nodeclaim.lifecycle", "nodepool.counter", "nodepool.readiness",
	}; !slices.Equal(got, want) {
		t.Errorf("turns of %q failed, want of %q", got, want)
	}
}

// Each loop is run alone: it must be watched over, and must show that it lives while there is nothing to do.
func TestEveryLoopIsWatchedOver(t *testing.T) {
	t.Setenv("GOGC", "") // whoever sets it needs no loop for the heap
	count := len(someParts(t).everyLoop())
	for i := range count {
		synctest.Test(t, func(t *testing.T) {
			p := someParts(t)
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- p.everyLoop()[i](ctx) }()
			for minute := range 30 {
				time.Sleep(time.Minute)
				synctest.Wait()
				if len(p.metrics.Loops()) == 0 {
					t.Fatalf("loop %d of %d is not watched over", i, count)
				}
				if silent := p.metrics.Silent(longestSilence); len(silent) > 0 {
					t.Fatalf("after %d minutes without work %q seem to hang", minute+1, silent)
				}
			}
			stop()
			if err := <-done; err != nil {
				t.Error(err)
			}
			if left := p.metrics.Loops(); len(left) > 0 {
				t.Errorf("%q are watched over although they ended", left)
			}
		})
	}
}
