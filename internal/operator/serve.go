package operator

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/pprof"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"k8s.io/apimachinery/pkg/api/meta"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/control/learn"
	"karpenter.sh/karpenter/internal/history/journal"
	"karpenter.sh/karpenter/internal/observe/telemetry"
	"karpenter.sh/karpenter/internal/ui/page"
)

// Addresses are the addresses at which metrics, probes and the page are served, "" for those that are not.
type Addresses struct{ Metrics, Health, Page string }

// newMetrics registers all metrics of the program, with those of Go and the process.
func newMetrics(r *prometheus.Registry, o Options) *telemetry.Metrics {
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m := telemetry.NewMetrics(r, telemetry.ConditionKinds(o.NodeClasses.Label))
	m.BuildInfo.WithLabelValues(o.Version, runtime.Version(), runtime.GOARCH, o.Commit).Set(1)
	return m
}

// whileLeading is a collector that collects nothing on a standby.
type whileLeading struct {
	prometheus.Collector
	leading *atomic.Bool
}

func (w whileLeading) Collect(ch chan<- prometheus.Metric) {
	if w.leading.Load() {
		w.Collector.Collect(ch)
	}
}

// Time limits of the listeners. Without them slow clients could use up connections.
const (
	readTimeout  = 10 * time.Second
	writeTimeout = time.Minute
	idleTimeout  = 2 * time.Minute
)

// A listening is one listener.
type listening struct {
	host    string
	port    int // 0: it is not served
	handler http.Handler
	secure  bool    // over TLS, with a self-signed certificate
	at      *string // gets the address
}

// serve starts the listeners, calls started with their addresses, and returns a function that stops them.
func serve(ctx context.Context, s Settings, metrics, ui http.Handler, c checks, started func(Addresses)) (func(), error) {
	var at Addresses
	var servers []*http.Server
	stop := func() {
		for _, server := range servers {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			if err := server.Shutdown(ctx); err != nil {
				server.Close() // the program ends; clients that still read have had a second
			}
			cancel()
		}
	}
	for _, l := range []listening{
		{s.Serve.Host, s.Serve.MetricsPort, metrics, s.Serve.MetricsAuthentication, &at.Metrics},
		{s.Serve.Host, s.Serve.HealthProbePort, healthHandler(c), false, &at.Health},
		{s.Serve.UIHost, s.Serve.UIPort, ui, !s.uiIsLocal(), &at.Page},
	} {
		if l.port == 0 {
			continue
		}
		listener, err := l.listen()
		if err != nil {
			stop()
			return nil, err
		}
		server := newServer(l.handler)
		servers = append(servers, server)
		go func() {
			if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
				telemetry.Log(ctx).Error("a listener failed", "address", listener.Addr().String(), "error", err)
			}
		}()
	}
	if started != nil {
		started(at)
	}
	return stop, nil
}

// listen opens the listener and sets its address.
func (l listening) listen() (net.Listener, error) {
	listener, err := net.Listen("tcp", net.JoinHostPort(l.host, strconv.Itoa(l.port)))
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	*l.at = listener.Addr().String()
	if !l.secure {
		return listener, nil
	}
	config, err := selfSigned()
	if err != nil {
		listener.Close()
		return nil, err
	}
	return tls.NewListener(listener, config), nil
}

// newServer returns a server with time limits.
func newServer(h http.Handler) *http.Server {
	return &http.Server{Handler: h, ReadHeaderTimeout: readTimeout, ReadTimeout: readTimeout,
		WriteTimeout: writeTimeout, IdleTimeout: idleTimeout}
}

// A scraper writes gauges in Prometheus's text format.
type scraper interface{ Scrape(io.Writer) error }

// metricsHandler serves everything on the metrics port: metrics, journal, snapshot, forecast and, with profiling, pprof.
func metricsHandler(r registry, s scraper, j *journal.Journal, asked storyteller, learner *learn.Learner, profiling bool) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/metrics", newScrapes(r, s))
	mux.HandleFunc("/journal", serveJournal(j))
	mux.HandleFunc("/snapshot", serveSnapshot(asked))
	mux.HandleFunc("/forecast", serveForecast(learner))
	if profiling {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	return mux
}

// guarded puts a guard before the handler of the metrics port, if the settings ask for authentication.
func guarded(s Settings, c *clients, h http.Handler) http.Handler {
	if !s.Serve.MetricsAuthentication {
		return h
	}
	return newGuard(h, c.reviews)
}

// uiIsLocal reports whether the page can be reached from this machine only.
func (s *Settings) uiIsLocal() bool { return page.Loopback(s.Serve.UIHost) }

// pageHandler serves the page without a guard if it can be reached from this machine only, else with one.
func pageHandler(s Settings, c *clients, shown *page.Service) http.Handler {
	if s.uiIsLocal() {
		return shown.Open()
	}
	return shown.Guarded(func(h http.Handler) http.Handler { return newGuard(h, c.reviews) })
}

// checks are what the probes ask.
type checks struct{ alive, ready func() error }

// healthHandler answers the probes: 200 "ok", or 503 with what is wrong.
func healthHandler(c checks) http.Handler {
	mux := http.NewServeMux()
	for path, check := range map[string]func() error{"/healthz": c.alive, "/readyz": c.ready} {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			if err := check(); err != nil {
				http.Error(w, err.Error(), http.StatusServiceUnavailable)
				return
			}
			fmt.Fprintln(w, "ok")
		})
	}
	return mux
}

// longestSilence is how long a loop may neither begin a turn nor wait for one before the liveness check fails. The lease is renewed
// meanwhile, so without a restart such a program would lead for ever.
const longestSilence = 10 * time.Minute

// alive returns the liveness check, which fails if a loop hangs.
func alive(m *telemetry.Metrics) func() error {
	return func() error {
		if silent := m.Silent(longestSilence); len(silent) > 0 {
			return fmt.Errorf("no turn for %v: %s", longestSilence, strings.Join(silent, ", "))
		}
		return nil
	}
}

// ready returns the readiness check. It fails if the API server does not know Karpenter's kinds, or if the store has not read the whole
// cluster. The second does not matter on a standby that does not watch (cold).
func ready(kinds meta.RESTMapper, missing func() ([]string, time.Duration), leading *atomic.Bool, cold bool) func() error {
	return func() error {
		for _, kind := range []string{"NodePool", "NodeClaim"} {
			if _, err := kinds.RESTMapping(v1.GroupVersion.WithKind(kind).GroupKind(), v1.GroupVersion.Version); err != nil {
				return fmt.Errorf("kind %s is unknown to the API server: %w", kind, err)
			}
		}
		if unread, _ := missing(); len(unread) > 0 && (!cold || leading.Load()) {
			return fmt.Errorf("not synced: %s", strings.Join(unread, ", "))
		}
		return nil
	}
}
