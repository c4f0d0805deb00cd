package operator

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"karpenter.sh/karpenter/internal/kit/loopback"
	"karpenter.sh/karpenter/internal/ui/page"
)

// reviewer is an API server that knows three people by their tokens, of whom one may read /metrics and one see the page.
type reviewer struct {
	client.Client
	asked int
	down  bool
}

func (r *reviewer) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	if r.asked++; r.down {
		return errors.New("down")
	}
	switch o := o.(type) {
	case *authenticationv1.TokenReview:
		o.Status.Authenticated = slices.Contains([]string{"scraper", "viewer", "stranger"}, o.Spec.Token)
		o.Status.User = authenticationv1.UserInfo{Username: o.Spec.Token, Groups: []string{"people"}, Extra: map[string]authenticationv1.ExtraValue{"x": {"y"}}}
	case *authorizationv1.SubjectAccessReview:
		a := o.Spec.NonResourceAttributes
		o.Status.Allowed = o.Spec.User == "scraper" && o.Spec.Groups[0] == "people" && o.Spec.Extra["x"][0] == "y" && a.Path == "/metrics" && a.Verb == "get" ||
			o.Spec.User == "viewer" && a.Path == page.Path && (a.Verb == "get" || a.Verb == "head")
		o.Status.Denied = false
	}
	return nil
}

func TestWhoMayReadMetrics(t *testing.T) {
	for name, tc := range map[string]struct {
		method, path, header string
		want                 int
		asked                int // of the API server, by two requests
	}{
		"who is allowed":                  {"GET", "/metrics", "Bearer scraper", http.StatusOK, 2},
		"who is not":                      {"GET", "/metrics", "Bearer stranger", http.StatusForbidden, 2},
		"whom nobody knows":               {"GET", "/metrics", "Bearer nonsense", http.StatusUnauthorized, 1},
		"another path":                    {"GET", "/debug/pprof/heap", "Bearer scraper", http.StatusForbidden, 2},
		"another method":                  {"POST", "/metrics", "Bearer scraper", http.StatusForbidden, 2},
		"without a token":                 {"GET", "/metrics", "", http.StatusUnauthorized, 0},
		"an empty token":                  {"GET", "/metrics", "Bearer ", http.StatusUnauthorized, 0},
		"another kind of authentication":  {"GET", "/metrics", "Basic scraper", http.StatusUnauthorized, 0},
		"a token that is no token's size": {"GET", "/metrics", "Bearer " + strings.Repeat("x", longestToken+1), http.StatusUnauthorized, 0},
	} {
		t.Run(name, func(t *testing.T) {
			api := &reviewer{}
			g := newGuard(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "secrets") }), api)
			for range 2 {
				w := ask(g, tc.method, tc.path, tc.header)
				if w.Code != tc.want || strings.Contains(w.Body.String(), "secrets") != (tc.want == http.StatusOK) {
					t.Errorf("status %d %q, want %d", w.Code, w.Body, tc.want)
				}
			}
			if api.asked != tc.asked {
				t.Errorf("the API server was asked %d times, want %d", api.asked, tc.asked)
			}
		})
	}
}

func ask(h http.Handler, method, path, header string) *httptest.ResponseRecorder {
	q := httptest.NewRequest(method, path, nil)
	if header != "" {
		q.Header.Set("Authorization", header)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, q)
	return w
}

func TestVerdictsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &reviewer{}
		g := newGuard(http.NotFoundHandler(), api)
		for _, step := range []struct {
			sleep time.Duration
			token string
			want  int // questions so far
		}{
			{0, "scraper", 2}, {allowedFor - time.Second, "scraper", 2}, {time.Second, "scraper", 4},
			{0, "stranger", 6}, {refusedFor - time.Second, "stranger", 6}, {time.Second, "stranger", 8},
		} {
			time.Sleep(step.sleep)
			if ask(g, "GET", "/metrics", "Bearer "+step.token); api.asked != step.want {
				t.Errorf("asked %d times for %s, want %d", api.asked, step.token, step.want)
			}
		}
		api.down = true
		time.Sleep(allowedFor)
		if w := ask(g, "GET", "/metrics", "Bearer scraper"); w.Code != http.StatusServiceUnavailable {
			t.Errorf("status %d while the API server is down, want %d", w.Code, http.StatusServiceUnavailable)
		}
		api.down = false
		if w := ask(g, "GET", "/metrics", "Bearer scraper"); w.Code != http.StatusNotFound {
			t.Errorf("status %d once it is back, want what is behind the guard", w.Code)
		}
		for i := range 10 * mostVerdicts {
			ask(g, "GET", "/metrics", fmt.Sprint("Bearer bad", i))
		}
		if n := len(g.verdicts); n > mostVerdicts {
			t.Errorf("%d verdicts are remembered, want at most %d", n, mostVerdicts)
		}
	})
}

