package operator

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"path"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	"karpenter.sh/karpenter/api/crds"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// An apiServer is one, as the transport of clients, that does one thing after the other. It has claims, and a definition by which some of them may be
// stored as v1beta1.
type apiServer struct {
	service time.Duration // of each request
	idle    chan struct{}
	claims  []v1.NodeClaim

	mu         sync.Mutex
	definition *apiextensionsv1.CustomResourceDefinition
	rewritten  map[string]bool
}

func newAPIServer(t *testing.T, claims int, service time.Duration) *apiServer {
	t.Helper()
	s := &apiServer{service: service, idle: make(chan struct{}, 1), claims: make([]v1.NodeClaim, claims), rewritten: map[string]bool{}}
	s.idle <- struct{}{}
	for i := range s.claims {
		s.claims[i].SetGroupVersionKind(v1.GroupVersion.WithKind("NodeClaim"))
		s.claims[i].Name = "claim-" + strconv.Itoa(i)
	}
	all, err := crds.Definitions()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(all, func(crd *apiextensionsv1.CustomResourceDefinition) bool { return crd.Spec.Names.Kind == "NodeClaim" })
	s.definition = all[i]
	s.definition.Status.StoredVersions = []string{"v1beta1", "v1"}
	return s
}

func (s *apiServer) RoundTrip(r *http.Request) (*http.Response, error) {
	<-s.idle
	time.Sleep(s.service)
	code, body := s.answer(r)
	s.idle <- struct{}{}
	text, err := json.Marshal(body)
	return &http.Response{
		StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(text)), Request: r,
	}, err
}

func (s *apiServer) answer(r *http.Request) (int, any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	const ours, definitions = "/apis/karpenter.sh/v1", "/apis/apiextensions.k8s.io/v1"
	switch {
	case r.URL.Path == "/api":
		return http.StatusOK, metav1.APIVersions{}
	case r.URL.Path == "/apis":
		return http.StatusOK, metav1.APIGroupList{Groups: []metav1.APIGroup{group(v1.Group), group(apiextensionsv1.GroupName)}}
	case r.URL.Path == ours:
		return http.StatusOK, resources(v1.GroupVersion.String(), "nodeclaims", "NodeClaim")
	case r.URL.Path == definitions:
		return http.StatusOK, resources("apiextensions.k8s.io/v1", "customresourcedefinitions", "CustomResourceDefinition")
	case r.URL.Path == ours+"/nodeclaims" && r.Method == http.MethodGet:
		return http.StatusOK, s.page(r)
	case r.Method == http.MethodPatch:
		s.rewritten[path.Base(r.URL.Path)] = true
		return http.StatusOK, s.claims[0]
	case path.Dir(r.URL.Path) == ours+"/nodeclaims":
		return http.StatusOK, s.claims[0]
	case r.Method == http.MethodPut && r.URL.Path == definitions+"/customresourcedefinitions/"+s.definition.Name+"/status":
		s.definition.Status.StoredVersions = []string{"v1"}
		return http.StatusOK, s.definition
	case r.URL.Path == definitions+"/customresourcedefinitions/"+s.definition.Name:
		return http.StatusOK, s.definition
	}
	return http.StatusNotFound, metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound}
}

func group(name string) metav1.APIGroup {
	v := metav1.GroupVersionForDiscovery{GroupVersion: name + "/v1", Version: "v1"}
	return metav1.APIGroup{Name: name, Versions: []metav1.GroupVersionForDiscovery{v}, PreferredVersion: v}
}

func resources(version, plural, kind string) metav1.APIResourceList {
	return metav1.APIResourceList{GroupVersion: version, APIResources: []metav1.APIResource{{Name: plural, Kind: kind, Verbs: metav1.Verbs{"get", "list", "patch", "update"}}}}
}

func (s *apiServer) page(r *http.Request) v1.NodeClaimList {
	from, _ := strconv.Atoi(r.URL.Query().Get("continue")) // 0 for the first one
	limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
	to := min(from+limit, len(s.claims))
	out := v1.NodeClaimList{Items: s.claims[from:to]}
	out.SetGroupVersionKind(v1.GroupVersion.WithKind("NodeClaimList"))
	if to < len(s.claims) {
		out.Continue = strconv.Itoa(to)
	}
	return out
}

