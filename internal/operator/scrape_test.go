package operator

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
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

// get asks for metrics as one host and returns the status.
func get(h http.Handler, host string) int {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	r.RemoteAddr = host + ":40000"
	h.ServeHTTP(w, r)
	return w.Code
}

func TestOneHostHasSoManyScrapesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		may := make(chan struct{})
		h := newScrapes(prometheus.NewRegistry(), scraped{may})
		codes := make(chan int, readersOfOneHost)
		for range readersOfOneHost {
			go func() { codes <- get(h, "10.0.0.1") }()
		}
		synctest.Wait()
		if code := get(h, "10.0.0.1"); code != http.StatusServiceUnavailable {
			t.Errorf("one more scrape of the host: status %d, want unavailable", code)
		}
		go func() { time.Sleep(time.Second); close(may) }()
		if code := get(h, "10.0.0.2"); code != http.StatusOK {
			t.Errorf("a scrape of another host: status %d, want OK after its turn", code)
		}
		for range readersOfOneHost {
			if code := <-codes; code != http.StatusOK {
				t.Errorf("status %d, want OK", code)
			}
		}
	})
}

func TestAScrapeThatGetsNoTurnIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		may := make(chan struct{})
		h := newScrapes(prometheus.NewRegistry(), scraped{may})
		for range scrapes {
			go get(h, "10.0.0.1")
		}
		synctest.Wait()
		begin := time.Now()
		if code := get(h, "10.0.0.2"); code != http.StatusServiceUnavailable || time.Since(begin) != scrapeWait {
			t.Errorf("status %d after %v, want unavailable after %v", code, time.Since(begin), scrapeWait)
		}
		close(may)
	})
}

// large writes more than the buffers of a connection hold.
type large struct{}

func (large) Scrape(w io.Writer) error {
	line, random := make([]byte, 1<<20), rand.NewChaCha8([32]byte{})
	for range 32 {
		if _, err := random.Read(line); err != nil { // it does not compress
			return err
		}
		if _, err := w.Write(line); err != nil {
			return err
		}
	}
	return nil
}

// A scrape that had to wait for readers that do not read would be refused: they may take longer than a scrape waits for its turn.
func TestASlowReaderDelaysNoOther(t *testing.T) {
	server := httptest.NewServer(newScrapes(prometheus.NewRegistry(), large{}))
	defer server.Close()
	for range readersOfOneHost - 1 { // these read no more than the status
		c, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprintf(c, "GET /metrics HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\n\r\n")
		status := make([]byte, len("HTTP/1.1 200"))
		if _, err := io.ReadFull(c, status); err != nil || string(status) != "HTTP/1.1 200" {
			t.Fatalf("the answer begins with %q, %v", status, err)
		}
	}
	if partTimeout <= scrapeWait {
		t.Fatal("a scrape that waits for its turn would not be refused")
	}
	resp, err := http.Get(server.URL + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("status %d, %v", resp.StatusCode, err)
	}
}

// A client that sends slowly, reads slowly or keeps a connection without use is cut off.
func TestListenersHaveTimeouts(t *testing.T) {
	s := newServer(http.NotFoundHandler())
	for what, limit := range map[string]time.Duration{
		"to say what is asked": s.ReadHeaderTimeout, "to ask": s.ReadTimeout, "to read the answer": s.WriteTimeout, "between two questions": s.IdleTimeout,
	} {
		if limit <= 0 || limit > 2*time.Minute {
			t.Errorf("time %s: %s, want at most two minutes", what, limit)
		}
	}
}
