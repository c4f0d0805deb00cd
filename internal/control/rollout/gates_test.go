package rollout

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
)

// served starts a server with TLS that gives one answer, and returns its address and certificate.
func served(t *testing.T, answer http.HandlerFunc) (string, []byte) {
	t.Helper()
	s := httptest.NewTLSServer(answer)
	t.Cleanup(s.Close)
	return s.URL, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
}

func says(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(text)) }
}

func vector(values ...string) string {
	var series []string
	for _, v := range values {
		series = append(series, `{"metric":{},"value":[1,"`+v+`"]}`)
	}
	return `{"status":"success","data":{"resultType":"vector","result":[` + strings.Join(series, ",") + `]}}`
}

func TestQueries(t *testing.T) {
	for name, tc := range map[string]struct {
		answer         http.HandlerFunc
		most, least    string
		no, unanswered string
	}{
		"true":                  {answer: says(vector("1", "2"))},
		"a scalar":              {answer: says(`{"status":"success","data":{"resultType":"scalar","result":[1,"1"]}}`)},
		"not true":              {answer: says(vector("1", "0")), no: "the query is not true"},
		"at its most":           {answer: says(vector("0.01")), most: "0.01"},
		"above":                 {answer: says(vector("0", "0.02")), most: "0.01", no: "the query is 0.02, more than 0.01"},
		"below":                 {answer: says(vector("0.98")), least: "0.99", no: "the query is 0.98, less than 0.99"},
		"zero is within limits": {answer: says(vector("0")), most: "1", least: "0"},
		"no result":             {answer: says(vector()), unanswered: "no result"},
		"not a number":          {answer: says(vector("NaN")), most: "1", unanswered: "no number"},
		"a matrix":              {answer: says(`{"status":"success","data":{"resultType":"matrix","result":[]}}`), unanswered: "must be a scalar"},
		"an error":              {answer: says(`{"status":"error","error":"parse error"}`), unanswered: "parse error"},
		"something else":        {answer: says("<html>"), unanswered: "not one of Prometheus"},
		"a value without time":  {answer: says(`{"status":"success","data":{"resultType":"vector","result":[{"value":[1]}]}}`), unanswered: "not a time and a number"},
		"another status":        {answer: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }, unanswered: "502"},
		"a redirect": {answer: func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://other.example", http.StatusFound)
		}, unanswered: "302"},
		"an answer without end":   {answer: says(strings.Repeat("x", mostAnswer+1)), unanswered: "longer than"},
		"an answer at the length": {answer: says(vector("1") + strings.Repeat(" ", mostAnswer-len(vector("1"))))},
	} {
		t.Run(name, func(t *testing.T) {
			address, ca := served(t, tc.answer)
			a := askQuery(t.Context(), &v1alpha1.PromQLGate{Name: "q", Address: address + "/prom/", Query: "up > bool 1", AtMost: tc.most, AtLeast: tc.least, CABundle: ca})
			if a.no != tc.no || (a.err == nil) != (tc.unanswered == "") || a.err != nil && !strings.Contains(a.err.Error(), tc.unanswered) {
				t.Errorf("no %q, error %v", a.no, a.err)
			}
		})
	}
}

func TestWhatIsAsked(t *testing.T) {
	var path, query string
	address, ca := served(t, func(w http.ResponseWriter, r *http.Request) {
		path, query = r.URL.Path, r.URL.Query().Get("query")
		says(vector("1"))(w, r)
	})
	if a := askQuery(t.Context(), &v1alpha1.PromQLGate{Address: address + "/prom", Query: "up > bool 1", CABundle: ca}); a.err != nil ||
		path != "/prom/api/v1/query" || query != "up > bool 1" {
		t.Errorf("%v, %q, %q", a.err, path, query)
	}
	if a := askQuery(t.Context(), &v1alpha1.PromQLGate{Address: address, Query: "up"}); a.err == nil {
		t.Error("a server of which the certificate is not known is believed")
	}
	if a := askQuery(t.Context(), &v1alpha1.PromQLGate{Address: address, Query: "up", CABundle: []byte("x")}); a.err == nil ||
		a.err.Error() != "caBundle has no certificate" {
		t.Error(a.err)
	}
}

