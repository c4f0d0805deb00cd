package watch

import (
	"context"
	"slices"
	"strings"
	"time"

	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/kit/sleep"
	"karpenter.sh/karpenter/internal/kit/watchhealth"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// judgeEvery is how often the feeds are looked at.
const judgeEvery = 5 * time.Second

// An Ear is the health of a feed of a kind that a provider reads itself.
type Ear struct {
	Kind string
	*watchhealth.Ear
}

// judge writes into the store which feeds have failed, until ctx ends.
func (w *Watch) judge(ctx context.Context) {
	var told []cluster.FailedFeed
	for sleep.For(ctx, judgeEvery) {
		now := w.failed()
		if slices.Equal(now, told) {
			continue
		}
		logFailed(ctx, told, now)
		w.store.Update(func(d *cluster.Draft) { d.FailedFeeds(now) })
		told = now
	}
}

// failed returns the feeds that do not work and that decisions need (which are not minor), sorted by kind.
func (w *Watch) failed() []cluster.FailedFeed {
	var out []cluster.FailedFeed
	for _, f := range w.feeds {
		if f.minor {
			continue
		}
		if since, why := f.ear.Failed(); why != "" {
			out = append(out, cluster.FailedFeed{Kind: f.name, Since: since, Why: why, Devices: f.devices})
		}
	}
	for _, e := range w.others {
		if since, why := e.Failed(); why != "" {
			out = append(out, cluster.FailedFeed{Kind: e.Kind, Since: since, Why: why})
		}
	}
	slices.SortFunc(out, func(a, b cluster.FailedFeed) int { return strings.Compare(a.Kind, b.Kind) })
	return out
}

// logFailed logs which feeds have failed, and which work again.
func logFailed(ctx context.Context, was, is []cluster.FailedFeed) {
	among := func(all []cluster.FailedFeed, kind string) bool {
		return slices.ContainsFunc(all, func(f cluster.FailedFeed) bool { return f.Kind == kind })
	}
	for _, f := range is {
		if !among(was, f.Kind) {
			stops := "every voluntary disruption"
			if f.Devices {
				stops = "plans for pods that use resource claims"
			}
			telemetry.Log(ctx).Error("a kind is no longer read, which stops some of what is done", "kind", f.Kind,
				"stops", stops, "since", f.Since, "error", f.Why)
		}
	}
	for _, f := range was {
		if !among(is, f.Kind) {
			telemetry.Log(ctx).Info("a kind is read again", "kind", f.Kind)
		}
	}
}
