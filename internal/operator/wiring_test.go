package operator

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// leases is an API server that keeps one lease.
type leases struct {
	mu    sync.Mutex
	lease string // as it was last written
}

func (l *leases) held() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lease != ""
}

func (l *leases) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if r.Method != http.MethodGet {
		body, _ := io.ReadAll(r.Body)
		l.lease = string(body)
	}
	if l.lease == "" {
		w.WriteHeader(http.StatusNotFound)
		io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
		return
	}
	io.WriteString(w, l.lease)
}

func TestWhoActsHoldsTheLease(t *testing.T) {
	for name, disabled := range map[string]bool{"unless election is off": true, "when election is on": false} {
		t.Run(name, func(t *testing.T) {
			api := &leases{}
			server := httptest.NewServer(api)
			defer server.Close()
			p := &parts{settings: DefaultSettings(), metrics: telemetry.NewMetrics(prometheus.NewRegistry(), telemetry.ConditionKinds())}
			p.settings.LeaderElection.Namespace, p.settings.LeaderElection.Disabled = "kube-system", disabled
			base := &rest.Config{Host: server.URL}
			base.ContentType = "application/json"
			acted := false
			ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute)
			defer stop()
			err := p.elected(base, func(context.Context) error {
				acted = true
				if held := api.held(); held == disabled {
					t.Errorf("acting with the lease held = %v", held)
				}
				stop()
				return nil
			})(ctx)
			if err != nil || !acted {
				t.Errorf("acted = %v, error = %v", acted, err)
			}
		})
	}
}

func TestReady(t *testing.T) {
	all, some := meta.NewDefaultRESTMapper(nil), meta.NewDefaultRESTMapper(nil)
	all.Add(v1.GroupVersion.WithKind("NodePool"), meta.RESTScopeRoot)
	all.Add(v1.GroupVersion.WithKind("NodeClaim"), meta.RESTScopeRoot)
	some.Add(v1.GroupVersion.WithKind("NodePool"), meta.RESTScopeRoot)
	for name, tc := range map[string]struct {
		kinds         meta.RESTMapper
		missing       []string
		cold, leading bool
		want          string
	}{
		"when everything is read":                            {all, nil, false, false, ""},
		"not before the first lists":                         {all, []string{"Node", "Pod"}, false, false, "not synced: Node, Pod"},
		"nor when it leads":                                  {all, []string{"Pod"}, false, true, "not synced: Pod"},
		"a standby that does not watch has none to wait for": {all, []string{"Pod"}, true, false, ""},
		"until it leads":                                     {all, []string{"Pod"}, true, true, "not synced: Pod"},
		"not without our own kinds":                          {some, nil, false, false, "kind NodeClaim is unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			var leading atomic.Bool
			leading.Store(tc.leading)
			err := ready(tc.kinds, func() ([]string, time.Duration) { return tc.missing, 0 }, &leading, tc.cold)()
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("error = %v, want %q", err, tc.want)
			}
		})
	}
}
