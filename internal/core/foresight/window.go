package foresight

import (
	"time"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
)

// A Window is a time in which a CapacityBuffer keeps room.
type Window struct {
	From time.Time // zero without a schedule
	Open bool      // it has begun, or begins soon
}

// WindowOf reads the schedule in the annotations of a CapacityBuffer. It returns the present window or the next one. A window is open from
// ahead before its beginning; without a schedule it is always open. ok is false if the annotations are not valid.
func WindowOf(annotations map[string]string, now time.Time, ahead time.Duration) (w Window, ok bool) {
	text, scheduled := annotations[v1.ScheduleAnnotationKey]
	if !scheduled {
		return Window{Open: true}, true
	}
	schedule := parse(text, annotations[v1.ScheduleTimeZoneAnnotationKey])
	lasts, err := time.ParseDuration(annotations[v1.ScheduleDurationAnnotationKey])
	if schedule == nil || err != nil || lasts <= 0 {
		return Window{}, false
	}
	w.From = schedule.Next(now.Add(-lasts))
	w.Open = !w.From.IsZero() && !w.From.After(now.Add(ahead))
	return w, true
}
