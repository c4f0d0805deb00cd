package conversion

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"karpenter.sh/karpenter/api/crds"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/kit/bug"
	"karpenter.sh/karpenter/internal/observe/telemetry"
	"karpenter.sh/karpenter/internal/testing/memapi"
)

// world is an API in memory with the definitions of an installation.
func world(t *testing.T, edit func(*apiextensionsv1.CustomResourceDefinition)) *memapi.Server {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), apiextensionsv1.AddToScheme(scheme), v1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	server := memapi.New(scheme)
	all, err := crds.Definitions()
	if err != nil {
		t.Fatal(err)
	}
	for _, crd := range all {
		crd.Status.StoredVersions = []string{crd.Spec.Versions[0].Name}
		if edit != nil {
			edit(crd)
		}
		server.Put(crd)
	}
	return server
}

func replica(t *testing.T, server *memapi.Server, name string, s Settings) *Service {
	t.Helper()
	s.Namespace, s.Service = "kube-system", "karpenter-conversion"
	out, err := New(server.Client(name), s, measured())
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// settle takes turns until nothing is written any more.
func settle(t *testing.T, replicas ...*Service) {
	t.Helper()
	for range 4 {
		for _, r := range replicas {
			if err := r.turn(t.Context(), time.Now()); err != nil {
				t.Log("tried again:", err)
			}
		}
	}
}

// spelled writes the versions of each definition: served, stored with a star.
func spelled(server *memapi.Server) string {
	var out []string
	for _, crd := range memapi.All[*apiextensionsv1.CustomResourceDefinition](server) {
		if older, err := crds.Older(crd.Name); err != nil || older == nil {
			continue // it never had another version
		}
		text := crd.Spec.Names.Kind
		for _, v := range crd.Spec.Versions {
			text += " " + v.Name
			if v.Storage {
				text += "*"
			}
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

func TestDefinitions(t *testing.T) {
	older := func(crd *apiextensionsv1.CustomResourceDefinition) {
		if v, err := crds.Older(crd.Name); err == nil && v != nil {
			v.Storage = true
			crd.Spec.Versions, crd.Status.StoredVersions = []apiextensionsv1.CustomResourceDefinitionVersion{*v}, []string{"v1beta1"}
		}
	}
	both := func(crd *apiextensionsv1.CustomResourceDefinition) {
		if v, err := crds.Older(crd.Name); err == nil && v != nil {
			crd.Spec.Versions = append(crd.Spec.Versions, *v)
		}
	}
	bothStale := func(crd *apiextensionsv1.CustomResourceDefinition) {
		both(crd)
		crd.Status.StoredVersions = []string{"v1beta1", "v1"}
	}
	const one, two = "EC2NodeClass v1*, NodeClaim v1*, NodePool v1*", "EC2NodeClass v1* v1beta1, NodeClaim v1* v1beta1, NodePool v1* v1beta1"
	for name, tc := range map[string]struct {
		edit    func(*apiextensionsv1.CustomResourceDefinition)
		leaving bool
		want    string
	}{
		"v1beta1 is added":                                    {nil, false, two},
		"v1 is added to an older installation":                {older, false, two},
		"what is there stays":                                 {both, false, two},
		"v1beta1 goes":                                        {both, true, one},
		"it does not while something may be stored in it":     {bothStale, true, two},
		"not even where nobody converts it":                   {older, true, two},
		"an installation that leaves and has none keeps none": {nil, true, one},
	} {
		t.Run(name, func(t *testing.T) {
			server := world(t, tc.edit)
			a, b := replica(t, server, "a", Settings{Leaving: tc.leaving}), replica(t, server, "b", Settings{Leaving: tc.leaving})
			settle(t, a, b)
			if got := spelled(server); got != tc.want {
				t.Errorf("definitions = %s, want %s", got, tc.want)
			}
			secret := memapi.All[*corev1.Secret](server)[0]
			for _, crd := range memapi.All[*apiextensionsv1.CustomResourceDefinition](server) {
				if has(crd, "v1beta1") && crd.Spec.Group != "autoscaling.x-k8s.io" && !trusts(crd, secret.Data[certKey]) {
					t.Errorf("%s does not trust the certificate", crd.Name)
				}
			}
			if x, y := a.webhook.certificate.Load(), b.webhook.certificate.Load(); !bytes.Equal(x.Certificate[0], y.Certificate[0]) {
				t.Error("the replicas serve with different certificates")
			}
			server.SetFault(func(r memapi.Request) error {
				if r.Verb != "get" {
					t.Errorf("a turn without need: %s %s", r.Verb, r.Name)
				}
				return nil
			})
			settle(t, a, b)
		})
	}
}

// The URL is used where no Service leads to the webhook.
func TestHowTheAPIServerCalls(t *testing.T) {
	server := world(t, nil)
	r := replica(t, server, "a", Settings{URL: "https://127.0.0.1:1234"})
	settle(t, r)
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := server.Client("t").Get(t.Context(), client.ObjectKey{Name: "nodepools.karpenter.sh"}, crd); err != nil {
		t.Fatal(err)
	}
	if at := crd.Spec.Conversion.Webhook.ClientConfig.URL; at == nil || *at != "https://127.0.0.1:1234/convert" {
		t.Errorf("the API server calls %v", at)
	}
	if err := r.webhook.certificate.Load().Leaf.VerifyHostname("127.0.0.1"); err != nil {
		t.Error(err)
	}
}

func TestMigration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := world(t, func(crd *apiextensionsv1.CustomResourceDefinition) {
			if crd.Spec.Names.Kind == "NodePool" {
				crd.Status.StoredVersions = []string{"v1beta1", "v1"}
			}
		})
		for i := range 3 {
			pool := &v1.NodePool{}
			pool.Name = fmt.Sprint("pool-", i)
			server.Put(pool)
		}
		wrote, fail := map[string]int{}, true
		server.SetFault(func(r memapi.Request) error {
			if r.Verb == "patch" && r.Kind == "NodePool" {
				if fail && r.Name.Name == "pool-1" {
					return errors.New("no")
				}
				wrote[r.Name.Name]++
			}
			return nil
		})
		ctx, stop := context.WithCancel(t.Context())
		m := replica(t, server, "a", Settings{}).Migration(asTrees{server.Client("m")})
		ended := make(chan error, 1)
		go func() { ended <- m.Run(ctx) }()
		time.Sleep(settled - time.Second)
		if len(wrote) > 0 {
			t.Error("objects are rewritten before every API server stores v1")
		}
		time.Sleep(10 * time.Second)
		if got := stored(t, server); got != "v1beta1,v1" {
			t.Errorf("stored versions = %s although an object was not rewritten", got)
		}
		fail = false
		time.Sleep(10 * time.Second)
		if got := stored(t, server); got != "v1" {
			t.Errorf("stored versions = %s, want v1", got)
		}
		if len(wrote) != 3 {
			t.Errorf("rewritten: %v, want all three", wrote)
		}
		clear(wrote)
		time.Sleep(time.Minute)
		if len(wrote) > 0 {
			t.Errorf("rewritten again: %v", wrote)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// asTrees lists and patches NodePools of an API in memory, which knows types only, as trees.
type asTrees struct{ client.Client }

func (c asTrees) List(ctx context.Context, list client.ObjectList, _ ...client.ListOption) error {
	var pools v1.NodePoolList
	if err := c.Client.List(ctx, &pools); err != nil {
		return err
	}
	out := list.(*unstructured.UnstructuredList)
	out.Items = nil
	for i := range pools.Items {
		tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&pools.Items[i])
		if err != nil {
			return err
		}
		out.Items = append(out.Items, unstructured.Unstructured{Object: tree})
	}
	return nil
}

func (c asTrees) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	pool := &v1.NodePool{}
	pool.Name = o.GetName()
	return c.Client.Patch(ctx, pool, p, opts...)
}

func stored(t *testing.T, server *memapi.Server) string {
	t.Helper()
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := server.Client("t").Get(t.Context(), client.ObjectKey{Name: "nodepools.karpenter.sh"}, crd); err != nil {
		t.Fatal(err)
	}
	return strings.Join(crd.Status.StoredVersions, ",")
}

// ask sends a review to a webhook.
func ask(t *testing.T, w *webhook, body string) (int, *apiextensionsv1.ConversionResponse) {
	t.Helper()
	out := httptest.NewRecorder()
	w.serve(out, httptest.NewRequestWithContext(t.Context(), "POST", path, strings.NewReader(body)))
	review := apiextensionsv1.ConversionReview{}
	if out.Code == 200 {
		if err := json.Unmarshal(out.Body.Bytes(), &review); err != nil {
			t.Fatal(err)
		}
	}
	return out.Code, review.Response
}

func TestWebhook(t *testing.T) {
	const head = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{"uid":"u","desiredAPIVersion":"karpenter.sh/v1","objects":[`
	const pool = `{"apiVersion":"karpenter.sh/v1beta1","kind":"NodePool","metadata":{"name":"a"},"spec":{"weight":1}}`
	for name, tc := range map[string]struct {
		body string
		code int
		want string
	}{
		"objects are converted in their order": {head + pool + "," + strings.Replace(pool, `"a"`, `"b"`, 1) + "]}}", 200, `Success a b`},
		"one that cannot be fails all":         {head + pool + `,{"kind":"Other","apiVersion":"x/v1","metadata":{"name":"o"}}]}}`, 200, `Failure o: x/v1, Kind=Other`},
		"a broken one is said to be":           {head + `{"apiVersion":"karpenter.sh/v1beta1","kind":"NodePool","metadata":7,"spec":[]}]}}`, 200, `Success `},
		"no review":                            {`{"kind":"ConversionReview"}`, 400, ""},
		"no JSON":                              {`hello`, 400, ""},
	} {
		t.Run(name, func(t *testing.T) {
			code, got := ask(t, &webhook{gate: newGate()}, tc.body)
			if code != tc.code {
				t.Fatalf("code %d, want %d", code, tc.code)
			}
			if code != 200 {
				return
			}
			said := got.Result.Status + " " + got.Result.Message
			for _, o := range got.ConvertedObjects {
				var m struct {
					APIVersion string `json:"apiVersion"`
					Metadata   any    `json:"metadata"`
				}
				if err := json.Unmarshal(o.Raw, &m); err != nil || m.APIVersion != "karpenter.sh/v1" {
					t.Errorf("converted to %s, %v", o.Raw, err)
				}
				if metadata, ok := m.Metadata.(map[string]any); ok {
					said = strings.TrimSpace(said) + " " + fmt.Sprint(metadata["name"])
				}
			}
			if !strings.HasPrefix(said, tc.want) || got.UID != "u" {
				t.Errorf("answer %q to %q, want %q", said, got.UID, tc.want)
			}
		})
	}
}

// A bug of ours costs one review, whose sender is told, and is counted.
func TestAPanicOfTheWebhookIsCounted(t *testing.T) {
	bug.Expect(t)
	w := &webhook{gate: newGate(), panics: measured().ConversionPanics} // and nobody to ask for pools
	const claim = `{"apiVersion":"karpenter.sh/v1beta1","kind":"NodeClaim","metadata":{"name":"a","labels":{"karpenter.sh/nodepool":"p"}},"spec":{}}`
	code, got := ask(t, w, `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{"uid":"u","desiredAPIVersion":"karpenter.sh/v1","objects":[`+claim+`]}}`)
	if code != 200 || got.Result.Status != metav1.StatusFailure || !strings.Contains(got.Result.Message, "panicked") {
		t.Errorf("code %d, %+v", code, got)
	}
	if n := testutil.ToFloat64(w.panics); n != 1 {
		t.Errorf("%v panics are counted, want 1", n)
	}
	if _, got := ask(t, w, `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{"uid":"u","desiredAPIVersion":"karpenter.sh/v1","objects":[7]}}`); got.Result.Status != metav1.StatusFailure || testutil.ToFloat64(w.panics) != 1 {
		t.Errorf("%+v, %v panics: what cannot be converted is none", got, testutil.ToFloat64(w.panics))
	}
}

// measured are metrics that nobody scrapes.
func measured() *telemetry.Metrics {
	return telemetry.NewMetrics(prometheus.NewRegistry(), telemetry.ConditionKinds())
}
