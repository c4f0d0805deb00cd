package rollout

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
	"karpenter.sh/karpenter/internal/core/rollout"
	"karpenter.sh/karpenter/internal/kit/parallel"
)

const (
	askInterval = 30 * time.Second
	askTimeout  = 5 * time.Second
	mostAnswer  = 64 << 10 // bytes of an answer that are read
	mostWords   = 256      // characters of a reason that are repeated
	inARow      = 2        // so many answers in a row must be false until a query trips
)

// An answer is the answer of a query or webhook.
type answer struct {
	gate string
	no   string // why the rollout may not go on, "" if it may
	once bool   // one such answer is enough
	err  error  // why there is no answer
}

// asked keeps the answers of a policy's queries and webhook when they were asked last.
type asked struct {
	at     time.Time
	noes   map[string]int // how often in a row a gate did not let the rollout go on
	trips  []trip
	silent []string
}

// answers asks the queries and the webhook of a policy, at most once in askInterval; in between it returns the last result. It returns the
// gates that trip, and texts about those that did not answer. A gate without answer neither trips nor resets its count.
func (l *Loop) answers(ctx context.Context, p *v1alpha1.RolloutPolicy, now time.Time) ([]trip, []string) {
	if len(p.Spec.Gates.PromQL) == 0 && p.Spec.Gates.Webhook == nil {
		return nil, nil
	}
	last := l.asked[p.UID]
	if last != nil && now.Sub(last.at) < askInterval {
		return last.trips, last.silent
	}
	next := &asked{at: now, noes: map[string]int{}}
	for _, a := range l.ask(ctx, p) {
		if last != nil {
			next.noes[a.gate] = last.noes[a.gate]
		}
		switch {
		case a.err != nil:
			next.silent = append(next.silent, fmt.Sprintf("%s: %v", a.gate, a.err))
			continue
		case a.no == "":
			next.noes[a.gate] = 0
			continue
		}
		if next.noes[a.gate]++; a.once || next.noes[a.gate] >= inARow {
			next.trips = append(next.trips, trip{a.gate, fmt.Sprintf("gate %s: %s", a.gate, a.no)})
		}
	}
	l.asked[p.UID] = next
	return next.trips, next.silent
}

// askAll asks the queries and the webhook of a policy at the same time, and returns one answer for each.
func askAll(ctx context.Context, p *v1alpha1.RolloutPolicy) []answer {
	asks := map[int]func(context.Context) answer{}
	for i := range p.Spec.Gates.PromQL {
		asks[i] = func(ctx context.Context) answer { return askQuery(ctx, &p.Spec.Gates.PromQL[i]) }
	}
	if hook := p.Spec.Gates.Webhook; hook != nil {
		asks[len(asks)] = func(ctx context.Context) answer { return askWebhook(ctx, hook, p) }
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	out := make([]answer, len(asks))
	at := slices.Collect(maps.Keys(asks))
	for i, err := range parallel.Of(at, len(at), func(int) string { return "asking a gate" },
		func(i int) error { out[i] = asks[i](ctx); return nil }) {
		if err != nil {
			out[at[i]].err = err
		}
	}
	return out
}

// askQuery sends a query to Prometheus and judges the values of the result. A query without result counts as no answer.
func askQuery(ctx context.Context, g *v1alpha1.PromQLGate) answer {
	a := answer{gate: "promQL/" + g.Name}
	target := strings.TrimSuffix(g.Address, "/") + "/api/v1/query?" + url.Values{"query": {g.Query}, "timeout": {"5s"}}.Encode()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		a.err = err
		return a
	}
	text, err := fetch(request, g.CABundle)
	if err != nil {
		a.err = err
		return a
	}
	values, err := samples(text)
	switch {
	case err != nil:
		a.err = err
	case len(values) == 0:
		a.err = errors.New("the query has no result")
	default:
		a.no, a.err = judgeValues(g, values)
	}
	return a
}

// judgeValues returns what is wrong with the first value of a query that breaks the gate's limits, "" if all are within them. Without
// limits a value must not be 0. A value that is not a number, or a limit that cannot be read, is an error.
func judgeValues(g *v1alpha1.PromQLGate, values []float64) (no string, err error) {
	for _, v := range values {
		switch {
		case g.AtMost == "" && g.AtLeast == "" && v == 0:
			return "the query is not true", nil
		case v != v:
			return "", errors.New("the query has no number for a result")
		}
		for _, limit := range []struct {
			text, words string
			broken      func(float64) bool
		}{
			{g.AtMost, "more", func(most float64) bool { return v > most }},
			{g.AtLeast, "less", func(least float64) bool { return v < least }},
		} {
			if limit.text == "" {
				continue
			}
			n, err := strconv.ParseFloat(limit.text, 64)
			if err != nil {
				return "", err
			}
			if limit.broken(n) {
				return fmt.Sprintf("the query is %g, %s than %s", v, limit.words, limit.text), nil
			}
		}
	}
	return "", nil
}

