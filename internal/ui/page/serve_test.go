package page

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/commitment"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/explain/board"
	"karpenter.sh/karpenter/internal/explain/sentence"
	"karpenter.sh/karpenter/internal/history/journal"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

func (t *town) Pools(context.Context, *cluster.Snapshot) (map[string]engine.Pool, map[string]bool) {
	return t.pools, nil
}

func (t *town) Commitments(context.Context, *cluster.Snapshot, time.Time) *commitment.Books {
	return t.books
}

// service makes a service for a town.
func service(w *town) *Service {
	s := New(Deps{Store: w.Store, Catalogs: w, Journal: journal.New(), Verdicts: board.New(),
		Metrics: telemetry.NewMetrics(prometheus.NewRegistry(), telemetry.ConditionKinds()), Leading: func() bool { return true }})
	s.pace = 20 * time.Millisecond
	return s
}

// served serves it for real.
func served(t *testing.T, s *Service, h http.Handler) *httptest.Server {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var runs sync.WaitGroup
	runs.Go(func() { _ = s.Run(ctx) })
	server := httptest.NewServer(h)
	t.Cleanup(func() { stop(); runs.Wait(); server.Close() })
	return server
}

func ask(t *testing.T, method, url string, edit func(*http.Request)) *http.Response {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if edit != nil {
		edit(q)
	}
	r, err := http.DefaultTransport.RoundTrip(q)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Body.Close() })
	return r
}

func TestWhatIsAnswered(t *testing.T) {
	w := newTown()
	s := service(w)
	server := served(t, s, s.Open())
	header := func(name, value string) func(*http.Request) {
		return func(q *http.Request) { q.Header.Set(name, value) }
	}
	for name, tc := range map[string]struct {
		method, path string
		edit         func(*http.Request)
		want         int
	}{
		"the page":                           {"GET", "/", nil, 200},
		"its script":                         {"GET", "/page.js", nil, 200},
		"its looks":                          {"GET", "/page.css", nil, 200},
		"the picture":                        {"GET", "/picture", nil, 200},
		"a look at whether there is one":     {"HEAD", "/picture", nil, 200},
		"nothing that is not there":          {"GET", "/assets/page.js", nil, 404},
		"nothing above":                      {"GET", "/..%2fserve.go", nil, 404},
		"nothing is written":                 {"POST", "/picture", nil, 405},
		"nothing is deleted":                 {"DELETE", "/", nil, 405},
		"not to the script of another site":  {"GET", "/picture", header("Sec-Fetch-Site", "cross-site"), 403},
		"to the page's own":                  {"GET", "/picture", header("Sec-Fetch-Site", "same-origin"), 200},
		"to who types the address":           {"GET", "/picture", header("Sec-Fetch-Site", "none"), 200},
		"not to a name that was led here":    {"GET", "/picture", func(q *http.Request) { q.Host = "evil.example:8082" }, 421},
		"nor the page":                       {"GET", "/", func(q *http.Request) { q.Host = "127.0.0.1.evil.example" }, 421},
		"nor to the script of a neighbour":   {"GET", "/picture", header("Sec-Fetch-Site", "same-site"), 403},
		"a link on another site leads here":  {"GET", "/", header("Sec-Fetch-Site", "cross-site"), 200},
		"not to a name that ends like ours":  {"GET", "/picture", func(q *http.Request) { q.Host = "evil.localhost:8082" }, 421},
		"to localhost":                       {"GET", "/picture", func(q *http.Request) { q.Host = "localhost:8082" }, 200},
		"however it is written":              {"GET", "/picture", func(q *http.Request) { q.Host = "LocalHost:8082" }, 200},
		"to the address of the newer kind":   {"GET", "/picture", func(q *http.Request) { q.Host = "[::1]:8082" }, 200},
		"not to who has no name at all":      {"GET", "/picture", func(q *http.Request) { q.Host = "0.0.0.0:8082" }, 421},
		"preflights of others get no favour": {"OPTIONS", "/picture", header("Origin", "https://evil.example"), 405},
	} {
		t.Run(name, func(t *testing.T) {
			r := ask(t, tc.method, server.URL+tc.path, tc.edit)
			body, _ := io.ReadAll(r.Body)
			if r.StatusCode != tc.want {
				t.Errorf("status %d, want %d: %s", r.StatusCode, tc.want, body)
			}
			if r.StatusCode == 421 {
				return // it is not even answered by the page
			}
			for header, want := range map[string]string{
				"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer",
				"Cross-Origin-Resource-Policy": "same-origin", "Cross-Origin-Opener-Policy": "same-origin",
			} {
				if got := r.Header.Get(header); !strings.Contains(got, want) {
					t.Errorf("%s: %q, want %q", header, got, want)
				}
			}
			if got, may := r.Header.Get("Allow"), tc.want == http.StatusMethodNotAllowed; (got == "GET, HEAD") != may {
				t.Errorf("it says that %q is allowed", got)
			}
			if got := r.Header.Values("Set-Cookie"); got != nil {
				t.Errorf("it sets cookies: %q", got)
			}
			if got := r.Header.Get("Access-Control-Allow-Origin"); got != "" {
				t.Errorf("it lets others read: %q", got)
			}
			if tc.method == "HEAD" && len(body) > 0 {
				t.Errorf("HEAD has a body: %q", body)
			}
		})
	}
	for directive := range strings.SplitSeq(policy, "; ") {
		if name, from, _ := strings.Cut(directive, " "); from != "'none'" && (from != "'self'" || !strings.HasSuffix(name, "-src")) {
			t.Errorf("the policy lets in what it should not: %s", directive)
		}
	}
	for _, want := range []string{"default-src", "base-uri", "form-action", "frame-ancestors"} {
		if !strings.Contains(policy, want+" 'none'") {
			t.Errorf("the policy says nothing of %s: %s", want, policy)
		}
	}
}

