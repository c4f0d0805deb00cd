package sentence

import (
	"cmp"
	"fmt"
	"slices"

	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/core/commitment"
)

// commitmentTexts say why plans do not count on a commitment, or that they do.
var commitmentTexts = map[commitment.State]string{
	commitment.Certain: "plans count on it", commitment.NotStarted: "it has not begun", commitment.Ended: "it has ended",
	commitment.Ending:    "it ends in less than a week: no machine is bought for it, and no pod is moved for it",
	commitment.NotShared: "spec.share is missing; say how much of it this cluster may count on, such as 100%",
	commitment.NoRates:   "it covers no instance type that a NodePool can buy here; give spec.rates for the types, and check the scope",
	commitment.TooMany:   "plans count on the sixteen most valuable commitments only",
	commitment.Duplicate: "another CommitmentDiscount has the same id: one that a person wrote goes before one that is imported, " +
		"else the older",
	commitment.Stale: "it is imported, and the cloud has not named it in whole for a day; the log says what fails, or write it by hand. " +
		"Where nothing is imported any more, delete it",
}

// Commitment says why plans do not count on a commitment, or that they do.
func Commitment(v *commitment.Verdict) string {
	if v.Err != nil {
		return v.Err.Error()
	}
	return commitmentTexts[v.State]
}

// mostUnused is how many commitments with an unused part are named.
const mostUnused = 3

// Commitments says how much of all commitments is used, what the unused rest costs an hour, and why it is not used;
// "" if there are none.
func Commitments(b *commitment.Books) string {
	if b == nil {
		return ""
	}
	var idle []*commitment.Verdict
	unused, used, counted := cloud.NanoUSD(0), 0.0, 0
	for i := range b.Verdicts {
		v := &b.Verdicts[i]
		if v.Counted() {
			counted++
			used += v.Used
			unused += v.Unused
		}
		if !v.Counted() || v.Used < 0.995 {
			idle = append(idle, v)
		}
	}
	text := Count(len(b.Verdicts), "commitment") + ": "
	if counted == 0 {
		text += "none counts"
	} else {
		text += fmt.Sprintf("%.0f%% used on average, $%.4f/h unused, %.0f%% of on-demand machines covered", 100*used/float64(counted),
			unused.Dollars(), 100*b.Coverage)
	}
	slices.SortStableFunc(idle, func(x, y *commitment.Verdict) int { return cmp.Compare(y.Unused, x.Unused) })
	for _, v := range idle[:min(mostUnused, len(idle))] {
		text += fmt.Sprintf("; %s: %s", v.Object.Name, unusedText(v))
	}
	if more := len(idle) - mostUnused; more > 0 {
		text += fmt.Sprintf("; %d more", more)
	}
	return text
}

// unusedText says why a part of a commitment is not used.
func unusedText(v *commitment.Verdict) string {
	switch {
	case !v.Counted():
		return Commitment(v)
	case !v.Takers:
		return fmt.Sprintf("$%.4f/h unused, no on-demand machine of the cluster is of a type that it covers", v.Unused.Dollars())
	}
	return fmt.Sprintf("$%.4f/h unused, the on-demand machines that it covers use %.0f%%", v.Unused.Dollars(), 100*v.Used)
}
