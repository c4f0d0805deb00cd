package sentence

import (
	"fmt"
	"time"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/core/paused"
)

// Halt says until when nothing is disrupted voluntarily, and why.
func Halt(h paused.Halt) string {
	what := "its NodePool is paused"
	if h.Pool == "" {
		what = "disruption is paused in the whole cluster"
	}
	switch {
	case h.Unread != "":
		what += fmt.Sprintf(" until karpenter resume ends it (the annotation %s says %q, which is neither true nor a time)",
			v1.PausedAnnotationKey, h.Unread)
	case h.Until.IsZero():
		what += " until karpenter resume ends it"
	default:
		what += " until " + h.Until.UTC().Format(time.RFC3339)
	}
	if h.Reason != "" {
		what += ": " + h.Reason
	}
	return what
}
