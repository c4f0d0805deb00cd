package sentence

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/core/forecast"
)

// An Announced is an announcement of pods: its source as kind and name, and when the pods are due.
type Announced struct {
	Source, Namespace string
	Due               time.Time      // zero for at once
	Learned           forecast.Basis // zero if the pods were announced and not learned
}

// OpenedAhead returns what a machine was opened for ahead of time, with the number of pods of each announcement; ""
// if none of its pods was announced. A source without a space is the name of a CapacityBuffer, which announces
// nothing if it has no schedule (Due).
func OpenedAhead(pods map[Announced]int, now time.Time) string {
	var parts []string
	var zone *time.Location // of the first announcement that has a time
	byTime := func(a, b Announced) int { return cmp.Or(a.Due.Compare(b.Due), strings.Compare(a.Source, b.Source)) }
	for _, a := range slices.SortedFunc(maps.Keys(pods), byTime) {
		n := pods[a]
		if !a.Due.IsZero() {
			zone = cmp.Or(zone, a.Due.Location())
		}
		if !strings.Contains(a.Source, " ") {
			if a.Due.IsZero() {
				continue
			}
			a.Source = "CapacityBuffer " + a.Source
		}
		if a.Learned != (forecast.Basis{}) {
			_, name, _ := strings.Cut(a.Source, " ")
			name, _, _ = strings.Cut(name, " ")
			parts = append(parts, fmt.Sprintf("%s of %s/%s at %s, learned from %s", Count(n, "pod"), a.Namespace, name,
				a.Due.Format("15:04 MST"), LearnedFrom(a.Learned)))
			continue
		}
		part := fmt.Sprintf("%s in %s", a.Source, a.Namespace)
		if !a.Due.IsZero() {
			part += " at " + a.Due.Format("15:04 MST")
		}
		parts = append(parts, part+", "+Count(n, "pod"))
	}
	if len(parts) == 0 {
		return ""
	}
	slices.Sort(parts)
	return fmt.Sprintf("opened at %s for %s", now.In(cmp.Or(zone, now.Location())).Format("15:04"), strings.Join(parts, "; "))
}

// AnnouncedInVain says that no machines are opened ahead of time for an object any more, because its pods did not
// come several times in a row. It also says where the owner should look.
func AnnouncedInVain(kind string, times int) string {
	maker := "its Jobs"
	if kind != "CronJob" {
		maker = "the ReplicaSets that it scales"
	}
	return fmt.Sprintf("%s in a row most pods that this %s announced did not come; no machines are opened ahead of time for "+
		"it until its pods come again. Look at the events of %s for what keeps the pods away, such as a quota. "+
		"Pods that come get machines as always", Count(times, "time"), kind, maker)
}

// LearnedFrom says what an expectation is based on, such as "9 of the last 10 weekdays".
func LearnedFrom(b forecast.Basis) string {
	days := b.Days + "s"
	switch b.Days {
	case "all":
		days = "days"
	case "weekend":
		days = "weekend days"
	}
	return fmt.Sprintf("%d of the last %d %s", b.Came, b.Of, days)
}

// LearningOff says that no room is kept for learned pods, until when, and what that room cost and saved.
func LearningOff(unused, saved float64, until time.Time) string {
	return fmt.Sprintf("room that was kept ahead of time cost $%.2f while it was not used, and pods that came in time would have waited "+
		"for $%.2f of room: nothing is kept until %s, or until the annotation %s is removed and set again", unused, saved,
		until.Format("2 January 15:04 MST"), v1.LearnAnnotationKey)
}

// BadLearn says what to write instead of a value of the annotation to learn.
func BadLearn(value string) string {
	return fmt.Sprintf("nothing is learned: the annotation %s is %q; use \"true\", or remove it", v1.LearnAnnotationKey, value)
}

// BadZone says that a time zone is unknown.
func BadZone(value string) string {
	return fmt.Sprintf("nothing is learned: there is no time zone %q as in the annotation %s; use one such as Europe/Berlin", value,
		v1.ScheduleTimeZoneAnnotationKey)
}