// TestThePageHasNothingFromElsewhere reads what is embedded.
func TestThePageHasNothingFromElsewhere(t *testing.T) {
	known := map[string]bool{}
	for _, f := range files {
		known[f.name] = true
	}
	elsewhere := regexp.MustCompile(`(?i)(https?:)?//[a-z0-9.-]+\.[a-z]{2,}|innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|\son[a-z]+=|style="|localStorage|sessionStorage|document\.cookie`)
	err := fs.WalkDir(assets, "assets", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		if !known[entry.Name()] {
			t.Errorf("%s is embedded and not served", path)
		}
		text, err := assets.ReadFile(path)
		for _, found := range elsewhere.FindAllString(strings.ReplaceAll(string(text), "http://www.w3.org/2000/svg", ""), -1) {
			t.Errorf("%s has %q", path, found)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestTheGuardStandsBeforeThePictureAndNothingElse(t *testing.T) {
	s := service(newTown())
	server := served(t, s, s.Guarded(func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Bearer good" {
				http.Error(w, "who are you", http.StatusUnauthorized)
				return
			}
			h.ServeHTTP(w, r)
		})
	}))
	for path, want := range map[string]int{"/": 200, "/page.js": 200, "/picture": 401} {
		if r := ask(t, "GET", server.URL+path, func(q *http.Request) { q.Host = "10.0.0.1:8082" }); r.StatusCode != want {
			t.Errorf("%s without a token: status %d, want %d", path, r.StatusCode, want)
		}
	}
	good := func(q *http.Request) { q.Header.Set("Authorization", "Bearer good") }
	if r := ask(t, "GET", server.URL+"/picture", good); r.StatusCode != 200 || r.Header.Get("Content-Security-Policy") != policy {
		t.Errorf("the picture with a token: status %d, %v", r.StatusCode, r.Header)
	}
	if r := ask(t, "POST", server.URL+"/picture", good); r.StatusCode != 405 {
		t.Errorf("who has a token may write: status %d", r.StatusCode)
	}
}

// A stream reads events.
type stream struct {
	t     *testing.T
	lines *bufio.Scanner
}

func open(t *testing.T, url string, edit func(*http.Request)) *stream {
	t.Helper()
	r := ask(t, "GET", url+"/picture", func(q *http.Request) {
		q.Header.Set("Accept", "text/event-stream")
		if edit != nil {
			edit(q)
		}
	})
	if r.StatusCode != 200 {
		t.Fatalf("status %d", r.StatusCode)
	}
	var body io.Reader = r.Body
	if r.Header.Get("Content-Encoding") == "gzip" {
		zip, err := gzip.NewReader(body)
		if err != nil {
			t.Fatal(err)
		}
		body = zip
	}
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, 64<<20)
	return &stream{t, lines}
}

