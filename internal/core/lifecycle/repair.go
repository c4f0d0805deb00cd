package lifecycle

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"karpenter.sh/karpenter/cloud"
)

// An Ailment is a condition by which a node counts as broken.
type Ailment struct {
	Condition corev1.NodeCondition
	Due       time.Time // when it has lasted for as long as is tolerated
}

// Ailing returns the condition by which a node counts as broken, of several the first to be due. It ignores a condition without the
// time of its transition, because it is not known how long that has lasted. It also ignores policies of reboots: its caller only replaces
// machines.
func Ailing(node *corev1.Node, policies []cloud.RepairPolicy) (first Ailment, ok bool) {
	for _, p := range policies {
		for _, c := range node.Status.Conditions {
			if p.Reboot || c.Type != p.ConditionType || c.Status != p.Status || c.LastTransitionTime.IsZero() {
				continue
			}
			if due := c.LastTransitionTime.Add(p.Toleration); !ok || due.Before(first.Due) {
				first, ok = Ailment{c, due}, true
			}
		}
	}
	return first, ok
}

// TooManyAil reports whether more than a fifth (rounded up) of a group's nodes are broken. Then the cause is hardly in the machines, and
// new ones would be broken as well.
func TooManyAil(ailing, all int) bool { return ailing > (all+4)/5 }
