package operator

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// countRequests returns a wrapper of a transport that counts requests to the API server, and times those that are no watches.
func countRequests(m *telemetry.Metrics) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper { return &counter{next, m} }
}

// A counter is the transport that countRequests returns.
type counter struct {
	next    http.RoundTripper
	metrics *telemetry.Metrics
}

func (c *counter) RoundTrip(r *http.Request) (*http.Response, error) {
	began := time.Now()
	resp, err := c.next.RoundTrip(r)
	code := "<error>"
	if err == nil {
		code = strconv.Itoa(resp.StatusCode)
	}
	c.metrics.ClientRequests.WithLabelValues(code, r.Method).Inc()
	if p, ok := parsePath(r.URL.Path); ok && r.URL.Query().Get("watch") == "" {
		c.metrics.ClientRequestDuration.WithLabelValues(r.Method, p.group, p.version, p.kind,
			p.subresource).Observe(time.Since(began).Seconds())
	}
	return resp, err
}

// apiPath says which kind a request is for.
type apiPath struct{ group, version, kind, subresource string }

// parsePath reads the path of a request for objects: /api/v1/… or /apis/<group>/<version>/…, with or without namespace.
func parsePath(path string) (apiPath, bool) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	var p apiPath
	switch {
	case len(parts) > 2 && parts[0] == "api":
		p.version, parts = parts[1], parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		p.group, p.version, parts = parts[1], parts[2], parts[3:]
	default:
		return p, false
	}
	if parts[0] == "namespaces" && len(parts) > 2 && parts[2] != "status" && parts[2] != "finalize" {
		parts = parts[2:]
	}
	p.kind = parts[0]
	if len(parts) > 2 {
		p.subresource = parts[2]
	}
	return p, true
}
