package lifecycle

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
)

// bootTimeout is how long a machine may take to boot anew, from when its claim stopped being initialized.
const bootTimeout = 20 * time.Minute

// reboot finishes a reboot that upstream's controller began before this one took over, and reports whether it still goes on. A reboot that
// the provider was not asked for yet is called off. A reboot that fails ends too; the node's conditions then count for repair again.
func (w *work) reboot() (goesOn bool) {
	if !condition.IsTrue(w.claim, v1.ConditionTypeRebooting) {
		w.unfence()
		return false
	}
	before, asked := w.claim.Annotations[v1.RebootPreBootIDAnnotationKey]
	if !asked && condition.Get(w.claim, v1.ConditionTypeRebooting).Reason != v1.ReasonRebootIssued {
		return w.endReboot(v1.ReasonRebootFailed)
	}
	if w.booted(before) {
		if ready(w.nodes[0]) {
			return w.endReboot(v1.ReasonRebootSucceeded)
		}
		w.unfence()
	}
	condition.SetUnknown(w.claim, v1.ConditionTypeInitialized, v1.ReasonRebooting, "", w.now)
	until := condition.Get(w.claim, v1.ConditionTypeInitialized).LastTransitionTime.Add(bootTimeout)
	if !w.now.Before(until) {
		return w.endReboot(v1.ReasonRebootFailed)
	}
	w.wake(until)
	if len(w.nodes) == 1 && hasLabel(w.nodes[0], v1.NodeInitializedLabelKey) {
		w.copyNode()
		delete(w.node.Labels, v1.NodeInitializedLabelKey)
	}
	return true
}

// booted reports whether the claim's only Node has booted since it had the boot id. Without ids nothing is known.
func (w *work) booted(before string) bool {
	if len(w.nodes) != 1 || before == "" {
		return false
	}
	id := w.nodes[0].Status.NodeInfo.BootID
	return id != "" && id != before
}

func (w *work) endReboot(reason string) bool {
	condition.SetFalse(w.claim, v1.ConditionTypeRebooting, reason, "", w.now)
	condition.Clear(w.claim, v1.ConditionTypeDisruptionReason, w.now)
	w.unfence()
	return false
}

// unfence takes the taint of a reboot off the claim's only Node.
func (w *work) unfence() {
	if len(w.nodes) == 1 && hasTaint(w.nodes[0], isRebootingTaint) {
		w.copyNode()
		w.node.Spec.Taints = slices.DeleteFunc(w.node.Spec.Taints, func(t corev1.Taint) bool { return isRebootingTaint(&t) })
	}
}

func (w *work) copyNode() {
	if w.node == nil {
		w.node = w.nodes[0].DeepCopy()
	}
}

func isRebootingTaint(t *corev1.Taint) bool { return t.Key == v1.RebootingTaintKey }

// withoutReboot returns the claim without the annotations of a reboot that is over, nil if it has none.
func withoutReboot(claim *v1.NodeClaim) *v1.NodeClaim {
	_, id := claim.Annotations[v1.RebootPreBootIDAnnotationKey]
	_, grace := claim.Annotations[v1.RebootGracePeriodAnnotationKey]
	if !id && !grace || condition.IsTrue(claim, v1.ConditionTypeRebooting) {
		return nil
	}
	out := another(claim)
	out.ObjectMeta = *claim.ObjectMeta.DeepCopy()
	delete(out.Annotations, v1.RebootPreBootIDAnnotationKey)
	delete(out.Annotations, v1.RebootGracePeriodAnnotationKey)
	return out
}
