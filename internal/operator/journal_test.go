package operator

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"karpenter.sh/karpenter/internal/history/journal"
)

func TestTheJournalIsServed(t *testing.T) {
	j := journal.New()
	for range 3 {
		j.Add(journal.Record{Act: journal.Opened, Loop: "opener"})
	}
	handler := metricsHandler(prometheus.NewRegistry(), nobody{}, j, nil, nil, false)
	for path, want := range map[string][]uint64{
		"/journal":         {1, 2, 3},
		"/journal?after=2": {3},
		"/journal?last=2":  {2, 3},
	} {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		got, torn, err := journal.Read(w.Body)
		if w.Code != http.StatusOK || torn != 0 || err != nil || len(got) != len(want) || got[0].Seq != want[0] {
			t.Errorf("%s: code %d, %d torn, %v: %+v", path, w.Code, torn, err, got)
		}
	}
	for request, want := range map[*http.Request]int{
		httptest.NewRequest(http.MethodGet, "/journal?after=x", nil): http.StatusBadRequest,
		httptest.NewRequest(http.MethodGet, "/journal?last=-1", nil): http.StatusBadRequest,
		httptest.NewRequest(http.MethodDelete, "/journal", nil):      http.StatusMethodNotAllowed,
	} {
		w := httptest.NewRecorder()
		if handler.ServeHTTP(w, request); w.Code != want {
			t.Errorf("%s %s: code %d, want %d", request.Method, request.URL, w.Code, want)
		}
	}
}

func TestTheJournalIsGuardedLikeMetrics(t *testing.T) {
	s := DefaultSettings()
	s.Serve.MetricsAuthentication = true
	handler := guarded(s, &clients{reviews: &reviewer{}}, metricsHandler(prometheus.NewRegistry(), nobody{}, journal.New(), nil, nil, false))
	w := httptest.NewRecorder()
	if handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/journal", nil)); w.Code != http.StatusUnauthorized {
		t.Errorf("code %d without a token", w.Code)
	}
}

// What is decided is on the disk a second later, and what was decided last when the program ends.
func TestTheJournalReachesTheDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := someParts(t)
		read := func() int {
			got, _, err := journal.ReadFolder(p.settings.Journal.Dir)
			if err != nil {
				t.Error(err)
			}
			return len(got)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- p.keepJournal(ctx) }()
		time.Sleep(time.Minute)
		p.journal.Add(journal.Record{Act: journal.Opened})
		time.Sleep(keepEvery + time.Millisecond)
		if n := read(); n != 1 {
			t.Errorf("%d records on the disk after a second", n)
		}
		p.journal.Add(journal.Record{Act: journal.Opened})
		stop()
		if err := <-done; err != nil || read() != 2 {
			t.Errorf("%v, %d records on the disk at the end", err, read())
		}
	})
}
