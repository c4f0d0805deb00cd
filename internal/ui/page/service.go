package page

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/commitment"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/explain/board"
	"karpenter.sh/karpenter/internal/explain/sentence"
	"karpenter.sh/karpenter/internal/explain/view"
	"karpenter.sh/karpenter/internal/history/journal"
	"karpenter.sh/karpenter/internal/kit/sleep"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// loopName is what the service is called in metrics.
const loopName = "page"

const (
	// everyPicture is the least time between two pictures.
	everyPicture = time.Second
	// looksAPicture is how often one looks for news, in the time between two pictures, while there is none.
	looksAPicture = 10
	// pictureAge is how old a picture may get while nothing changes: some of it depends on the time.
	pictureAge = 10 * time.Second
)

// catalogs gives the instance types of pools, for what nodes cost.
type catalogs interface {
	Pools(ctx context.Context, snap *cluster.Snapshot) (pools map[string]engine.Pool, notReady map[string]bool)
	Commitments(ctx context.Context, snap *cluster.Snapshot, now time.Time) *commitment.Books
}

// Deps are what pictures are made of.
type Deps struct {
	Store    *cluster.Store
	Catalogs catalogs
	Journal  *journal.Journal
	Verdicts *board.Board
	Metrics  *telemetry.Metrics
	Leading  func() bool // whether this replica acts
	// Preview plans for pods of manifests and answers with JSON; nil for a page without.
	Preview func(ctx context.Context, manifests []byte) ([]byte, error)
}

// A Service draws pictures while it has viewers.
type Service struct {
	Deps
	pace       time.Duration // everyPicture; less in tests that serve for real
	painter    painter
	previewing sync.Mutex // one preview at a time

	mu      sync.Mutex
	older   series // of an earlier process, until the loop takes it over
	kept    series // as far as it was noted
	viewers int
	frame   *frame        // the newest; nil without viewers
	news    chan struct{} // closed when there is a newer one
	wake    chan struct{} // a viewer came
	ended   chan struct{} // closed when Run has returned
}

// A frame is a picture on its way to its viewers.
type frame struct {
	seq     uint64
	whole   func() []byte // the picture
	changes []byte        // what is different from the frame before
}

// painter is what the loop alone knows.
type painter struct {
	fleet   view.Reader
	records []journal.Record // the newest
	fresh   []journal.Record // those that no point of the series has counted yet
	plan    *journal.Record
	costs   series

	seq   uint64
	last  *picture
	drawn time.Time
	basis basis
}

// basis reports whether a picture would be another one.
type basis struct {
	news, records, verdict uint64
	leading                bool
}

// New returns a service without viewers.
func New(d Deps) *Service {
	return &Service{Deps: d, pace: everyPicture, news: make(chan struct{}), wake: make(chan struct{}, 1), ended: make(chan struct{})}
}

// Run draws until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	ctx = telemetry.WithController(ctx, loopName)
	watched := s.Metrics.Loop(loopName, 1)
	defer s.Metrics.End(watched)
	defer close(s.ended)
	for ctx.Err() == nil {
		watched.Turn(ctx, "drawing the page", func(ctx context.Context) error { s.turn(ctx, time.Now()); return nil })
		if looked, _ := s.watched(); !looked {
			watched.Wait(ctx, max(s.pace, time.Until(s.painter.costs.next())), s.wake)
		}
		if !sleep.For(ctx, max(time.Until(s.painter.drawn.Add(s.pace)), s.pace/looksAPicture)) {
			break
		}
	}
	return nil
}

// watched reports whether there are viewers, and whether they have nothing to look at yet.
func (s *Service) watched() (looked, blank bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.viewers > 0, s.frame == nil
}