// TestTheMetricsPortIsGuardedIfItIsToBe serves for real, and asks as Prometheus does.
func TestTheMetricsPortIsGuardedIfItIsToBe(t *testing.T) {
	for name, guard := range map[string]bool{"guarded": true, "open": false} {
		t.Run(name, func(t *testing.T) {
			s := Settings{Serve: ServeSettings{MetricsAuthentication: guard, MetricsPort: freePort(t)}}
			handler := guarded(s, &clients{reviews: &reviewer{}}, metricsHandler(prometheus.NewRegistry(), scraped{}, nil, nil, nil, false))
			stop, err := serve(t.Context(), s, handler, nil, checks{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer stop()
			scheme := "http"
			if guard {
				scheme = "https"
			}
			c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
			for token, want := range map[string]int{"scraper": http.StatusOK, "stranger": http.StatusForbidden, "": http.StatusUnauthorized} {
				q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("%s://localhost:%d/metrics", scheme, s.Serve.MetricsPort), nil)
				if err != nil {
					t.Fatal(err)
				}
				if q.Header.Set("Authorization", "Bearer "+token); token == "" {
					q.Header.Del("Authorization")
				}
				r, err := c.Do(q)
				if err != nil {
					t.Fatal(err)
				}
				r.Body.Close()
				if !guard {
					want = http.StatusOK
				}
				if r.StatusCode != want {
					t.Errorf("%q gets status %d, want %d", token, r.StatusCode, want)
				}
			}
		})
	}
}

func TestListenersListenWhereTheyAreTold(t *testing.T) {
	for host, loopback := range map[string]bool{"127.0.0.1": true, "": false} {
		s := Settings{Serve: ServeSettings{Host: host, HealthProbePort: freePort(t)}}
		var at Addresses
		stop, err := serve(t.Context(), s, http.NotFoundHandler(), nil, checks{}, func(a Addresses) { at = a })
		if err != nil {
			t.Fatal(err)
		}
		stop()
		if got, _, err := net.SplitHostPort(at.Health); err != nil || net.ParseIP(got).IsLoopback() != loopback {
			t.Errorf("host %q: it listens at %s, on the loopback address: want %t", host, at.Health, loopback)
		}
	}
}

// TestThePageIsGuardedUnlessOnlyThisMachineReachesIt serves for real.
func TestThePageIsGuardedUnlessOnlyThisMachineReachesIt(t *testing.T) {
	for host, want := range map[string]map[string]int{
		"127.0.0.1": {"": http.StatusOK, "stranger": http.StatusOK, "viewer": http.StatusOK},
		"0.0.0.0":   {"": http.StatusUnauthorized, "stranger": http.StatusForbidden, "viewer": http.StatusOK},
		"":          {"": http.StatusUnauthorized, "stranger": http.StatusForbidden, "viewer": http.StatusOK},
	} {
		t.Run("at "+host, func(t *testing.T) {
			s := Settings{Serve: ServeSettings{UIHost: host, UIPort: freePort(t)}}
			shown := page.New(page.Deps{})
			stop, err := serve(t.Context(), s, nil, pageHandler(s, &clients{reviews: &reviewer{}}, shown), checks{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer stop()
			scheme := "https"
			if host == "127.0.0.1" {
				scheme = "http"
			}
			c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
			for token, status := range want {
				for path, status := range map[string]int{"/": http.StatusOK, page.Path: status} {
					q, err := http.NewRequestWithContext(t.Context(), http.MethodHead, fmt.Sprintf("%s://localhost:%d%s", scheme, s.Serve.UIPort, path), nil)
					if err != nil {
						t.Fatal(err)
					}
					if token != "" {
						q.Header.Set("Authorization", "Bearer "+token)
					}
					r, err := c.Do(q)
					if err != nil {
						t.Fatal(err)
					}
					r.Body.Close()
					if r.StatusCode != status {
						t.Errorf("%q gets status %d for %s, want %d", token, r.StatusCode, path, status)
					}
				}
			}
		})
	}
}

func freePort(t *testing.T) int {
	t.Helper()
	p, err := loopback.Take()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Release)
	return p.Number
}
