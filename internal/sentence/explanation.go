package sentence

import "karpenter.sh/karpenter/internal/core/reason"

// Explanation says why a pod has no place.
func Explanation(why reason.Explanation) string { return reason.Render(why) }
