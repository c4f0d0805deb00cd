package operator

import (
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"karpenter.sh/karpenter/internal/kit/setting"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// nobody has nothing to tell.
type nobody struct{}

func (nobody) Scrape(io.Writer) error { return nil }

// scraped tells one line, when it may.
type scraped struct{ may <-chan struct{} }

func (s scraped) Scrape(w io.Writer) error {
	if s.may != nil {
		<-s.may
	}
	_, err := io.WriteString(w, "from_the_snapshot 1\n")
	return err
}

func TestAScrapeHasWhatIsRegisteredAndWhatIsInTheSnapshot(t *testing.T) {
	r := prometheus.NewRegistry()
	r.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "registered", Help: "h"}))
	h := newScrapes(r, scraped{})
	for name, header := range map[string]http.Header{
		"plain":              {},
		"zipped":             {"Accept-Encoding": {"deflate, gzip"}},
		"as Prometheus asks": {"Accept": {"application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6,application/openmetrics-text;q=0.5,text/plain;q=0.3"}, "Accept-Encoding": {"gzip"}},
	} {
		t.Run(name, func(t *testing.T) {
			for range 2 { // the second with a zipper that was used
				w := httptest.NewRecorder()
				q := httptest.NewRequest(http.MethodGet, "/metrics", nil)
				q.Header = header.Clone()
				h.ServeHTTP(w, q)
				var body io.Reader = w.Body
				if strings.Contains(header.Get("Accept-Encoding"), "gzip") {
					z, err := gzip.NewReader(w.Body)
					if err != nil {
						t.Fatal(err)
					}
					body = z
				}
				text, err := io.ReadAll(body)
				if err != nil {
					t.Fatal(err)
				}
				if got := w.Header().Get("Content-Type"); !strings.HasPrefix(got, "text/plain") || w.Code != http.StatusOK {
					t.Errorf("status %d, type %s", w.Code, got)
				}
				for _, want := range []string{"# TYPE registered gauge\nregistered 0\n", "\nfrom_the_snapshot 1\n"} {
					if !strings.Contains(string(text), want) {
						t.Errorf("scrape is\n%s\nwithout %q", text, want)
					}
				}
			}
		})
	}
}

// Dashboards of releases before find their names where a setting says so, and nobody else sees them.
func TestHistoricNamesAreToldWhereTheyAreWanted(t *testing.T) {
	for name, tc := range map[string]struct {
		flag string
		want bool
	}{
		"by default":         {"", false},
		"wanted":             {"--historic-metrics=true", true},
		"expressly unwanted": {"--historic-metrics=false", false},
	} {
		t.Run(name, func(t *testing.T) {
			s := DefaultSettings()
			if err := setting.Read("karpenter", s.List(), strings.Fields(tc.flag), func(string) (string, bool) { return "", false }, io.Discard); err != nil {
				t.Fatal(err)
			}
			r := prometheus.NewRegistry()
			telemetry.NewMetrics(r, telemetry.ConditionKinds()).NodesCreated.WithLabelValues("web", "a").Add(2)
			w := httptest.NewRecorder()
			newScrapes(s.registry(r), nobody{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
			has := strings.Contains(w.Body.String(), "# TYPE karpenter_nodes_created counter\nkarpenter_nodes_created{nodepool=\"web\",provisioner=\"web\"} 2\n")
			if has != tc.want || !strings.Contains(w.Body.String(), "karpenter_nodes_created_total{") {
				t.Errorf("historic names: %t, want %t, in\n%s", has, tc.want, w.Body)
			}
		})
	}
}

type unwell struct{}

func (unwell) Describe(chan<- *prometheus.Desc) {}
func (unwell) Collect(ch chan<- prometheus.Metric) {
	ch <- prometheus.NewInvalidMetric(prometheus.NewDesc("a", "", nil, nil), errors.New("no"))
}

func TestAScrapeThatFailsSaysSo(t *testing.T) {
	r := prometheus.NewRegistry()
	r.MustRegister(unwell{})
	w := httptest.NewRecorder()
	newScrapes(r, scraped{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusInternalServerError || strings.Contains(w.Body.String(), "from_the_snapshot") {
		t.Errorf("status %d: %s", w.Code, w.Body)
	}
}

func TestTwoScrapesAtOnceAreEnough(t *testing.T) {
	may := make(chan struct{})
	server := httptest.NewServer(newScrapes(prometheus.NewRegistry(), scraped{may}))
	defer server.Close()
	codes := make(chan int, 3)
	for range 3 {
		go func() {
			resp, err := http.Get(server.URL)
			if err != nil {
				t.Error(err)
				codes <- 0
				return
			}
			resp.Body.Close()
			codes <- resp.StatusCode
		}()
	}
	if code := <-codes; code != http.StatusServiceUnavailable { // the others wait to be told something
		t.Errorf("the third scrape: status %d, want unavailable", code)
	}
	close(may)
	for range 2 {
		if code := <-codes; code != http.StatusOK {
			t.Errorf("status %d, want OK", code)
		}
	}
}

// Whoever asks slowly, reads slowly or keeps a connection for nothing is cut off, also one who scrapes.
func TestNobodyKeepsAListenerForLong(t *testing.T) {
	s := newServer(http.NotFoundHandler())
	for what, limit := range map[string]time.Duration{
		"to say what is asked": s.ReadHeaderTimeout, "to ask": s.ReadTimeout, "to read the answer": s.WriteTimeout, "between two questions": s.IdleTimeout,
	} {
		if limit <= 0 || limit > 2*time.Minute {
			t.Errorf("time %s: %s, want at most two minutes", what, limit)
		}
	}
}