// next returns the next event with its data.
func (s *stream) next() (event string, data map[string]json.RawMessage) {
	s.t.Helper()
	for s.lines.Scan() {
		line := s.lines.Text()
		if name, ok := strings.CutPrefix(line, "event: "); ok {
			event = name
		}
		if text, ok := strings.CutPrefix(line, "data: "); ok {
			if err := json.Unmarshal([]byte(text), &data); err != nil {
				s.t.Fatalf("%s: %v", text, err)
			}
			return event, data
		}
	}
	s.t.Fatalf("the stream has ended: %v", s.lines.Err())
	return "", nil
}

func TestWhoLooksGetsThePictureAndThenWhatChanges(t *testing.T) {
	for name, edit := range map[string]func(*http.Request){"plain": nil, "zipped": func(q *http.Request) { q.Header.Set("Accept-Encoding", "gzip") }} {
		t.Run(name, func(t *testing.T) {
			w := newTown()
			w.node("a")
			s := service(w)
			in := open(t, served(t, s, s.Open()).URL, edit)
			event, data := in.next()
			if event != "picture" || !strings.Contains(string(data["nodes"]), `"a"`) {
				t.Fatalf("first came %s: %s", event, data)
			}
			w.node("b")
			if event, data = in.next(); event != "changes" || strings.Contains(string(data["put"]), `"a"`) || !strings.Contains(string(data["put"]), `"b"`) || data["waiting"] != nil {
				t.Errorf("then came %s: %s", event, data)
			}
			s.Journal.Add(journal.Record{Act: journal.Opened, Text: "</script><b>"})
			if event, data = in.next(); event != "changes" || data["put"] != nil || !strings.Contains(string(data["decisions"]), `\u003c/script\u003e`) {
				t.Errorf("then came %s: %s", event, data)
			}
		})
	}
}

// TestWhoReadsSlowlyHoldsNobodyUp has a viewer that reads nothing, beside one that does.
func TestWhoReadsSlowlyHoldsNobodyUp(t *testing.T) {
	w := newTown()
	for i := range 2000 {
		w.node(fmt.Sprintf("node-%04d", i))
	}
	s := service(w)
	server := served(t, s, s.Open())
	slow, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	fmt.Fprintf(slow, "GET /picture HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n")
	in := open(t, server.URL, nil)
	in.next()
	for i := range 3 {
		w.node(fmt.Sprint("new-", i))
		if event, data := in.next(); event != "changes" || !strings.Contains(string(data["put"]), fmt.Sprint("new-", i)) {
			t.Errorf("came %s", event)
		}
	}
}

// TestAStreamOutlastsTheLimitsOfItsListener has limits as the controller's listeners have them, only shorter: a busy machine keeps them yet.
func TestAStreamOutlastsTheLimitsOfItsListener(t *testing.T) {
	w := newTown()
	s := service(w)
	ctx, stop := context.WithCancel(t.Context())
	var runs sync.WaitGroup
	runs.Go(func() { _ = s.Run(ctx) })
	server := httptest.NewUnstartedServer(s.Open())
	server.Config.ReadTimeout, server.Config.WriteTimeout = 3*time.Second, 3*time.Second
	server.Start()
	defer server.Close()
	defer runs.Wait()
	defer stop()
	in := open(t, server.URL, nil)
	in.next()
	for i := range 2 {
		time.Sleep(3200 * time.Millisecond)
		w.node(fmt.Sprint("n", i))
		if event, _ := in.next(); event != "changes" {
			t.Errorf("came %s", event)
		}
	}
}

// patient is a viewer whose connection tells until when it is waited for.
type patient struct {
	*httptest.ResponseRecorder
	most time.Duration
}

func (p *patient) SetWriteDeadline(at time.Time) error {
	p.most = max(p.most, time.Until(at))
	return nil
}

// Whoever looks at a fleet in which nothing happens hears now and then that it is so, and has to ask again after a while: whether they may still look is asked then.
func TestAnAnswerEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := service(newTown())
		viewer := &patient{ResponseRecorder: httptest.NewRecorder()}
		q := httptest.NewRequestWithContext(t.Context(), "GET", "/picture", nil)
		began := time.Now()
		if err := s.stream(q, newWriter(viewer, q)); err != nil {
			t.Fatal(err)
		}
		if lasted := time.Since(began); lasted < 4*time.Minute || lasted > 6*time.Minute {
			t.Errorf("it lasted %v", lasted)
		}
		if text := viewer.Body.String(); !strings.HasPrefix(text, ": hello\n\n") {
			t.Errorf("a viewer is not told at once that it is let in: %.40q", text)
		}
		if heard := strings.Count(viewer.Body.String(), ": nothing new\n\n"); heard < 10 || heard > 30 {
			t.Errorf("the viewer heard %d times that nothing is new", heard)
		}
		if viewer.most > 30*time.Second {
			t.Errorf("a viewer who does not read is waited for %v", viewer.most)
		}
	})
}

