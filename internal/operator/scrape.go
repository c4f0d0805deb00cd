package operator

import (
	"compress/gzip"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// registry is where metrics are registered and read.
type registry interface {
	prometheus.Registerer
	prometheus.Gatherer
}

// scrapesHandler answers scrapes in Prometheus's text format: first what is registered, then what is read from the newest snapshot, which
// is far more and is written as it is read.
type scrapesHandler struct {
	registered http.Handler
	snapshot   scraper
	slots      chan struct{}
	zippers    sync.Pool
}

func newScrapes(r registry, s scraper) http.Handler {
	return &scrapesHandler{
		registered: promhttp.HandlerFor(r, promhttp.HandlerOpts{Registry: r, DisableCompression: true}), snapshot: s,
		slots:   make(chan struct{}, scrapes),
		zippers: sync.Pool{New: func() any { z, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed); return z }}, // the level is one that there is
	}
}

func (h *scrapesHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	select {
	case h.slots <- struct{}{}:
		defer func() { <-h.slots }()
	default:
		w.Header().Set("Retry-After", "5")
		http.Error(w, "others are being answered; try again", http.StatusServiceUnavailable)
		return
	}
	a := &answer{ResponseWriter: w, body: w}
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		z := h.zippers.Get().(*gzip.Writer)
		z.Reset(w)
		defer h.zippers.Put(z)
		defer z.Close() // an error is one of the reader, who has gone
		a.body = z
		w.Header().Set("Content-Encoding", "gzip")
	}
	asked := r.Clone(r.Context())
	asked.Header.Set("Accept", "text/plain;version=0.0.4") // whoever wants another format understands this one too
	h.registered.ServeHTTP(a, asked)
	if a.status != 0 && a.status != http.StatusOK {
		return
	}
	if err := h.snapshot.Scrape(a); err != nil {
		telemetry.Log(r.Context()).Debug("a scrape was not read to its end", "error", err)
	}
}

// An answer may be zipped, and remembers its status.
type answer struct {
	http.ResponseWriter
	body   io.Writer
	status int
}

func (a *answer) WriteHeader(status int) {
	a.status = status
	a.ResponseWriter.WriteHeader(status)
}

func (a *answer) Write(b []byte) (int, error) { return a.body.Write(b) }
