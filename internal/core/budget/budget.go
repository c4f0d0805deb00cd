// Package budget evaluates disruption budgets: how many nodes of a pool may go at a time, for a reason, now.
//
// Budgets fail closed: a budget that does not parse allows nothing, for any reason, because it is not known what it meant to protect.
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

// Unlimited is what a pool allows while none of its budgets is active.
const Unlimited = math.MaxInt32

// Allowed returns how many of a pool's nodes its budgets let go for reason: the least of all active budgets that apply.
// Nodes already on their way are not taken off. An error means 0.
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

// value is what one budget allows.
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

// active reports whether a budget is in force: always, unless it has a schedule; then from each time its schedule names, in UTC, for as
// long as its duration. Windows that overlap join.
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

// Window reports whether a time that comes again is open: from each time that a cron schedule names in a time zone, for so long. It also
// returns when it opens next, zero if it never does.
func Window(schedule, zone string, lasts time.Duration, now time.Time) (open bool, next time.Time, err error) {
	times, err := bounded.ParseSchedule(schedule, zone)
	if err != nil {
		return false, time.Time{}, fmt.Errorf("schedule %q: %w", schedule, err)
	}
	from := times.Next(now.Add(-lasts))
	return !from.IsZero() && !from.After(now), times.Next(now), nil
}
