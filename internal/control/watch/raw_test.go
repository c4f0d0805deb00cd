package watch

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
)

// serve is an API server that knows NodeClaims. It notes the requests.
func serve(t *testing.T, answer func(w http.ResponseWriter, r *http.Request)) rawServer {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(answer))
	t.Cleanup(server.Close)
	c, err := rest.UnversionedRESTClientFor(&rest.Config{
		Host: server.URL, ContentConfig: rest.ContentConfig{NegotiatedSerializer: scheme.Codecs.WithoutConversion()},
	})
	if err != nil {
		t.Fatal(err)
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	gvk := v1.GroupVersion.WithKind("NodeClaim")
	mapper.Add(gvk, meta.RESTScopeRoot)
	return rawServer{c, mapper, gvk}
}

func claimJSON(name, version, provider string) string {
	return fmt.Sprintf(`{"apiVersion":"karpenter.sh/v1","kind":"NodeClaim","metadata":{"name":%q,"uid":"uid-%s","resourceVersion":%q,"managedFields":[{"manager":"x"}]},"spec":{"nodeClassRef":{"group":"g","kind":"k","name":"c"},"requirements":[{"key":"a","operator":"In","values":["b"]}],"expireAfter":"720h"},"status":{"providerID":%q}}`,
		name, name, version, provider)
}

// A feed reads pages, follows the watch, names what it cannot read and takes a watch up again where a bookmark said.
func TestRawServer(t *testing.T) {
	var mu sync.Mutex
	var asked []string
	note := func(text string) {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, text)
	}
	lines := make(chan string, 10)
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		switch {
		case r.URL.Path != "/apis/karpenter.sh/v1/nodeclaims" || !strings.Contains(r.Header.Get("Accept"), "json"):
			http.NotFound(w, r)
		case q.Get("watch") == "true":
			note("watch from " + q.Get("resourceVersion") + " bookmarks " + q.Get("allowWatchBookmarks"))
			for line := range lines {
				if line == "end" {
					return
				}
				io.WriteString(w, line+"\n")
				w.(http.Flusher).Flush()
			}
		case q.Get("continue") == "":
			note("list of " + q.Get("limit"))
			fmt.Fprintf(w, `{"metadata":{"resourceVersion":"7","continue":"more"},"items":[%s,{"metadata":{"name":"bad"},"spec":{"requirements":"none"}}]}`, claimJSON("a", "1", "id-a"))
		default:
			note("continue " + q.Get("continue"))
			fmt.Fprintf(w, `{"metadata":{"resourceVersion":"7"},"items":[%s]}`, claimJSON("b", "2", "id-b"))
		}
	})
	store := cluster.NewStore()
	f := &feed{kind: own()[1].kind, source: s, store: store, listed: func() {}}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); f.run(ctx) }()
	t.Cleanup(func() { stop(); close(lines); <-done })

	want := func(claims ...string) {
		t.Helper()
		var got []string
		for end := time.Now().Add(5 * time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
			got = nil
			snap := store.Snapshot()
			for n := range snap.Nodes() {
				c := n.Claim
				got = append(got, fmt.Sprintf("%s@%s %s %s %d", c.Name, c.ResourceVersion, c.Status.ProviderID, c.Spec.Requirements[0].Values, len(c.ManagedFields)))
			}
			for b := range snap.Broken() {
				got = append(got, "broken "+b.Name)
			}
			slices.Sort(got)
			if slices.Equal(got, claims) {
				return
			}
		}
		t.Fatalf("claims = %q, want %q", got, claims)
	}
	want("a@1 id-a [b] 0", "b@2 id-b [b] 0", "broken bad")
	lines <- `{"type":"MODIFIED","object":` + claimJSON("a", "8", "id-a2") + `}`
	lines <- `{"type":"DELETED","object":` + claimJSON("b", "9", "id-b") + `}`
	want("a@8 id-a2 [b] 0", "broken bad")
	lines <- `{"type":"BOOKMARK","object":{"kind":"NodeClaim","metadata":{"resourceVersion":"20"}}}`
	lines <- `{"type":"ADDED","object":` + claimJSON("bad", "21", "id") + `}`
	want("a@8 id-a2 [b] 0", "bad@21 id [b] 0")
	lines <- "end"
	lines <- `{"type":"ERROR","object":{"kind":"Status","status":"Failure","reason":"Expired","code":410}}`
	lines <- "end"
	want("a@8 id-a2 [b] 0", "bad@21 id [b] 0", "broken bad") // all is listed again; what is older than what is known changes nothing
	mu.Lock()
	defer mu.Unlock()
	if first := []string{"list of 500", "continue more", "watch from 7 bookmarks true", "watch from 21 bookmarks true", "list of 500"}; !slices.Equal(asked[:5], first) {
		t.Errorf("asked %q, want %q first", asked, first)
	}
}

