package operator

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

func TestTogether(t *testing.T) {
	trouble := errors.New("trouble")
	block := func(ctx context.Context) error { <-ctx.Done(); return nil }
	for name, tc := range map[string]struct {
		last func(context.Context) error
		want string
	}{
		"a loop that fails stops the others":            {func(context.Context) error { return trouble }, "trouble"},
		"a loop that ends by itself stops them too":     {func(context.Context) error { return nil }, "a loop ended by itself"},
		"the end of the context is no error":            {block, ""},
		"nor is what loops say when the context ends":   {func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, ""},
		"trouble while the others stop is told as well": {func(ctx context.Context) error { <-ctx.Done(); return trouble }, "trouble"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithCancel(t.Context())
				defer time.AfterFunc(time.Minute, stop).Stop()
				defer stop()
				err := together(ctx, block, tc.last, block)
				if got := fmt.Sprint(err); tc.want == "" && err != nil || !strings.Contains(got, tc.want) {
					t.Errorf("error = %v, want %q", err, tc.want)
				}
			})
		})
	}
}

// quiet is a provider that does not tell what was bought.
type quiet struct{ cloud.Provider }

func (quiet) Name() string { return "quiet" }

func TestAnImportNeedsAProviderThatTells(t *testing.T) {
	if _, err := (&parts{}).importer(quiet{}); err == nil || !strings.Contains(err.Error(), "the provider quiet does not tell what was bought; leave it empty") {
		t.Errorf("error %v", err)
	}
}

func TestParsePath(t *testing.T) {
	for path, want := range map[string]apiPath{
		"/api/v1/pods":                                               {"", "v1", "pods", ""},
		"/api/v1/namespaces/default/pods/a":                          {"", "v1", "pods", ""},
		"/api/v1/namespaces/default/pods/a/eviction":                 {"", "v1", "pods", "eviction"},
		"/api/v1/namespaces/default":                                 {"", "v1", "namespaces", ""},
		"/api/v1/namespaces/default/status":                          {"", "v1", "namespaces", "status"},
		"/apis/karpenter.sh/v1/nodeclaims/c/status":                  {"karpenter.sh", "v1", "nodeclaims", "status"},
		"/apis/coordination.k8s.io/v1/namespaces/kube-system/leases": {"coordination.k8s.io", "v1", "leases", ""},
	} {
		if got, ok := parsePath(path); !ok || got != want {
			t.Errorf("parsePath(%s) = %+v, %v; want %+v", path, got, ok, want)
		}
	}
	for _, path := range []string{"/version", "/apis", "/healthz", "/api/v1"} {
		if got, ok := parsePath(path); ok {
			t.Errorf("parsePath(%s) = %+v, want nothing", path, got)
		}
	}
}

func TestAStandbyTellsNothingOfTheCloud(t *testing.T) {
	var leading atomic.Bool
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "anything"})
	for _, now := range []bool{false, true, false} {
		leading.Store(now)
		want := 0
		if now {
			want = 1
		}
		if got := testutil.CollectAndCount(whileLeading{g, &leading}); got != want {
			t.Errorf("%d series with leading = %v, want %d", got, now, want)
		}
	}
}

func TestThisProgramSaysItsVersion(t *testing.T) {
	m := newMetrics(prometheus.NewRegistry(), Options{Version: "1.2", Commit: "abc", NodeClasses: NodeClasses{Label: "karpenter.k8s.aws/ec2nodeclass"}})
	if got := testutil.ToFloat64(m.BuildInfo.WithLabelValues("1.2", runtime.Version(), runtime.GOARCH, "abc")); got != 1 {
		t.Errorf("karpenter_build_info = %v", got)
	}
}

func TestRequestsAreCounted(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	m := telemetry.NewMetrics(prometheus.NewRegistry(), telemetry.ConditionKinds())
	c := &http.Client{Transport: countRequests(m)(http.DefaultTransport)}
	for _, path := range []string{"/api/v1/pods", "/api/v1/pods?watch=true"} {
		resp, err := c.Get(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	if got := testutil.ToFloat64(m.ClientRequests.WithLabelValues("404", "GET")); got != 2 {
		t.Errorf("%v requests, want 2", got)
	}
	if got := testutil.CollectAndCount(m.ClientRequestDuration); got != 1 {
		t.Errorf("%d series of durations, want only that of the list", got)
	}
}

// failing is a provider whose calls fail.
type failing struct {
	cloud.Provider
	err error
}

func (failing) Name() string { return "aws" }

func (f failing) Launch(context.Context, *v1.NodeClaim) (cloud.Machine, error) {
	return cloud.Machine{}, fmt.Errorf("launch: %w", f.err)
}

func TestCloudErrorsAreNamed(t *testing.T) {
	for want, err := range map[string]error{
		"NodeClaimNotFoundError":    cloud.ErrNotFound,
		"InsufficientCapacityError": &cloud.NoCapacityError{Err: errors.New("dry")},
		"NodeClassNotReadyError":    &cloud.ClassNotReadyError{Err: errors.New("no")},
		"unknown":                   errors.New("other"),
	} {
		m := telemetry.NewMetrics(prometheus.NewRegistry(), telemetry.ConditionKinds())
		p := meter(failing{err: err}, m)
		ctx := telemetry.WithController(t.Context(), "nodeclaim.lifecycle")
		claim := &v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1.NodePoolLabelKey: "web"}}}
		if _, got := p.Launch(ctx, claim); !errors.Is(got, err) {
			t.Errorf("error = %v, want %v", got, err)
		}
		if got := testutil.ToFloat64(m.CloudErrors.WithLabelValues("nodeclaim.lifecycle", "Create", "aws", want, "web")); got != 1 {
			t.Errorf("error %v is not counted as %q", err, want)
		}
		if got := testutil.CollectAndCount(m.CloudCalls); got != 1 {
			t.Errorf("%d series of durations, want one", got)
		}
	}
}

func TestProbes(t *testing.T) {
	ready := errors.New("not synced: Pod")
	h := healthHandler(checks{alive(telemetry.NewMetrics(prometheus.NewRegistry(), telemetry.ConditionKinds())), func() error { return ready }})
	status := func(path string) int {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return w.Code
	}
	if got := status("/healthz"); got != http.StatusOK {
		t.Errorf("/healthz = %d", got)
	}
	if got := status("/readyz"); got != http.StatusServiceUnavailable {
		t.Errorf("/readyz before sync = %d", got)
	}
	ready = nil
	if got := status("/readyz"); got != http.StatusOK {
		t.Errorf("/readyz after sync = %d", got)
	}
}

func TestProfilesAreServedOnlyWhenAskedFor(t *testing.T) {
	for profiling, want := range map[bool]int{true: http.StatusOK, false: http.StatusNotFound} {
		w := httptest.NewRecorder()
		metricsHandler(prometheus.NewRegistry(), nobody{}, nil, nil, nil, profiling).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/debug/pprof/", nil))
		if w.Code != want {
			t.Errorf("profiling %v: status %d, want %d", profiling, w.Code, want)
		}
	}
}