func TestWhoMissedChangesGetsThePictureAgain(t *testing.T) {
	w := newTown()
	s := service(w)
	leave, _ := s.enter()
	defer leave()
	for i := range 3 {
		w.node(fmt.Sprint("n", i))
		s.turn(t.Context(), noon.Add(time.Duration(i)*time.Second))
	}
	f, _ := s.frameAfter(t.Context(), 1, time.Second)
	if f == nil || f.seq != 3 {
		t.Fatalf("got %+v, want the third", f)
	}
	for seen, want := range map[uint64]string{0: "picture", 1: "picture", 2: "changes", 7: "picture"} {
		if event, _ := f.since(seen); event != want {
			t.Errorf("who saw %d last hears %s, want %s", seen, event, want)
		}
	}
	var whole picture
	if err := json.Unmarshal(f.whole(), &whole); err != nil || len(whole.Nodes) != 3 {
		t.Errorf("it has %d nodes, %v", len(whole.Nodes), err)
	}
}

func TestSomeMayLookAndNoMore(t *testing.T) {
	s := service(newTown())
	server := served(t, s, s.Open())
	var leave func()
	for range mostViewers {
		l, ok := s.enter()
		if !ok {
			t.Fatal("too few may look")
		}
		leave = l
	}
	if r := ask(t, "GET", server.URL+"/picture", nil); r.StatusCode != 503 || r.Header.Get("Retry-After") == "" {
		t.Errorf("one too many: status %d", r.StatusCode)
	}
	if r := ask(t, "HEAD", server.URL+"/picture", nil); r.StatusCode != 200 {
		t.Errorf("who only asks whether there is a picture takes a seat: status %d", r.StatusCode)
	}
	leave()
	for range 3 { // each in the seat of the one before
		r := ask(t, "GET", server.URL+"/picture", nil)
		if r.StatusCode != 200 {
			t.Errorf("once one has left: status %d", r.StatusCode)
		}
		if _, err := io.Copy(io.Discard, r.Body); err != nil { // its end comes when it has left
			t.Fatal(err)
		}
	}
}

// counted counts how often catalogues were asked for: once for each picture.
type counted struct {
	*town
	asked int
}

func (c *counted) Pools(ctx context.Context, snap *cluster.Snapshot) (map[string]engine.Pool, map[string]bool) {
	c.asked++
	return c.town.Pools(ctx, snap)
}

func TestNothingIsDrawnWithoutNeed(t *testing.T) {
	c := &counted{town: newTown()}
	s := service(c.town)
	s.Catalogs = c
	leave := func() {}
	for _, step := range []struct {
		what string
		at   time.Duration
		do   func()
		want int // pictures and prices so far
	}{
		{"the fleet's price is noted at once", 0, nil, 1},
		{"nobody looks", time.Second, func() { c.node("a") }, 1},
		{"the price is noted again", costEvery, nil, 2},
		{"somebody looks", costEvery + time.Second, func() { leave, _ = s.enter() }, 3},
		{"nothing has changed", costEvery + 10*time.Second, nil, 3},
		{"the picture is old", costEvery + 11*time.Second, nil, 4},
		{"a node came", costEvery + 12*time.Second, func() { c.node("b") }, 5},
		{"something was decided", costEvery + 13*time.Second, func() { s.Journal.Add(journal.Record{}) }, 6},
		{"something was said", costEvery + 14*time.Second, func() { s.Verdicts.Refuse(nil) }, 7},
		{"the price is noted, and shown", 2 * costEvery, nil, 8},
		{"nobody looks any more", 2*costEvery + time.Second, func() { leave(); c.node("c") }, 8},
		{"somebody else looks", 2*costEvery + 2*time.Second, func() { leave, _ = s.enter() }, 9},
	} {
		if step.do != nil {
			step.do()
		}
		s.turn(t.Context(), noon.Add(step.at))
		if c.asked != step.want {
			t.Errorf("%s: drawn %d times, want %d", step.what, c.asked, step.want)
		}
	}
	leave()
	if s.frame != nil {
		t.Error("the picture is kept although nobody looks")
	}
}

