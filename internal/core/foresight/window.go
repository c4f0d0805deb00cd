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

// WindowOf reads the schedule in the annotations of a CapacityBuffer. It returns the window of now, or the next, which is open from ahead
// of its beginning; ok is false where the annotations cannot be understood.
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
