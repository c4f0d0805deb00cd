// Package protection makes the event that explains to the owner of a pod what its do-not-disrupt annotation means now. The loops that
// disrupt and drain nodes both publish it. The events are equal, so the owner sees one.
package protection

import (
	"fmt"
	"time"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/movable"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// Event returns the event that explains the annotation of a pod. ok is false if there is nothing to explain: the pod has no annotation,
// or it is protected for ever.
func Event(p *cluster.Pod, now time.Time) (e telemetry.Event, ok bool) {
	reason, message := telemetry.Reason(""), ""
	switch held := movable.Protected(p, now); {
	case held.Invalid:
		reason, message = telemetry.InvalidDoNotDisruptAnnotation,
			fmt.Sprintf("%q is neither true nor a positive duration; the annotation is ignored", p.DoNotDisrupt)
	case held.Elapsed:
		reason, message = telemetry.DoNotDisruptGracePeriodElapsed, "the pod may be disrupted again"
	case held.Held && !held.Until.IsZero():
		reason, message = telemetry.DoNotDisruptUntil, "the pod is not disrupted before "+held.Until.UTC().Format(time.RFC3339)
	case p.DoNotEvict:
		reason, message = telemetry.DeprecatedAnnotation,
			fmt.Sprintf("the annotation %s is called %s now; it counts still", v1.DoNotEvictAnnotationKey, v1.DoNotDisruptAnnotationKey)
	default:
		return e, false
	}
	return telemetry.Event{Object: telemetry.PodRef(p.Namespace, p.Name, p.UID), Reason: reason, Message: message,
		Key: []string{string(p.UID), message}}, true
}
