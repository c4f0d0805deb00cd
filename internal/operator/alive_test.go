package operator

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/control/catalog"
	"karpenter.sh/karpenter/internal/fakecloud"
	"karpenter.sh/karpenter/internal/journal"
	"karpenter.sh/karpenter/internal/memapi"
	"karpenter.sh/karpenter/internal/observe"
	"karpenter.sh/karpenter/internal/telemetry"
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
	settings.JournalDir = t.TempDir()
	return &parts{
		store: store, clients: &clients{main: unwatched{c}, evictions: c, hints: c, version: somewhere("v1.36.0")},
		cloud: machines, catalogs: catalog.New(machines), metrics: m, settings: settings, journal: journal.New(),
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
				if silent := p.metrics.Silent(silence); len(silent) > 0 {
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
