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

// Ailing returns what is wrong with a node, of several things what is due first. A condition that does not say since when it
// stands makes a node no broken one: it is not known how long that has lasted. What a reboot may mend is none either: this repair only
// replaces.
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

// TooManyAil reports whether so many of a group's nodes are broken, more than a fifth rounded up, that the cause is
// hardly in each of them: other machines would be broken as well.
func TooManyAil(ailing, all int) bool { return ailing > (all+4)/5 }