func TestRawServerErrors(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusGone)
		io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410,"message":"too old"}`)
	})
	if _, err := s.Watch(t.Context(), metav1.ListOptions{ResourceVersion: "1"}); !apierrors.IsResourceExpired(err) {
		t.Errorf("watch: %v, want that the version is too old", err)
	}
	if _, err := s.List(t.Context(), metav1.ListOptions{Continue: "x"}); !apierrors.IsResourceExpired(err) {
		t.Errorf("list: %v, want that the version is too old", err)
	}
	s.mapper = meta.NewDefaultRESTMapper(nil)
	if _, err := s.List(t.Context(), metav1.ListOptions{}); !(&feed{}).absent(err) {
		t.Errorf("list of an unknown kind: %v, want that it is absent", err)
	}
}

// Whatever the server sends, the watch ends or goes on; it never panics, and an object that cannot be decoded says so.
func FuzzEvents(f *testing.F) {
	f.Add(`{"type":"ADDED","object":` + claimJSON("a", "1", "id") + "}\n")
	f.Add(`{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"20"}}}` + "\n" + `{"type":"ERROR","object":{"code":410}}` + "\n")
	f.Add(`{"type":"MODIFIED","object":{"metadata":{"name":7},"spec":[]}}` + "\n")
	f.Add("{\n")
	f.Fuzz(func(t *testing.T, text string) {
		body := io.NopCloser(strings.NewReader(text))
		d := &eventDecoder{body: body, lines: bufio.NewReader(body)}
		for range strings.Count(text, "\n") + 1 {
			_, o, err := d.Decode()
			if err != nil {
				return
			}
			if raw, ok := o.(*rawObject); ok {
				claim := &v1.NodeClaim{}
				if err := raw.decode(claim); err == nil && raw.Name != "" && claim.Name != raw.Name {
					t.Errorf("the head says %q, the object %q", raw.Name, claim.Name)
				}
			}
		}
		if _, _, err := d.Decode(); err == nil {
			t.Error("there are more events than lines")
		}
	})
}

// TestANumberThatTakesLongToParseIsNamed: API servers check limits of pools by a pattern, which lets such numbers through.
func TestANumberThatTakesLongToParseIsNamed(t *testing.T) {
	const pool = `{"apiVersion":"karpenter.sh/v1","kind":"NodePool","metadata":{"name":"odd"},"spec":{"limits":{"cpu":"1e-40000000"}}}`
	begin := time.Now()
	list := &rawList{}
	if err := json.Unmarshal([]byte(`{"items":[`+pool+`]}`), list); err != nil {
		t.Fatal(err)
	}
	_, event, err := (&eventDecoder{lines: bufio.NewReader(strings.NewReader(`{"type":"ADDED","object":` + pool + "}\n"))}).Decode()
	if err != nil {
		t.Fatal(err)
	}
	for from, o := range map[string]*rawObject{"a list": &list.Items[0], "a watch": event.(*rawObject)} {
		if err := decode(o, &v1.NodePool{}); err == nil || !strings.Contains(err.Error(), "1e-40000000") || o.Name != "odd" {
			t.Errorf("from %s: %v of %q", from, err, o.Name)
		}
	}
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
}