// samples reads the values of an answer of Prometheus: a scalar or a vector.
func samples(text []byte) ([]float64, error) {
	var got struct {
		Status, Error string
		Data          struct {
			ResultType string
			Result     json.RawMessage
		}
	}
	if err := json.Unmarshal(text, &got); err != nil {
		return nil, fmt.Errorf("the answer is not one of Prometheus: %w", err)
	}
	if got.Status != "success" {
		return nil, fmt.Errorf("the query failed: %.*s", mostWords, got.Error)
	}
	var points [][]any
	var err error
	switch got.Data.ResultType {
	case "scalar":
		points = make([][]any, 1)
		err = json.Unmarshal(got.Data.Result, &points[0])
	case "vector":
		var series []struct{ Value []any }
		err = json.Unmarshal(got.Data.Result, &series)
		for _, s := range series {
			points = append(points, s.Value)
		}
	default:
		err = fmt.Errorf("its result is a %.*s, and must be a scalar or an instant vector", mostWords, got.Data.ResultType)
	}
	if err != nil {
		return nil, err
	}
	var out []float64
	for _, p := range points {
		if len(p) != 2 {
			return nil, errors.New("a value of the answer is not a time and a number")
		}
		number, _ := p[1].(string)
		v, err := strconv.ParseFloat(number, 64)
		if err != nil {
			return nil, fmt.Errorf("a value of the answer is no number: %.*q", mostWords, number)
		}
		out = append(out, v)
	}
	return out, nil
}

// askWebhook posts the policy's name and its pools with a rollout to the webhook. The answer is {"allow": bool, "reason": string}. A single
// answer with allow false trips the gate.
func askWebhook(ctx context.Context, g *v1alpha1.WebhookGate, p *v1alpha1.RolloutPolicy) answer {
	a := answer{gate: string(rollout.Webhook), once: true}
	type pool struct {
		Name string `json:"name"`
		Step int32  `json:"step"`
	}
	question := struct {
		Policy string `json:"policy"`
		Pools  []pool `json:"pools"`
	}{Policy: p.Name, Pools: []pool{}}
	for i := range p.Status.Pools {
		if e := &p.Status.Pools[i]; e.Since != nil {
			question.Pools = append(question.Pools, pool{e.Name, e.Step})
		}
	}
	body, err := json.Marshal(question)
	if err != nil {
		a.err = err
		return a
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, g.URL, bytes.NewReader(body))
	if err != nil {
		a.err = err
		return a
	}
	request.Header.Set("Content-Type", "application/json")
	text, err := fetch(request, g.CABundle)
	if err != nil {
		a.err = err
		return a
	}
	var got struct {
		Allow  *bool  `json:"allow"`
		Reason string `json:"reason"`
	}
	switch err := json.Unmarshal(text, &got); {
	case err != nil:
		a.err = fmt.Errorf("the answer is not JSON: %w", err)
	case got.Allow == nil:
		a.err = errors.New(`the answer has no "allow"`)
	case !*got.Allow:
		a.no = "it does not allow the rollout"
		if got.Reason != "" {
			a.no += fmt.Sprintf(": %.*s", mostWords, got.Reason)
		}
	}
	return a
}

// fetch sends a request and returns the body of the answer, if that has status 200 and at most mostAnswer bytes. It trusts the certificates
// of ca besides those of the system. It follows no redirect, because only the address in the policy may be asked. Errors do not show the
// query.
func fetch(request *http.Request, ca []byte) ([]byte, error) {
	transport := &http.Transport{DisableKeepAlives: true, Proxy: http.ProxyFromEnvironment}
	if len(ca) > 0 {
		roots, err := x509.SystemCertPool()
		if err != nil {
			roots = x509.NewCertPool()
		}
		if !roots.AppendCertsFromPEM(ca) {
			return nil, errors.New("caBundle has no certificate")
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	}
	sender := &http.Client{Transport: transport, Timeout: askTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	answer, err := sender.Do(request)
	if err != nil {
		return nil, errors.New(strings.ReplaceAll(err.Error(), request.URL.RawQuery, "…"))
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(answer.Body, mostAnswer+1))
	switch {
	case err != nil:
		return nil, err
	case answer.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("the answer is %s", answer.Status)
	case len(text) > mostAnswer:
		return nil, fmt.Errorf("the answer is longer than %d bytes", mostAnswer)
	}
	return text, nil
}
