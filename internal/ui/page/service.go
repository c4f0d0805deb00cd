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
	// Leave plans for the pods of a node as if it left now; nil for a page without.
	Leave func(ctx context.Context, node string) (*engine.Plan, error)
	// Preview plans for pods of manifests and answers with JSON; nil for a page without.
	Preview func(ctx context.Context, manifests []byte) ([]byte, error)
}

// A Service draws pictures while it has viewers.
type Service struct {
	Deps
	pace       time.Duration // everyPicture; less in tests that serve for real
	painter    painter
	previewing sync.Mutex // one preview, or plan for a node that leaves, at a time

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

// A basis holds the versions of everything that a picture is made of. If it is equal, the picture is too, but for
// what depends on time.
type basis struct {
	news, records, verdict uint64
	leading                bool
}

// New returns a service without viewers.
func New(d Deps) *Service {
	return &Service{Deps: d, pace: everyPicture, news: make(chan struct{}), wake: make(chan struct{}, 1), ended: make(chan struct{})}
}

// Run draws pictures until ctx ends. Without viewers it sleeps until the next moment of the series is due, or a
// viewer comes.
func (s *Service) Run(ctx context.Context) error {
	ctx = telemetry.WithController(ctx, loopName)
	watched := s.Metrics.Loop(loopName, 1)
	defer s.Metrics.End(watched)
	defer close(s.ended)
	for ctx.Err() == nil {
		watched.Turn(ctx, "drawing the page", func(ctx context.Context) error { s.turn(ctx, time.Now()); return nil })
		if looked, _ := s.audience(); !looked {
			watched.Wait(ctx, max(s.pace, time.Until(s.painter.costs.next())), s.wake)
		}
		if !sleep.For(ctx, max(time.Until(s.painter.drawn.Add(s.pace)), s.pace/looksAPicture)) {
			break
		}
	}
	return nil
}

// audience reports whether there are viewers (looked), and whether there is no frame for them yet (blank).
func (s *Service) audience() (looked, blank bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.viewers > 0, s.frame == nil
}

// turn adds a moment to the series when one is due, and draws a picture if there are viewers and news.
func (s *Service) turn(ctx context.Context, now time.Time) {
	p := &s.painter
	looked, blank := s.audience()
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
	s.takeOlder()
	pools, _ := s.Catalogs.Pools(ctx, snap)
	in := input{Snap: snap, Pools: pools, Rows: p.fleet.Read(snap, pools), Verdict: view, Records: p.records,
		Plan: p.plan, Leading: is.leading, Now: now}
	if clearGuessedPrices(in.Rows, pools) {
		noting = false
	}
	if noting {
		p.costs, p.fresh = p.costs.add(momentOf(in, p.fresh)), nil
		s.mu.Lock()
		s.kept = p.costs
		s.mu.Unlock()
	}
	if !looked {
		return
	}
	in.Costs, in.Commitments = p.costs, sentence.Commitments(s.Catalogs.Commitments(ctx, snap, now))
	picture := draw(in)
	s.publish(p.next(&picture, now))
	p.basis, p.drawn = is, now
}

// Restore gives the service what Kept returned in an earlier process. Text that cannot be read is ignored.
func (s *Service) Restore(text []byte) {
	var older series
	if json.Unmarshal(text, &older) == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.older = older
	}
}

// Kept returns the series of costs as JSON for the next process, nil if it is empty.
func (s *Service) Kept() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.kept) == 0 {
		return nil
	}
	return encode(s.kept)
}

// takeOlder puts the series of an earlier process before that of this one. Viewers then get a whole picture.
func (s *Service) takeOlder() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.older) > 0 {
		s.painter.costs, s.older, s.painter.last = s.painter.costs.withOlder(s.older), nil, nil
	}
}

// read adds the new records of the journal.
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

// newest returns the number of the newest record, 0 if there is none.
func (p *painter) newest() uint64 {
	if len(p.records) == 0 {
		return 0
	}
	return p.records[len(p.records)-1].Seq
}

// next returns the frame of a picture, with the changes from the one before. The whole picture is encoded only when a
// viewer needs it.
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

// An envelope is the number of a picture and its time.
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

// publish gives a frame to all viewers.
func (s *Service) publish(f *frame) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.viewers == 0 {
		return
	}
	s.frame = f
	close(s.news)
	s.news = make(chan struct{})
}

// enter counts one more viewer; ok is false if there are too many. leave must be called when the viewer goes.
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

// frameAfter returns a frame newer than seq. It waits for one up to most, then returns nil. over reports that no more
// will come: ctx has ended, or the service.
func (s *Service) frameAfter(ctx context.Context, seq uint64, most time.Duration) (f *frame, over bool) {
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
