package operator

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"karpenter.sh/karpenter/internal/control/provision"
	"karpenter.sh/karpenter/internal/history/journal"
)

// stories are told as they are set.
type stories struct {
	text []byte
	err  error
	held chan struct{} // closed once it may be told; nil: at once
	told chan struct{}
}

func (s *stories) Story(anonymous bool) ([]byte, error) {
	if s.held != nil {
		close(s.told)
		<-s.held
	}
	if anonymous {
		return []byte("without names"), s.err
	}
	return s.text, s.err
}

func TestSnapshotsAreServed(t *testing.T) {
	for name, tc := range map[string]struct {
		asked  storyteller
		method string
		path   string
		code   int
		body   string
	}{
		"the last question":    {&stories{text: []byte("a story")}, http.MethodGet, "/snapshot", http.StatusOK, "a story"},
		"without names":        {&stories{}, http.MethodGet, "/snapshot?anonymous=true", http.StatusOK, "without names"},
		"there was none":       {&provision.Desk{}, http.MethodGet, "/snapshot", http.StatusNotFound, "no plan has been made since this controller began to lead\n"},
		"it cannot be written": {&stories{err: errors.New("secret")}, http.MethodGet, "/snapshot", http.StatusInternalServerError, "the snapshot could not be written\n"},
		"it is only read":      {&stories{}, http.MethodPost, "/snapshot", http.StatusMethodNotAllowed, "a snapshot is only read\n"},
	} {
		t.Run(name, func(t *testing.T) {
			w := httptest.NewRecorder()
			metricsHandler(prometheus.NewRegistry(), nobody{}, journal.New(), tc.asked, nil, false).ServeHTTP(w, httptest.NewRequest(tc.method, tc.path, nil))
			if w.Code != tc.code || w.Body.String() != tc.body {
				t.Errorf("%d %q, want %d %q", w.Code, w.Body, tc.code, tc.body)
			}
		})
	}
}

// A large cluster is many megabytes, which are not made for several at once.
func TestOneSnapshotIsToldAtATime(t *testing.T) {
	s := &stories{text: []byte("a story"), held: make(chan struct{}), told: make(chan struct{})}
	handler := serveSnapshot(s)
	first, done := httptest.NewRecorder(), make(chan struct{})
	go func() { handler(first, httptest.NewRequest(http.MethodGet, "/snapshot", nil)); close(done) }()
	<-s.told
	second := httptest.NewRecorder()
	if handler(second, httptest.NewRequest(http.MethodGet, "/snapshot", nil)); second.Code != http.StatusTooManyRequests {
		t.Errorf("code %d while another one is told", second.Code)
	}
	close(s.held)
	if <-done; first.Code != http.StatusOK || first.Body.String() != "a story" {
		t.Errorf("%d %q", first.Code, first.Body)
	}
}

func TestSnapshotsAreGuardedLikeMetrics(t *testing.T) {
	s := DefaultSettings()
	s.Serve.MetricsAuthentication = true
	handler := guarded(s, &clients{reviews: &reviewer{}}, metricsHandler(prometheus.NewRegistry(), nobody{}, journal.New(), &stories{text: []byte("a story")}, nil, false))
	w := httptest.NewRecorder()
	if handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/snapshot", nil)); w.Code != http.StatusUnauthorized {
		t.Errorf("code %d without a token", w.Code)
	}
}
