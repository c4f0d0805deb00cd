package operator

import (
	"bytes"
	"compress/gzip"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// registry is where metrics are registered and read.
type registry interface {
	prometheus.Registerer
	prometheus.Gatherer
}

const (
	// scrapes is how many scrapes are written at the same time, because each takes CPU time and memory. Others wait.
	scrapes = 2
	// scrapeWait is how long a scrape waits for that at most.
	scrapeWait = 5 * time.Second
	// mostReaders is how many scrapes are answered at the same time, and readersOfOneHost how many of them for one address.
	mostReaders, readersOfOneHost = 32, 4
	// partTimeout is how long a reader may take for readChunk bytes.
	partTimeout = 10 * time.Second
	readChunk   = 256 << 10
)

// scrapesHandler answers scrapes in Prometheus's text format: first the registered metrics, then the gauges that are made from the newest
// snapshot, which are far more. The text is compressed into memory before it is sent, so that a slow reader delays no other reader.
type scrapesHandler struct {
	registered http.Handler
	snapshot   scraper
	slots      chan struct{}
	zippers    sync.Pool
	readers    readers
}

func newScrapes(r registry, s scraper) http.Handler {
	return &scrapesHandler{
		registered: promhttp.HandlerFor(r, promhttp.HandlerOpts{Registry: r, DisableCompression: true}), snapshot: s,
		slots: make(chan struct{}, scrapes),
		// the error is always nil, because the level exists
		zippers: sync.Pool{New: func() any { z, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed); return z }},
		readers: readers{hosts: map[string]int{}},
	}
}

// ServeHTTP writes the text while it holds a slot, and sends it after it has given the slot back.
func (h *scrapesHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	host, _, _ := net.SplitHostPort(r.RemoteAddr)
	if !h.readers.enter(host) {
		busy(w)
		return
	}
	defer h.readers.leave(host)
	turn := time.NewTimer(scrapeWait)
	defer turn.Stop()
	select {
	case h.slots <- struct{}{}:
	case <-turn.C:
		busy(w)
		return
	case <-r.Context().Done():
		return
	}
	text := h.write(w, r)
	<-h.slots
	if text != nil {
		send(w, text, strings.Contains(r.Header.Get("Accept-Encoding"), "gzip"))
	}
}

func busy(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "5")
	http.Error(w, "others are being answered; try again", http.StatusServiceUnavailable)
}

// write returns the compressed text, or nil after it has answered with an error.
func (h *scrapesHandler) write(w http.ResponseWriter, r *http.Request) *bytes.Buffer {
	text := &bytes.Buffer{}
	z := h.zippers.Get().(*gzip.Writer)
	defer h.zippers.Put(z)
	z.Reset(text)
	a := &answer{header: w.Header(), body: z}
	asked := r.Clone(r.Context())
	asked.Header.Set("Accept", "text/plain;version=0.0.4") // readers of other formats understand this one too
	h.registered.ServeHTTP(a, asked)
	if a.status != 0 && a.status != http.StatusOK {
		w.WriteHeader(a.status)
		return nil
	}
	if err := h.snapshot.Scrape(a); err != nil {
		telemetry.Log(r.Context()).Debug("a scrape was not written to its end", "error", err)
	}
	z.Close() // to a buffer: it cannot fail
	return text
}

// send sends the text, decompressed unless zipped. The reader has partTimeout for each readChunk bytes.
func send(w http.ResponseWriter, text *bytes.Buffer, zipped bool) {
	var from io.Reader = text
	if zipped {
		w.Header().Set("Content-Encoding", "gzip")
	} else if z, err := gzip.NewReader(text); err == nil {
		from = z
	}
	control := http.NewResponseController(w)
	for {
		_ = control.SetWriteDeadline(time.Now().Add(partTimeout)) // without one the server's own deadline holds
		if n, err := io.CopyN(w, from, readChunk); n < readChunk || err != nil {
			return // the end, or the reader has gone
		}
	}
}

// readers counts the requests of each host that are being answered.
type readers struct {
	mu    sync.Mutex
	all   int
	hosts map[string]int
}

// enter reports whether one more request of a host may be answered now.
func (r *readers) enter(host string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all >= mostReaders || r.hosts[host] >= readersOfOneHost {
		return false
	}
	r.all++
	r.hosts[host]++
	return true
}

func (r *readers) leave(host string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all--
	if r.hosts[host]--; r.hosts[host] == 0 {
		delete(r.hosts, host)
	}
}

// An answer is a ResponseWriter that writes into body (which compresses), and keeps the status.
type answer struct {
	header http.Header
	body   io.Writer
	status int
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(status int) { a.status = status }

func (a *answer) Write(b []byte) (int, error) { return a.body.Write(b) }
