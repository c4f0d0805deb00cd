// Package budget evaluates the disruption budgets of a pool: how many of its nodes may be disrupted at the same time, for a reason, now.
//
// Budgets fail closed: if a budget cannot be parsed, no node may be disrupted for any reason, because its intention is not known.
package budget

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/kit/bounded"
)

// Unlimited is the number of nodes that a pool allows while none of its budgets is active.
const Unlimited = math.MaxInt32

// Allowed returns how many of a pool's nodes may be disrupted for a reason: the least number of all active budgets that apply. nodes is the
// size of the pool, for percentages. Nodes that are being disrupted already are not subtracted. With an error the number is 0.
func Allowed(budgets []v1.Budget, reason v1.DisruptionReason, nodes int, now time.Time) (int, error) {
	least := Unlimited
	for i := range budgets {
		b := &budgets[i]
		allowed, err := value(b, nodes, now)
		if err != nil {
			return 0, fmt.Errorf("budget %d: %w", i, err)
		}
		if b.Reasons == nil || slices.Contains(b.Reasons, reason) {
			least = min(least, allowed)
		}
	}
	return least, nil
}

// value returns the number of nodes that one budget allows; Unlimited if it is not active. Percentages are rounded up.
func value(b *v1.Budget, nodes int, now time.Time) (int, error) {
	on, err := active(b, now)
	if err != nil {
		return 0, err
	}
	if !on {
		return Unlimited, nil
	}
	text, percent := strings.CutSuffix(b.Nodes, "%")
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("nodes: %q is neither a number of nodes nor a percentage", b.Nodes)
	}
	if !percent {
		return min(n, Unlimited), nil
	}
	if n > 100 {
		return 0, fmt.Errorf("nodes: %q is more than all of them", b.Nodes)
	}
	return (nodes*n + 99) / 100, nil
}

// active reports whether a budget is active. Without a schedule it always is. With one it is for its duration after each time of the
// schedule, in UTC.
func active(b *v1.Budget, now time.Time) (bool, error) {
	if b.Schedule == nil && b.Duration == nil {
		return true, nil
	}
	if b.Schedule == nil || b.Duration == nil {
		return false, fmt.Errorf("schedule and duration go together")
	}
	on, _, err := Window(*b.Schedule, "UTC", b.Duration.Duration, now)
	return on, err
}

// Window reports whether a repeated window of time is open now: it opens at each time of a cron schedule in a time zone, and lasts for a
// duration. It also returns when the window opens next, zero if never.
func Window(schedule, zone string, lasts time.Duration, now time.Time) (open bool, next time.Time, err error) {
	times, err := bounded.ParseSchedule(schedule, zone)
	if err != nil {
		return false, time.Time{}, fmt.Errorf("schedule %q: %w", schedule, err)
	}
	from := times.Next(now.Add(-lasts))
	return !from.IsZero() && !from.After(now), times.Next(now), nil
}
