package page

import (
	"cmp"
	"slices"
	"time"

	"karpenter.sh/karpenter/internal/explain/board"
)

// shownSavings is what the fleet could cost at least, as it was proven.
type shownSavings struct {
	At    time.Time   `json:"at"`
	Gap   float64     `json:"gap"` // dollars an hour that the fleet costs more than the least
	Parts []savedPart `json:"parts"`
}

// proofAge is how long a proof holds: the fleet changes meanwhile.
const proofAge = 3 * time.Hour

// A savedPart is a restriction, and what it costs.
type savedPart struct {
	Cause  string   `json:"cause"`
	PerDay float64  `json:"perDay"`
	By     []string `json:"by"` // the objects that hold nodes, the most expensive first
	More   int      `json:"more,omitempty"`
}

// gap returns how many dollars an hour the fleet costs more than the proven least. known is false without a recent proof.
func gap(s board.Savings, now time.Time) (perHour float64, known bool) {
	if s.Report == nil || s.Report.Today == 0 || now.Sub(s.At) > proofAge {
		return 0, false
	}
	return (s.Report.Today - s.Report.Least).Dollars(), true
}

// newShownSavings returns a proof as the page shows it, the most expensive restriction first; nil without a recent proof.
func newShownSavings(s board.Savings, now time.Time) *shownSavings {
	perHour, known := gap(s, now)
	if !known {
		return nil
	}
	out := &shownSavings{At: s.At, Gap: round(perHour), Parts: []savedPart{}}
	for _, p := range s.Report.Gap {
		day := round(24 * p.PerHour.Dollars())
		if day < leastShown {
			continue
		}
		by := append([]string{}, p.By[:min(mostNamed, len(p.By))]...)
		out.Parts = append(out.Parts, savedPart{string(p.Cause), day, by, len(p.By) - len(by)})
	}
	slices.SortStableFunc(out.Parts, func(a, b savedPart) int { return cmp.Compare(b.PerDay, a.PerDay) })
	return out
}

// leastShown is how many dollars a day a restriction must cost to be shown.
const leastShown = 0.01