func TestCommitmentsAreInThePicture(t *testing.T) {
	w := newTown()
	s := service(w)
	leave, _ := s.enter()
	defer leave()
	for _, books := range []*commitment.Books{nil, {Verdicts: []commitment.Verdict{{Object: &v1alpha1.CommitmentDiscount{}, State: commitment.Certain, Used: 1}}}} {
		w.books, s.painter.last = books, nil
		s.turn(t.Context(), noon)
		if got, want := s.painter.last.Head.Commitments, sentence.Commitments(books); got != want || (got == "") != (books == nil) {
			t.Errorf("the page says %q, want %q", got, want)
		}
	}
}

// In a bubble time stands still while anybody is busy: a loop that looks without rest would never get to the end.
func TestWhoLooksAtAQuietFleetKeepsNobodyBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counted{town: newTown()}
		s := service(c.town)
		s.Catalogs, s.pace = c, everyPicture
		ctx, stop := context.WithCancel(t.Context())
		var runs sync.WaitGroup
		runs.Go(func() { _ = s.Run(ctx) })
		leave, _ := s.enter()
		time.Sleep(5*time.Second + time.Millisecond)
		before := c.asked
		c.node("a")
		time.Sleep(everyPicture / looksAPicture)
		if c.asked != before+1 {
			t.Errorf("drawn %d times soon after a node came, want once", c.asked-before)
		}
		leave()
		stop()
		runs.Wait()
	})
}

// Of what was decided the newest is kept, as much as is shown, however much there was between two looks.
func TestTheDecisionsStayBounded(t *testing.T) {
	s := service(newTown())
	leave, _ := s.enter()
	defer leave()
	for look := range 3 {
		for range 2 * mostDecisions {
			s.Journal.Add(journal.Record{Act: journal.Placed})
		}
		s.turn(t.Context(), noon.Add(time.Duration(look)*time.Minute))
		newest := uint64(2 * mostDecisions * (look + 1))
		if got := s.painter.records; len(got) != mostDecisions || got[0].Seq != newest-mostDecisions+1 || got[len(got)-1].Seq != newest {
			t.Errorf("look %d: %d records from %d to %d, want the newest %d", look, len(got), got[0].Seq, got[len(got)-1].Seq, mostDecisions)
		}
	}
}

// Who understands zipped answers is told in plain words that there is none.
func TestThatThereIsNoPictureIsSaidInPlainWords(t *testing.T) {
	s := service(newTown())
	close(s.ended) // nobody draws
	full := service(newTown())
	full.viewers = mostViewers
	for want, handler := range map[string]http.Handler{"there is no picture yet; try again\n": s.Open(), "too many are looking; try again later\n": full.Open()} {
		t.Run(want, func(t *testing.T) {
			w := httptest.NewRecorder()
			q := httptest.NewRequestWithContext(t.Context(), "GET", "http://localhost/picture", nil)
			q.Header.Set("Accept-Encoding", "gzip")
			handler.ServeHTTP(w, q)
			if got := w.Header().Get("Content-Encoding"); w.Code != http.StatusServiceUnavailable || got != "" || w.Body.String() != want {
				t.Errorf("status %d, encoded %q: %q", w.Code, got, w.Body)
			}
			if kind := w.Header().Get("Content-Type"); !strings.HasPrefix(kind, "text/plain") {
				t.Errorf("it is sent as %s", kind)
			}
		})
	}
}

func TestTheSeriesStaysBounded(t *testing.T) {
	w := newTown()
	w.node("a")
	s := service(w)
	for at := time.Duration(0); at < 9*day; at += costEvery {
		s.turn(t.Context(), noon.Add(at))
	}
	costs := s.painter.costs
	if n, most := len(costs), int(hour/costEvery+day/coarse+week/coarser)+5; n > most || n < most/2 {
		t.Errorf("%d points, want %d at most", n, most)
	}
	if span := costs[len(costs)-1].At.Sub(costs[0].At); span < week-2*coarser || span > week {
		t.Errorf("they span %v, want a week", span)
	}
}

