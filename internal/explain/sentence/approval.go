package sentence

import (
	"fmt"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/core/approval"
)

// Difference says how a step differs from the approved one.
func Difference(d approval.Difference) string {
	return map[approval.Difference]string{
		approval.Why:      "its nodes would go for another reason now",
		approval.Nodes:    "other nodes would go now",
		approval.Machines: "other machines would come now",
		approval.Pods:     "other pods would move now than it names",
		approval.Saving:   "it would save less now",
		approval.Ruled:    "no rule approves what would be done now",
	}[d]
}

// Unread says what is wrong with a condition of a rule that approves plans.
func Unread(u *approval.Unread) string {
	switch u.Of {
	case "":
		return fmt.Sprintf("%q is none of reason=, pods<=, nodes<= and saves>=", u.Text)
	case "reason":
		return fmt.Sprintf("%q: there are the reasons %v", u.Text, v1.DisruptionReasons)
	case "saves":
		return fmt.Sprintf("%q: %q is no number of dollars an hour", u.Text, u.Value)
	}
	return fmt.Sprintf("%q: %q is no number of %s", u.Text, u.Value, u.Of)
}
