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

// An Ear is the feed of a provider of a kind, as judged here.
type Ear struct {
	Kind string
	*watchhealth.Ear
}

// judge tells the store which feeds have failed, until ctx ends.
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

// failed are the feeds that decisions need and that do not work, by name.
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