// The price is what the fleet costs; the target is what is left of it when all moved that may; the bound is that of the last plan.
func TestWhatIsNotedOfThePrice(t *testing.T) {
	w := newTown()
	w.node("a")
	w.node("b")
	w.node("c")
	s := service(w)
	s.Verdicts.Keep(board.Disruption{Before: cloud.FromDollars(0.2), Target: cloud.FromDollars(0.15)})
	s.Journal.Add(journal.Record{Act: journal.Planned, CostPerHour: 0.7, BoundPerHour: 0.6})
	s.Journal.Add(journal.Record{Act: journal.Opened, CostPerHour: 5, BoundPerHour: 5})
	s.turn(t.Context(), noon)
	if got := s.painter.costs; len(got) != 1 || round(got[0].PerHour) != 0.3 || round(got[0].Target) != 0.25 {
		t.Errorf("noted %+v", got)
	}
	unread := service(&town{cluster.NewStore(), nil, nil})
	unread.turn(t.Context(), noon)
	if got := unread.painter.costs; len(got) != 0 {
		t.Errorf("a cluster that was not read to its end costs %+v", got)
	}
}

// Whoever begins to look again gets a whole picture: no changes of one that they never saw are worked out.
func TestWhoComesBackGetsAWholePicture(t *testing.T) {
	w := newTown()
	s := service(w)
	for i := range 2 {
		leave, _ := s.enter()
		s.turn(t.Context(), noon.Add(time.Duration(i)*time.Minute))
		if s.frame == nil || s.frame.changes != nil {
			t.Errorf("look %d: %+v", i, s.frame)
		}
		leave()
	}
}

// Nobody waits for a viewer that has gone, and nothing is kept for it.
func TestWhoHasGoneIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := service(newTown())
		ctx, gone := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, gone)
		began := time.Now()
		if f, over := s.frameAfter(ctx, 0, time.Hour); f != nil || !over || time.Since(began) > time.Second {
			t.Errorf("after %v: %v, over %t", time.Since(began), f, over)
		}
		s.publish(&frame{seq: 1}) // it was drawn while the last one left
		if s.frame != nil {
			t.Error("a picture is kept that nobody looks at")
		}
	})
}

func TestWhatIsSentIsSmall(t *testing.T) {
	viewer := &patient{ResponseRecorder: httptest.NewRecorder()}
	q := httptest.NewRequestWithContext(t.Context(), "GET", "/picture", nil)
	q.Header.Set("Accept-Encoding", "gzip")
	out := newWriter(viewer, q)
	if err := out.write([]byte(strings.Repeat(`{"name":"node"}`, 10_000))); err != nil {
		t.Fatal(err)
	}
	out.close()
	if sent := viewer.Body.Len(); sent > 10_000 {
		t.Errorf("%d bytes for 150,000", sent)
	}
}

func TestAStandbyShowsItsFleet(t *testing.T) {
	w := newTown()
	w.node("a")
	s := service(w)
	s.Leading = func() bool { return false }
	_, data := open(t, served(t, s, s.Open()).URL, nil).next()
	if !strings.Contains(string(data["head"]), "does not lead") || !strings.Contains(string(data["nodes"]), `"a"`) {
		t.Errorf("head %s, nodes %s", data["head"], data["nodes"])
	}
}

func TestViewersAreToldWhenItEnds(t *testing.T) {
	s := service(newTown())
	ctx, stop := context.WithCancel(t.Context())
	ran := make(chan struct{})
	go func() { defer close(ran); _ = s.Run(ctx) }()
	server := httptest.NewServer(s.Open())
	defer server.Close()
	in := open(t, server.URL, nil)
	in.next()
	stop()
	<-ran
	for in.lines.Scan() {
	}
	if err := in.lines.Err(); err != nil {
		t.Errorf("the stream did not end as it should: %v", err)
	}
}

