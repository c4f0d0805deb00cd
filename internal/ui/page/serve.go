package page

import (
	"compress/gzip"
	"embed"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"karpenter.sh/karpenter/internal/observe/telemetry"
)

//go:embed assets
var assets embed.FS

// files are what the page is made of, by path.
var files = map[string]struct{ name, kind string }{
	"/":         {"page.html", "text/html; charset=utf-8"},
	"/page.css": {"page.css", "text/css; charset=utf-8"},
	"/page.js":  {"page.js", "text/javascript; charset=utf-8"},
	"/icon.svg": {"icon.svg", "image/svg+xml"},
}

// Path is where the picture is: a user who may read it may see the page. previewPath answers what pods would lead to.
const (
	Path        = "/picture"
	previewPath = "/preview"
)

const (
	// mostViewers may look at the same time.
	mostViewers = 32
	// viewerTime is how long a viewer may take to read what it was sent, and firstPictureTime how long one waits for a picture at most.
	viewerTime       = 10 * time.Second
	firstPictureTime = 20 * time.Second
	// heartbeatInterval is how often a viewer hears that nothing has changed.
	heartbeatInterval = 15 * time.Second
	// answerTime is how long one stream lasts. Viewers then connect again, and have to authenticate again.
	answerTime = 5 * time.Minute
	// mostManifests is how long the manifests of a preview may be.
	mostManifests = 256 << 10
)

// policy lets the page load what this server has, and nothing from elsewhere.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri " +
	"'none'; form-action 'none'; frame-ancestors 'none'"

// Open serves the page without a login, only to requests that name this machine as their host (localhost). Else the
// script of another site, whose name leads to this machine, could read it.
func (s *Service) Open() http.Handler {
	return harden(local(s.handler(func(h http.Handler) http.Handler { return h })))
}

// Guarded serves the picture and the preview to whom guard lets through. The files of the page hold no data of the
// cluster, so everybody gets them.
func (s *Service) Guarded(guard func(http.Handler) http.Handler) http.Handler {
	return harden(s.handler(guard))
}

// handler returns the routes: the picture, the preview and the files of the page. guard protects the first two. A
// preview needs the right to read the picture, so guard sees it as GET /picture.
func (s *Service) handler(guard func(http.Handler) http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle(Path, guard(s.picture()))
	preview := guard(http.HandlerFunc(s.preview))
	mux.HandleFunc(previewPath, func(w http.ResponseWriter, r *http.Request) {
		read := r.Clone(r.Context()) // it takes the right to read the picture
		read.Method, read.URL.Path = http.MethodGet, Path
		preview.ServeHTTP(w, read)
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		file, known := files[r.URL.Path]
		if !known {
			http.NotFound(w, r)
			return
		}
		text, err := assets.ReadFile("assets/" + file.name)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", file.kind)
		_, _ = w.Write(text) // an error means that the viewer has gone
	})
	return mux
}