func TestWebhooks(t *testing.T) {
	policy := &v1alpha1.RolloutPolicy{}
	policy.Name = "careful"
	policy.Status.Pools = []v1alpha1.RolloutPool{{Name: "idle"}, {Name: "default", Step: 1, Since: &metav1.Time{Time: time.Unix(1, 0)}}}
	for name, tc := range map[string]struct{ text, no, unanswered string }{
		"yes":            {text: `{"allow": true}`},
		"no":             {text: `{"allow": false}`, no: "it does not allow the rollout"},
		"no, with words": {text: `{"allow": false, "reason": "a freeze"}`, no: "it does not allow the rollout: a freeze"},
		"neither":        {text: `{}`, unanswered: `no "allow"`},
		"something else": {text: `yes`, unanswered: "not JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			var got struct {
				Policy string
				Pools  []struct {
					Name string
					Step int
				}
			}
			address, ca := served(t, func(w http.ResponseWriter, r *http.Request) {
				_ = json.NewDecoder(r.Body).Decode(&got)
				says(tc.text)(w, r)
			})
			a := askWebhook(t.Context(), &v1alpha1.WebhookGate{URL: address, CABundle: ca}, policy)
			if a.no != tc.no || !a.once || (a.err == nil) != (tc.unanswered == "") || a.err != nil && !strings.Contains(a.err.Error(), tc.unanswered) {
				t.Errorf("no %q, error %v", a.no, a.err)
			}
			if got.Policy != "careful" || len(got.Pools) != 1 || got.Pools[0].Name != "default" || got.Pools[0].Step != 1 {
				t.Errorf("it was asked about %+v", got)
			}
		})
	}
}

// Queries trip when they are not true twice, webhooks at once, and what does not answer trips nothing and forgets nothing.
func TestAnswers(t *testing.T) {
	query := func(no string, err error) []answer { return []answer{{gate: "promQL/q", no: no, err: err}} }
	failed := errors.New("refused")
	for name, tc := range map[string]struct {
		says          [][]answer
		trips, silent int // after the last
	}{
		"once":                     {[][]answer{query("no", nil)}, 0, 0},
		"twice":                    {[][]answer{query("no", nil), query("no", nil)}, 1, 0},
		"twice, but not in a row":  {[][]answer{query("no", nil), query("", nil), query("no", nil)}, 0, 0},
		"no answer":                {[][]answer{query("", failed), query("", failed)}, 0, 1},
		"no answer in between":     {[][]answer{query("no", nil), query("", failed), query("no", nil)}, 1, 0},
		"a webhook":                {[][]answer{{{gate: "webhook", no: "no", once: true}}}, 1, 0},
		"a webhook that is silent": {[][]answer{{{gate: "webhook", once: true, err: failed}}}, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			l := New(Deps{})
			turn := 0
			l.ask = func(context.Context, *v1alpha1.RolloutPolicy) []answer { turn++; return tc.says[turn-1] }
			policy := &v1alpha1.RolloutPolicy{}
			policy.Spec.Gates.Webhook = &v1alpha1.WebhookGate{}
			var trips []trip
			var silent []string
			for i := range tc.says {
				trips, silent = l.answers(t.Context(), policy, time.Unix(int64(i)*30, 0))
				again, _ := l.answers(t.Context(), policy, time.Unix(int64(i)*30+29, 0))
				if len(again) != len(trips) {
					t.Error("between two questions the answer is another one")
				}
			}
			if len(trips) != tc.trips || len(silent) != tc.silent || turn != len(tc.says) {
				t.Errorf("%d trips, %d silent, %d questions", len(trips), len(silent), turn)
			}
		})
	}
}

func TestASourceThatHangsIsGivenUp(t *testing.T) {
	hang := make(chan struct{})
	address, ca := served(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-hang:
		case <-r.Context().Done():
		}
	})
	defer close(hang)
	policy := &v1alpha1.RolloutPolicy{}
	for range 8 {
		policy.Spec.Gates.PromQL = append(policy.Spec.Gates.PromQL, v1alpha1.PromQLGate{Name: "q", Address: address, Query: "up", CABundle: ca})
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	for _, a := range askAll(ctx, policy) {
		if a.err == nil || strings.Contains(a.err.Error(), "up") && strings.Contains(a.err.Error(), "query=up") {
			t.Errorf("it answers %v", a.err)
		}
	}
}
