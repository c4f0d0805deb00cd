package sentence

import (
	"fmt"
	"strings"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/core/buffer"
)

// BufferFlaw says what is wrong with a buffer, and what its owner has to change.
func BufferFlaw(f *buffer.Flaw) string {
	switch f.Code {
	case buffer.NothingNamed:
		return "nothing says what the pods are like: name a PodTemplate in spec.podTemplateRef or a workload in spec.scalableRef"
	case buffer.BothNamed:
		return "spec.podTemplateRef and spec.scalableRef are both set: remove one of them"
	case buffer.NoNumber:
		return "nothing says how many pods: set spec.replicas or spec.limits"
	case buffer.Negative:
		return fmt.Sprintf("%s is %s: it may not be negative", f.Name, f.Value)
	case buffer.NoContainers:
		return "the pod template has no containers"
	case buffer.NoTemplate:
		cause := ""
		if f.Value != "" {
			cause = " (" + f.Value + ")"
		}
		return fmt.Sprintf("%s has no pod template at spec.template%s: write one as a PodTemplate and name it in "+
			"spec.podTemplateRef", f.Name, cause)
	case buffer.EveryNode:
		return "a DaemonSet has a pod on every node and is not scaled: name a Deployment, StatefulSet, ReplicaSet, Job " +
			"or another kind that can be scaled"
	case buffer.ByTheClock:
		return "a CronJob is not scaled: name a PodTemplate in spec.podTemplateRef"
	case buffer.BadSchedule:
		return "the schedule cannot be read: set " + v1.ScheduleAnnotationKey + " to a cron schedule such as 0 9 * * 1-5, " +
			v1.ScheduleDurationAnnotationKey + " to a duration such as 1h, and " +
			v1.ScheduleTimeZoneAnnotationKey + " to a time zone or to nothing"
	case buffer.TemplateNotFound:
		return fmt.Sprintf("there is no PodTemplate %q in namespace %q", f.Name, f.Value)
	}
	return f.Value
}

// BufferNote says why a buffer has fewer pods than its owner may expect, "" if it has not.
func BufferNote(n buffer.Note) string {
	switch n.Code {
	case buffer.OtherLimits:
		return "spec.limits names no resource that a pod requests, and nothing else says how many pods"
	case buffer.PartOfNothing:
		return "the workload has no replicas now, so a percentage of them is none"
	case buffer.NothingAsked:
		return "nothing says how many pods: set spec.replicas, spec.percentage or spec.limits"
	case buffer.BelowOne:
		return fmt.Sprintf("spec.limits allows %s of %s and one pod requests %s: raise it, or no room is kept",
			n.Limit.String(), n.Resource, n.Request.String())
	case buffer.Limited:
		return fmt.Sprintf("spec.limits allows %s of %s, which is enough for %d of %d pods", n.Limit.String(), n.Resource, n.Fit, n.Wanted)
	case buffer.OffSchedule:
		return "the schedule of the buffer asks for no room at this time"
	case buffer.NoPods:
		return "the buffer asks for no pods"
	case buffer.TooMany:
		return fmt.Sprintf("the buffer asks for %d pods; room is kept for %d, the most for one buffer", n.Wanted, n.Fit)
	case buffer.TooManyOfAll:
		return fmt.Sprintf("the buffer asks for %d pods; room is kept for %d, because all buffers of the cluster "+
			"together have %d at most", n.Wanted, n.Fit, buffer.MostOfAll)
	}
	return ""
}

// BufferRoom says how many pods of a buffer have room, and where.
func BufferRoom(t buffer.Tally, n buffer.Note) string {
	var parts []string
	if t.All() > 0 {
		parts = append(parts, fmt.Sprintf("%d of %d pods have room on nodes that run", t.Ready, t.All()))
	}
	if t.Coming > 0 {
		parts = append(parts, fmt.Sprintf("%d on nodes that are on their way", t.Coming))
	}
	if t.None > 0 {
		none := fmt.Sprintf("%d have none", t.None)
		if t.Why != "" {
			none += ": " + t.Why
		}
		parts = append(parts, none)
	}
	if note := BufferNote(n); note != "" {
		parts = append(parts, note)
	}
	return strings.Join(parts, "; ")
}
