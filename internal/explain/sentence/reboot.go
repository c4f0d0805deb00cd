package sentence

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"karpenter.sh/karpenter/internal/core/lifecycle"
)

// Rebooting returns for which condition of a node its machine is rebooted. Other programs read this text, so it has the same form as in
// upstream Karpenter.
func Rebooting(c corev1.NodeCondition) string {
	return fmt.Sprintf("rebooting for %s/%s", c.Type, c.Reason)
}

// RebootSeen is the text of the event that a machine has booted again.
const RebootSeen = "The machine has booted: its node has another boot id."

// Reboot returns why a reboot failed, "" if it succeeded.
func Reboot(e lifecycle.RebootEnd) string {
	why := ""
	switch e.Failure {
	case "":
		return ""
	case lifecycle.RebootGraceInvalid:
		why = fmt.Sprintf("the grace period of its drain is no duration: %q", e.Detail)
	case lifecycle.RebootWithoutID:
		why = "its kubelet reports no boot id, so no boot would be noticed"
	case lifecycle.RebootWithoutNode:
		why = "its Node is gone"
	case lifecycle.RebootHeld:
		why = "pods may not leave the node, and no grace period bounds the drain"
	case lifecycle.RebootRefused:
		why = e.Detail
	case lifecycle.RebootNotAccepted:
		why = "the cloud did not accept it in time"
	case lifecycle.RebootTooSlow:
		why = "it did not come back in time as a ready node with another boot id"
	}
	return "The machine was not repaired by a reboot: " + why + ". It is replaced instead while it is broken."
}