// done tells whether everything is stored as v1, and how much was rewritten.
func (s *apiServer) done() (bool, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.definition.Status.StoredVersions) == 1, len(s.rewritten)
}

func clientsOf(t *testing.T, server http.RoundTripper) *clients {
	t.Helper()
	config := &rest.Config{Host: "https://api.example", Transport: server}
	config.ContentType = "application/json"
	out, err := newClients(Options{REST: config, Settings: DefaultSettings(), NodeClasses: NodeClasses{AddToScheme: awsv1.AddToScheme}},
		telemetry.NewMetrics(prometheus.NewRegistry(), telemetry.ConditionKinds()))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// byName are all that send requests of one kind or another.
func (c *clients) byName() map[string]client.Client {
	return map[string]client.Client{"main": c.main, "evictions": c.evictions, "hints": c.hints, "events": c.events, "reviews": c.reviews, "rewrites": c.rewrites}
}

// asked is how long it takes to be told of a claim.
func asked(t *testing.T, c client.Client) time.Duration {
	t.Helper()
	began := time.Now()
	if err := c.Get(t.Context(), client.ObjectKey{Name: "claim-0"}, &v1.NodeClaim{}); err != nil {
		t.Error(err)
	}
	return time.Since(began)
}

// Whoever asks for much waits for its own rate, and nobody else does.
func TestAFloodOfOneKindOfRequestHoldsUpNoOther(t *testing.T) {
	for flooded := range new(clients).byName() {
		t.Run(flooded, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := clientsOf(t, newAPIServer(t, 1, 0)).byName()
				for _, c := range all {
					asked(t, c) // and learns what kinds there are
				}
				ctx, stop := context.WithCancel(t.Context())
				var flood sync.WaitGroup
				for range 1500 {
					flood.Go(func() { _ = all[flooded].Get(ctx, client.ObjectKey{Name: "claim-0"}, &v1.NodeClaim{}) }) // most wait until it ends
				}
				synctest.Wait()
				for name, c := range all {
					if name == flooded {
						continue
					}
					if took := asked(t, c); took > 0 {
						t.Errorf("%s waited %v", name, took)
					}
				}
				stop()
				flood.Wait()
			})
		})
	}
}

// While what was stored as v1beta1 is rewritten, what a loop asks the API server waits for the few requests that are under way, and for no rate: a turn
// takes no longer than by that.
func TestTurnsDoNotWaitForTheMigration(t *testing.T) {
	const claims, writers, calls, service = 3000, 8, 10, 5 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		server := newAPIServer(t, claims, service)
		p := &parts{clients: clientsOf(t, server), settings: DefaultSettings(), metrics: telemetry.NewMetrics(prometheus.NewRegistry(), telemetry.ConditionKinds())}
		asked(t, p.clients.main) // and learns what kinds there are
		p.settings.Older.V1Beta1, p.settings.Service, p.settings.LeaderElection.Namespace = olderDrop, "karpenter", "karpenter"
		older, err := p.older(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- together(ctx, older.leader...) }()
		for rewritten := 0; rewritten == 0; _, rewritten = server.done() { // once every API server has had the time to hear what is stored
			time.Sleep(time.Second)
		}
		turns, longest := 0, time.Duration(0)
		began := time.Now()
		for ; ; time.Sleep(time.Second) {
			done, rewritten := server.done()
			if done && rewritten < claims {
				t.Errorf("%d of %d claims were rewritten", rewritten, claims)
			}
			if done {
				break
			}
			took := time.Duration(0)
			for range calls {
				took += asked(t, p.clients.main)
			}
			turns, longest = turns+1, max(longest, took)
		}
		took := time.Since(began)
		t.Logf("%d claims took %v; the longest of %d turns %v", claims, took, turns, longest)
		if least := (claims - 2*rewriteBurst) / rewriteQPS * time.Second; took < least || took > 2*least {
			t.Errorf("rewriting took %v, want %v and not much more: it keeps to its own rate", took, least)
		}
		if most := calls * (writers + 1) * service; turns < 10 || longest > most {
			t.Errorf("%d turns took up to %v, want 10 or more of at most %v", turns, longest, most)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
