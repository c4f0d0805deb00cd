package ledger

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/ledger"
	"karpenter.sh/karpenter/internal/core/savings"
	"karpenter.sh/karpenter/internal/core/tariff"
	"karpenter.sh/karpenter/internal/explain/board"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

const (
	// sampleEvery is the least time between two samples. restFactor bounds their work: after a sample the loop waits this many times as
	// long as the sample took, so that samples take less than one percent of a core.
	sampleEvery = 10 * time.Minute
	restFactor  = 120
	// mostHolders is how many workloads or PodDisruptionBudgets of one cause are named; the rest is "others".
	mostHolders = 10
)

// Sample works out now and then which restrictions make the fleet dearer than it has to be, and by how much, for the ledger and the page.
// Until the next sample the ledger charges these amounts. It needs no ConfigMap.
func (l *Ledger) Sample(ctx context.Context) error {
	next := time.Now().Add(ledger.WriteEvery) // a process that has just begun does not know all prices
	l.Metrics.Repeat(ctx, telemetry.Chore{Name: "ledger.sample", What: "asking what the fleet could cost",
		Failed: "what the fleet could cost is not known", Every: ledger.WriteEvery, Turn: func(ctx context.Context, now time.Time) error {
			if now.Before(next) {
				return nil
			}
			l.sample(ctx, now)
			next = now.Add(max(sampleEvery, restFactor*time.Since(now)))
			return nil
		}})
	return nil
}

// sample asks the engine what the fleet could cost without restrictions, and sets l.missed.
func (l *Ledger) sample(ctx context.Context, now time.Time) {
	snap := l.Store.Snapshot()
	pools, notReady := l.Catalogs.Pools(ctx, snap)
	q := engine.Question{Snap: snap, Settings: l.settings.Engine, Now: now, Ended: func() bool { return ctx.Err() != nil }}
	for _, name := range slices.Sorted(maps.Keys(pools)) {
		if !notReady[name] {
			q.Pools = append(q.Pools, pools[name])
		}
	}
	if !snap.Synced() || len(q.Pools) == 0 {
		return
	}
	region, commitments := "", []tariff.Commitment(nil)
	if books := l.Catalogs.Commitments(ctx, snap, now); books != nil && books.All != nil {
		region, commitments = books.All.Region, books.All.Commitments
	}
	report := savings.Of(q, l.Engine, region, commitments)
	if ctx.Err() != nil {
		return // the plans were cut short, so their bills are too high
	}
	l.Verdicts.Save(board.Savings{At: now, Report: report})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.missed = causes(report)
}

// A holder is a cause, and the workload or PodDisruptionBudget that holds nodes, if it is one.
type holder struct {
	cause savings.Cause
	by    string
}

func (h holder) String() string { return strings.TrimSpace(string(h.cause) + " " + h.by) }

// causes returns what each holder costs in an hour. The cost of a cause with several holders is split by the cost of what each holds.
func causes(r *savings.Report) map[holder]cloud.NanoUSD {
	out := map[holder]cloud.NanoUSD{}
	for _, part := range r.Gap {
		if part.PerHour == 0 {
			continue
		}
		if len(part.Held) == 0 {
			out[holder{cause: part.Cause}] += part.PerHour
		}
		shares := make([]ledger.Part, len(part.Held))
		for i := range shares {
			shares[i].Cost = part.Held[i]
		}
		for i, cost := range ledger.Split(part.PerHour, shares) {
			by := "others"
			if i < mostHolders {
				by = part.By[i]
			}
			out[holder{part.Cause, by}] += cost
		}
	}
	return out
}