func TestAPreviewIsPlannedForWhomTheGuardLetsThrough(t *testing.T) {
	s := service(newTown())
	var asked []string
	s.Preview = func(_ context.Context, manifests []byte) ([]byte, error) {
		asked = append(asked, string(manifests))
		if string(manifests) == "bad" {
			return nil, errors.New("line:1: bad")
		}
		return []byte(`{"claims":[]}`), nil
	}
	guarded := func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Bearer good" || r.Method != "GET" || r.URL.Path != Path {
				http.Error(w, "who are you", http.StatusUnauthorized)
				return
			}
			h.ServeHTTP(w, r)
		})
	}
	for name, tc := range map[string]struct {
		method, token, kind, site, body string
		status                          int
		says                            string
	}{
		"with the right to the picture": {method: "POST", token: "good", kind: "application/yaml", body: "pods", status: 200, says: `{"claims":[]}`},
		"without a token":               {method: "POST", kind: "application/yaml", status: 401},
		"by reading":                    {method: "GET", token: "good", status: 405},
		"by a form of another site":     {method: "POST", token: "good", kind: "text/plain", status: 415},
		"by a script of another site":   {method: "POST", token: "good", kind: "application/yaml", site: "cross-site", status: 403},
		"of manifests with a mistake":   {method: "POST", token: "good", kind: "application/yaml", body: "bad", status: 422, says: "line:1: bad"},
		"of too many manifests":         {method: "POST", token: "good", kind: "application/yaml", body: strings.Repeat("x", 256<<10+1), status: 413, says: "256 KiB"},
	} {
		t.Run(name, func(t *testing.T) {
			q := httptest.NewRequest(tc.method, "http://localhost/preview", strings.NewReader(tc.body))
			q.Header.Set("Authorization", "Bearer "+tc.token)
			q.Header.Set("Content-Type", tc.kind)
			q.Header.Set("Sec-Fetch-Site", tc.site)
			w := httptest.NewRecorder()
			s.Guarded(guarded).ServeHTTP(w, q)
			if w.Code != tc.status || !strings.Contains(w.Body.String(), tc.says) {
				t.Errorf("status %d, %s", w.Code, w.Body)
			}
		})
	}
	s.Preview = nil
	q := httptest.NewRequest("POST", "http://localhost/preview", strings.NewReader("pods"))
	q.Header.Set("Content-Type", "application/yaml")
	w := httptest.NewRecorder()
	if s.Open().ServeHTTP(w, q); w.Code != http.StatusNotImplemented {
		t.Errorf("without a planner: status %d, %s", w.Code, w.Body)
	}
	slices.Sort(asked)
	if !slices.Equal(asked, []string{"bad", "pods"}) {
		t.Errorf("planned %q", asked)
	}
}

// A viewer who sends the manifests slowly does not keep the preview from others for long.
func TestAPreviewWaitsForItsManifestsNoLongerThanForAReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := service(newTown())
		s.Preview = func(context.Context, []byte) ([]byte, error) { return []byte("{}"), nil }
		here, there := net.Pipe()
		server := &http.Server{Handler: s.Open()}
		done := make(chan struct{})
		go func() { defer close(done); _ = server.Serve(&oneConnection{conn: there, closed: make(chan struct{})}) }()
		go fmt.Fprint(here, "POST /preview HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/yaml\r\nContent-Length: 10\r\n\r\nslow")
		begin := time.Now()
		answer, err := http.ReadResponse(bufio.NewReader(here), nil)
		if err != nil || answer.StatusCode != http.StatusBadRequest || time.Since(begin) != viewerTime {
			t.Errorf("after %v: %v, %v", time.Since(begin), answer, err)
		}
		if !s.previewing.TryLock() {
			t.Error("the preview is still taken")
		}
		here.Close()
		server.Close()
		<-done
	})
}

// oneConnection is a listener to which one client has connected.
type oneConnection struct {
	conn   net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *oneConnection) Accept() (net.Conn, error) {
	if c := l.conn; c != nil {
		l.conn = nil
		return c, nil
	}
	<-l.closed
	return nil, net.ErrClosed
}

func (l *oneConnection) Close() error   { l.once.Do(func() { close(l.closed) }); return nil }
func (l *oneConnection) Addr() net.Addr { return &net.TCPAddr{} }

func TestOnePreviewAtATime(t *testing.T) {
	s := service(newTown())
	begun, goOn := make(chan struct{}), make(chan struct{})
	s.Preview = func(context.Context, []byte) ([]byte, error) {
		close(begun)
		<-goOn
		return nil, nil
	}
	preview := func() int {
		q := httptest.NewRequest("POST", "http://localhost/preview", strings.NewReader("pods"))
		q.Header.Set("Content-Type", "application/yaml")
		w := httptest.NewRecorder()
		s.Open().ServeHTTP(w, q)
		return w.Code
	}
	first := make(chan int)
	go func() { first <- preview() }()
	<-begun
	if code := preview(); code != http.StatusTooManyRequests {
		t.Errorf("a second preview is answered with %d", code)
	}
	close(goOn)
	if code := <-first; code != 200 {
		t.Errorf("the first is answered with %d", code)
	}
}