// turn notes what the fleet costs when it is time, and draws if there are viewers and news.
func (s *Service) turn(ctx context.Context, now time.Time) {
	p := &s.painter
	looked, blank := s.watched()
	if blank {
		p.last = nil
	}
	snap, view := s.Store.Snapshot(), s.Verdicts.View()
	noting := snap.Synced() && !now.Before(p.costs.next())
	if !looked && !noting {
		return
	}
	p.read(s.Journal)
	is := basis{snap.News(), p.newest(), view.Version, s.Leading()}
	if !noting && p.last != nil && is == p.basis && now.Sub(p.drawn) < pictureAge {
		return
	}
	s.inherit()
	pools, _ := s.Catalogs.Pools(ctx, snap)
	in := input{Snap: snap, Pools: pools, Rows: p.fleet.Read(snap, pools), Verdict: view, Records: p.records,
		Plan: p.plan, Leading: is.leading, Now: now}
	if guessed(in.Rows, pools) {
		noting = false
	}
	if noting {
		p.costs, p.fresh = p.costs.add(point(in, p.fresh)), nil
		s.mu.Lock()
		s.kept = p.costs
		s.mu.Unlock()
	}
	if !looked {
		return
	}
	in.Costs, in.Commitments = p.costs, sentence.Commitments(s.Catalogs.Commitments(ctx, snap, now))
	picture := draw(in)
	s.show(p.next(&picture, now))
	p.basis, p.drawn = is, now
}

// Restore gives the service what Kept returned in an earlier process. What cannot be read is as nothing.
func (s *Service) Restore(text []byte) {
	var older series
	if json.Unmarshal(text, &older) == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.older = older
	}
}

// Kept returns what the fleet cost, as JSON, nil if nothing was noted.
func (s *Service) Kept() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.kept) == 0 {
		return nil
	}
	return encode(s.kept)
}

// inherit puts the series of an earlier process before that of this one. Viewers then get a whole picture.
func (s *Service) inherit() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.older) > 0 {
		s.painter.costs, s.older, s.painter.last = s.painter.costs.before(s.older), nil, nil
	}
}

// read takes over what is new in the journal.
func (p *painter) read(j *journal.Journal) {
	fresh := j.Select(journal.Query{After: p.newest()})
	for i := range fresh {
		if fresh[i].Act == journal.Planned {
			p.plan = &fresh[i]
		}
	}
	p.fresh = append(p.fresh, fresh...) // at most the journal's own bound, since points follow every 15 seconds
	p.records = append(p.records, fresh...)
	if more := len(p.records) - mostDecisions; more > 0 {
		p.records = append([]journal.Record(nil), p.records[more:]...)
	}
}

func (p *painter) newest() uint64 {
	if len(p.records) == 0 {
		return 0
	}
	return p.records[len(p.records)-1].Seq
}

// next makes the frame of a picture.
func (p *painter) next(is *picture, now time.Time) *frame {
	p.seq++
	e := envelope{p.seq, now.UTC()}
	f := &frame{seq: p.seq, whole: sync.OnceValue(func() []byte {
		return encode(struct {
			envelope
			*picture
		}{e, is})
	})}
	if p.last != nil {
		f.changes = encode(struct {
			envelope
			changes
		}{e, diff(p.last, is)})
	}
	p.last = is
	return f
}

// An envelope says which picture it is, and what the time was.
type envelope struct {
	Seq uint64    `json:"seq"`
	At  time.Time `json:"at"`
}

func encode(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // strings, numbers and times
	}
	return text
}

// show hands a frame to everybody who looks.
func (s *Service) show(f *frame) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.viewers == 0 {
		return
	}
	s.frame = f
	close(s.news)
	s.news = make(chan struct{})
}

// enter lets one more look, unless there are too many. What it returns must be called when they have seen enough.
func (s *Service) enter() (leave func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.viewers >= mostViewers {
		return nil, false
	}
	s.viewers++
	select {
	case s.wake <- struct{}{}:
	default:
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.viewers--; s.viewers == 0 {
			s.frame = nil
		}
	}, true
}

// after returns a frame that is newer than seq, waiting for it until ctx ends, or for so long; nil if there is none. over says that there
// will be no more.
func (s *Service) after(ctx context.Context, seq uint64, most time.Duration) (f *frame, over bool) {
	timer := time.NewTimer(most)
	defer timer.Stop()
	for {
		s.mu.Lock()
		f, news := s.frame, s.news
		s.mu.Unlock()
		if f != nil && f.seq > seq {
			return f, false
		}
		select {
		case <-news:
		case <-timer.C:
			return nil, false
		case <-ctx.Done():
			return nil, true
		case <-s.ended:
			return nil, true
		}
	}
}