// harden sets security headers on every answer. It refuses methods other than GET and HEAD (POST for the preview),
// and requests that scripts of other sites send.
func harden(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, value := range map[string]string{
			"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY",
			"Referrer-Policy":              "no-referrer",
			"Cross-Origin-Resource-Policy": "same-origin", "Cross-Origin-Opener-Policy": "same-origin", "Cache-Control": "no-store",
		} {
			w.Header().Set(name, value)
		}
		allowed := []string{http.MethodGet, http.MethodHead}
		if r.URL.Path == previewPath {
			allowed = []string{http.MethodPost}
		}
		if !slices.Contains(allowed, r.Method) {
			w.Header().Set("Allow", strings.Join(allowed, ", "))
			http.Error(w, "the page is only read", http.StatusMethodNotAllowed)
			return
		}
		_, public := files[r.URL.Path]
		if from := r.Header.Get("Sec-Fetch-Site"); !public && from != "" && from != "same-origin" && from != "none" {
			http.Error(w, "the picture is for this page's own script", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// local refuses requests whose Host is not this machine. A site whose name was pointed at this machine (DNS
// rebinding) could otherwise read the page.
func local(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isLocal(r.Host) {
			http.Error(w, "this page is reached as localhost", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// isLocal reports whether the host of a request, with or without port, is a loopback name or address.
func isLocal(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return Loopback(strings.Trim(host, "[]"))
}

// Loopback reports whether a host can be reached from its own machine only.
func Loopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	at, err := netip.ParseAddr(host)
	return err == nil && at.IsLoopback()
}

// picture serves the present picture, or all pictures as they come to clients that accept text/event-stream. With a
// query it serves the details of a node, or what would happen if it left.
func (s *Service) picture() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Query().Has("leave"):
			s.leave(w, r)
			return
		case r.URL.RawQuery != "":
			s.detail(w, r)
			return
		}
		stream := strings.Contains(r.Header.Get("Accept"), "text/event-stream")
		kind := "application/json"
		if stream {
			kind = "text/event-stream"
		}
		w.Header().Set("Content-Type", kind)
		if r.Method == http.MethodHead {
			return
		}
		leave, ok := s.enter()
		if !ok {
			w.Header().Set("Retry-After", "30")
			http.Error(w, "too many are looking; try again later", http.StatusServiceUnavailable)
			return
		}
		defer leave()
		out := newWriter(w, r)
		defer out.close()
		show := s.once
		if stream {
			show = s.stream
		}
		err := show(r, out)
		if err != nil {
			telemetry.Log(r.Context()).Debug("a viewer of the page has gone", "because", err)
		}
	})
}

// preview serves what the pods of the manifests in a request would lead to. It changes nothing. Only one preview runs
// at a time.
func (s *Service) preview(w http.ResponseWriter, r *http.Request) {
	// A form of another site, which asks nothing before it posts, cannot send this type.
	if r.Header.Get("Content-Type") != "application/yaml" {
		http.Error(w, "manifests are sent as application/yaml", http.StatusUnsupportedMediaType)
		return
	}
	if s.Preview == nil {
		http.Error(w, "this controller plans for no manifests; karpenter plan --kubeconfig FILE -f FILE does", http.StatusNotImplemented)
		return
	}
	if !s.previewing.TryLock() {
		http.Error(w, "another preview is being planned; try again in some seconds", http.StatusTooManyRequests)
		return
	}
	defer s.previewing.Unlock()
	// A viewer who sends slowly must not block previews of others for longer than viewerTime. Recorders of tests have no deadlines.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(viewerTime))
	manifests, err := io.ReadAll(http.MaxBytesReader(w, r.Body, mostManifests))
	if _, tooLong := errors.AsType[*http.MaxBytesError](err); tooLong {
		http.Error(w, fmt.Sprintf("the manifests are longer than %d KiB; paste fewer", mostManifests>>10), http.StatusRequestEntityTooLarge)
		return
	} else if err != nil {
		http.Error(w, "the manifests did not arrive: "+err.Error(), http.StatusBadRequest)
		return
	}
	report, err := s.Preview(r.Context(), manifests)
	if err != nil {
		http.Error(w, err.Error(), http.StatusUnprocessableEntity)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(report) // an error means that the viewer has gone
}

// once writes the present picture, or an error if there is none within firstPictureTime.
func (s *Service) once(r *http.Request, out *writer) error {
	f, _ := s.frameAfter(r.Context(), 0, firstPictureTime)
	if f == nil {
		out.to.Header().Del("Content-Encoding")
		out.zip = nil
		http.Error(out.to, "there is no picture yet; try again", http.StatusServiceUnavailable)
		return nil
	}
	return out.write(f.whole())
}

// stream writes pictures as they come until answerTime is over: the first one whole, then only changes. A viewer that
// missed a frame gets a whole picture again.
func (s *Service) stream(r *http.Request, out *writer) error {
	until := time.Now().Add(answerTime)
	if err := out.write([]byte(": hello\n\n")); err != nil {
		return err
	}
	for seen := uint64(0); time.Now().Before(until); {
		f, over := s.frameAfter(r.Context(), seen, heartbeatInterval)
		var err error
		switch {
		case over:
			return nil
		case f == nil:
			err = out.write([]byte(": nothing new\n\n"))
		default:
			event, data := f.since(seen)
			err = out.write([]byte("event: "+event+"\ndata: "), data, []byte("\n\n"))
		}
		if err != nil {
			return err
		}
		if f != nil {
			seen = f.seq
		}
	}
	return nil
}

// since returns the event for a viewer whose last frame was number seen, 0 for none: the changes if it missed
// nothing, else the picture.
func (f *frame) since(seen uint64) (event string, data []byte) {
	if f.seq == seen+1 && f.changes != nil { // the first one has none
		return "changes", f.changes
	}
	return "picture", f.whole()
}

// A writer writes to one viewer, compressed if the viewer accepts gzip. Each write may take viewerTime.
type writer struct {
	to      http.ResponseWriter
	control *http.ResponseController
	zip     *gzip.Writer // nil for a viewer that does not understand it
}

// newWriter returns a writer for one viewer.
func newWriter(w http.ResponseWriter, r *http.Request) *writer {
	out := &writer{to: w, control: http.NewResponseController(w)}
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.Header().Set("Content-Encoding", "gzip")
		out.zip, _ = gzip.NewWriterLevel(w, gzip.BestSpeed) // the level exists
	}
	return out
}

// write writes parts to the viewer and flushes. It fails if that takes longer than viewerTime.
func (o *writer) write(parts ...[]byte) error {
	if err := o.control.SetWriteDeadline(time.Now().Add(viewerTime)); err != nil {
		return fmt.Errorf("limit the time of a viewer: %w", err)
	}
	to := io.Writer(o.to)
	if o.zip != nil {
		to = o.zip
	}
	for _, part := range parts {
		if _, err := to.Write(part); err != nil {
			return err
		}
	}
	if o.zip != nil {
		if err := o.zip.Flush(); err != nil {
			return err
		}
	}
	return o.control.Flush()
}

func (o *writer) close() {
	if o.zip != nil {
		_ = o.zip.Close() // an error means that the viewer has gone
	}
}
