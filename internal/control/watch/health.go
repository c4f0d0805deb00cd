package watch

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/pause"
	"karpenter.sh/karpenter/internal/telemetry"
)

const (
	// errorsFor is how long a feed may meet nothing but errors.
	errorsFor = time.Minute
	// silentFor is how long nothing at all may be heard. Watches are renewed more often, also when nothing happens.
	silentFor = 11 * time.Minute
	// judgeEvery is how often the feeds are looked at.
	judgeEvery = 5 * time.Second
)

// health is what a feed knows of itself. Others may ask while it runs.
type health struct {
	mu      sync.Mutex
	heard   time.Time // when the server last showed that it tells us what happens
	failing time.Time // when the first error after that was met, zero if none was
	err     error     // that error
}

// hear notes that the feed works.
func (h *health) hear() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.heard, h.failing, h.err = time.Now(), time.Time{}, nil
}

// fail notes an error.
func (h *health) fail(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err == nil {
		h.failing, h.err = time.Now(), err
	}
}

// failed tells since when the feed has not worked and why, "" if it works.
func (h *health) failed() (since time.Time, why string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.err != nil && time.Since(h.failing) >= errorsFor:
		return h.heard, h.err.Error()
	case time.Since(h.heard) >= silentFor:
		return h.heard, fmt.Sprintf("the API server has been silent for more than %s", silentFor)
	}
	return time.Time{}, ""
}

// judge tells the store which feeds have failed, until ctx ends.
func (w *Watch) judge(ctx context.Context) {
	var told []cluster.FailedFeed
	for pause.For(ctx, judgeEvery) {
		now := w.failed()
		if slices.Equal(now, told) {
			continue
		}
		logFailed(ctx, told, now)
		w.store.Update(func(d *cluster.Draft) { d.FailedFeeds(now) })
		told = now
	}
}

// failed are the feeds that decisions need and that do not work, by name.
func (w *Watch) failed() []cluster.FailedFeed {
	var out []cluster.FailedFeed
	for _, f := range w.feeds {
		if f.minor {
			continue
		}
		if since, why := f.health.failed(); why != "" {
			out = append(out, cluster.FailedFeed{Kind: f.name, Since: since, Why: why})
		}
	}
	slices.SortFunc(out, func(a, b cluster.FailedFeed) int { return strings.Compare(a.Kind, b.Kind) })
	return out
}

func logFailed(ctx context.Context, was, is []cluster.FailedFeed) {
	among := func(all []cluster.FailedFeed, kind string) bool {
		return slices.ContainsFunc(all, func(f cluster.FailedFeed) bool { return f.Kind == kind })
	}
	for _, f := range is {
		if !among(was, f.Kind) {
			telemetry.Log(ctx).Error("a kind is no longer read, no node is disrupted voluntarily", "kind", f.Kind, "since", f.Since, "error", f.Why)
		}
	}
	for _, f := range was {
		if !among(is, f.Kind) {
			telemetry.Log(ctx).Info("a kind is read again", "kind", f.Kind)
		}
	}
}
