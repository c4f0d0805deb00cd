package lifecycle

import (
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
)

// A reboot is a repair that keeps the machine. Everything about one is on the claim, so that another process can go on with it:
//
//  1. RequestReboot writes the condition Rebooting (True, RebootRequested).
//  2. The Node gets the taint of a reboot and loses its label "initialized". Its pods are evicted, see Vacates.
//  3. The claim gets the Node's boot id as an annotation.
//  4. Initialized becomes Unknown; its transition is the time from which the cloud has to accept the reboot and the machine has to boot.
//  5. The provider is asked. Rebooting becomes RebootIssued.
//  6. The Node has another boot id and is ready: Rebooting becomes False.
//
// If a step takes too long, the reboot ends as RebootFailed. Then repair finds the node broken at its next look and replaces the machine.

// Times of a reboot.
const (
	leastRebootDrain = 5 * time.Second  // so that pods which were bound a moment ago are seen
	mostRebootDrain  = 30 * time.Minute // of a drain that nothing else bounds
	acceptTimeout    = 5 * time.Minute  // until the provider must have accepted a reboot
	bootTimeout      = 20 * time.Minute // until the machine must have booted
	rebootMemory     = 24 * time.Hour   // for how long earlier reboots count
	mostReboots      = 2                // within that time
	// requestTime is how long the two writes of a request may take.
	requestTime = time.Minute
)

// A RebootFailure is why a machine was not rebooted.
type RebootFailure string

// Failures of reboots.
const (
	RebootGraceInvalid RebootFailure = "GraceInvalid"
	RebootWithoutID    RebootFailure = "NoBootID"
	RebootWithoutNode  RebootFailure = "NoNode"
	RebootHeld         RebootFailure = "Held"
	RebootRefused      RebootFailure = "Refused"
	RebootNotAccepted  RebootFailure = "NotAccepted"
	RebootTooSlow      RebootFailure = "TooSlow"
)

// A RebootEnd says how a reboot ended.
type RebootEnd struct {
	Failure  RebootFailure // "" for a reboot that succeeded
	Detail   string        // what the provider said, or the annotation that cannot be read
	Took     time.Duration // since the request
	Recovery time.Duration // since the provider was asked, of a reboot that succeeded
}

// Result returns the result as metrics name it.
func (e RebootEnd) Result() string {
	switch e.Failure {
	case "":
		return "succeeded"
	case RebootGraceInvalid, RebootWithoutID:
		return "invalid_request"
	case RebootHeld:
		return "drain_timeout"
	case RebootTooSlow:
		return "recovery_timeout"
	}
	return "provider_error"
}

// RequestReboot returns the claim with the annotations of a reboot that is requested now. grace bounds the drain; nil means that nothing
// does. The caller writes the annotations first and then the status, with RebootRequested.
func RequestReboot(claim *v1.NodeClaim, grace *time.Duration, now time.Time) *v1.NodeClaim {
	out := another(claim)
	times := append(rebootsOf(claim), now)
	texts := make([]string, 0, mostReboots)
	for _, at := range times[max(0, len(times)-mostReboots):] {
		texts = append(texts, at.UTC().Format(time.RFC3339))
	}
	out.Annotations = merge(out.Annotations, map[string]string{v1.RebootsAnnotationKey: strings.Join(texts, ",")})
	if grace != nil {
		out.Annotations[v1.RebootGracePeriodAnnotationKey] = grace.String()
	} else {
		delete(out.Annotations, v1.RebootGracePeriodAnnotationKey)
	}
	return out
}

// RebootRequested sets the conditions of a claim whose machine is to be rebooted.
func RebootRequested(claim *v1.NodeClaim, message string, now time.Time) {
	reason := string(v1.DisruptionReasonUnhealthy)
	condition.Set(claim, metav1.Condition{Type: v1.ConditionTypeDisruptionReason, Status: metav1.ConditionTrue, Reason: reason,
		Message: reason}, now)
	condition.Set(claim, metav1.Condition{Type: v1.ConditionTypeRebooting, Status: metav1.ConditionTrue,
		Reason: v1.ReasonRebootRequested, Message: message}, now)
}

// rebootsOf returns when reboots of the claim's machine were requested, the oldest first. What cannot be read does not count.
func rebootsOf(claim *v1.NodeClaim) (out []time.Time) {
	for text := range strings.SplitSeq(claim.Annotations[v1.RebootsAnnotationKey], ",") {
		if at, err := time.Parse(time.RFC3339, text); err == nil {
			out = append(out, at)
		}
	}
	return out
}

// rebootsExhausted reports whether reboots have not helped the claim's machine: the last one failed, or there were as many as are allowed.
func rebootsExhausted(claim *v1.NodeClaim, now time.Time) bool {
	recent := func(at time.Time) bool { return now.Sub(at) < rebootMemory }
	c := condition.Get(claim, v1.ConditionTypeRebooting)
	if c != nil && c.Reason == v1.ReasonRebootFailed && recent(c.LastTransitionTime.Time) {
		return true
	}
	return len(slices.DeleteFunc(rebootsOf(claim), func(at time.Time) bool { return !recent(at) })) >= mostReboots
}

// rebootedAt returns when the claim's machine was back from its last reboot that succeeded, zero if there was none. What its Node said
// before does not count any more.
func rebootedAt(claim *v1.NodeClaim) time.Time {
	c := condition.Get(claim, v1.ConditionTypeRebooting)
	if c == nil || c.Reason != v1.ReasonRebootSucceeded {
		return time.Time{}
	}
	return c.LastTransitionTime.Time
}

// Vacates reports whether pods leave a node now because its machine is to be rebooted.
func Vacates(claim *v1.NodeClaim, node *corev1.Node) bool {
	if claim == nil || node == nil || claim.DeletionTimestamp != nil || !hasTaint(node, isRebootingTaint) || !requested(claim) {
		return false
	}
	grace, valid := rebootGrace(claim)
	return valid && (grace == nil || *grace > 0)
}

// requested reports whether a reboot of the claim's machine is requested and the provider has not been asked for it: steps 1 and 2 above.
func requested(claim *v1.NodeClaim) bool {
	c := condition.Get(claim, v1.ConditionTypeRebooting)
	_, asked := claim.Annotations[v1.RebootPreBootIDAnnotationKey]
	return c != nil && c.Status == metav1.ConditionTrue && c.Reason != v1.ReasonRebootIssued && !asked
}

// rebootGrace returns the longest time of the drain before a reboot, nil if it is unbounded. valid is false if the annotation is no
// duration.
func rebootGrace(claim *v1.NodeClaim) (bound *time.Duration, valid bool) {
	text, bounded := claim.Annotations[v1.RebootGracePeriodAnnotationKey]
	if !bounded {
		return nil, true
	}
	grace, err := time.ParseDuration(text)
	return &grace, err == nil && grace >= 0
}

// reboot carries a reboot on, and reports whether it still goes on. Where settings have no machine rebooted, a reboot that was begun by
// another Karpenter is finished, or called off if the provider was not asked.
func (w *work) reboot() (goesOn bool) {
	c := condition.Get(w.claim, v1.ConditionTypeRebooting)
	if c == nil || c.Status != metav1.ConditionTrue {
		w.unfence()
		return false
	}
	if requested(w.claim) {
		return w.vacate(c.LastTransitionTime.Time)
	}
	booted := w.booted(w.claim.Annotations[v1.RebootPreBootIDAnnotationKey])
	if booted && w.unfence() && w.settings.Reboots {
		w.reached = append(w.reached, RebootObserved)
	}
	if booted && ready(w.nodes[0]) {
		return w.endReboot(RebootEnd{})
	}
	condition.SetUnknown(w.claim, v1.ConditionTypeInitialized, v1.ReasonRebooting, "", w.now)
	began := condition.Get(w.claim, v1.ConditionTypeInitialized).LastTransitionTime.Time
	if !w.now.Before(began.Add(bootTimeout)) {
		return w.endReboot(RebootEnd{Failure: RebootTooSlow})
	}
	if c.Reason != v1.ReasonRebootIssued && w.settings.Reboots {
		switch {
		case booted: // although no answer of the provider was written
			w.issued()
		case !w.now.Before(began.Add(acceptTimeout)):
			return w.endReboot(RebootEnd{Failure: RebootNotAccepted})
		default:
			w.wake(began.Add(acceptTimeout))
			w.asks = true
		}
	}
	w.wake(began.Add(bootTimeout))
	w.unlabel()
	return true
}

// vacate does steps 2 and 3 of a reboot: it puts the taint on the Node and takes its label "initialized", waits until its pods have left or
// time is up, and then has the boot id written on the claim (w.prepared). With a grace period the reboot goes on even if pods are left;
// without one it fails after mostRebootDrain. It also fails if reboots are off, the grace period cannot be read, or there is not one Node
// with a boot id. since is when the reboot was requested.
func (w *work) vacate(since time.Time) (goesOn bool) {
	grace, valid := rebootGrace(w.claim)
	switch {
	case !w.settings.Reboots:
		return w.endReboot(RebootEnd{Failure: RebootRefused})
	case !valid:
		return w.endReboot(RebootEnd{Failure: RebootGraceInvalid, Detail: w.claim.Annotations[v1.RebootGracePeriodAnnotationKey]})
	case len(w.nodes) != 1 && w.now.Before(since.Add(acceptTimeout)):
		w.wake(since.Add(acceptTimeout))
		return true
	case len(w.nodes) != 1:
		return w.endReboot(RebootEnd{Failure: RebootWithoutNode})
	case w.nodes[0].Status.NodeInfo.BootID == "":
		return w.endReboot(RebootEnd{Failure: RebootWithoutID})
	case !hasTaint(w.nodes[0], isRebootingTaint):
		w.copyNode()
		w.node.Spec.Taints = append(w.node.Spec.Taints, corev1.Taint{Key: v1.RebootingTaintKey, Effect: corev1.TaintEffectNoSchedule})
		w.unlabel()
		return true
	}
	w.unlabel()
	until := since.Add(mostRebootDrain)
	if grace != nil {
		until = since.Add(max(leastRebootDrain, *grace))
	}
	if least := since.Add(leastRebootDrain); w.now.Before(least) {
		w.wake(least)
		return true
	}
	if w.occupied && w.now.Before(until) {
		w.wake(until)
		return true
	}
	if w.occupied && grace == nil {
		return w.endReboot(RebootEnd{Failure: RebootHeld})
	}
	w.prepared = another(w.claim)
	w.prepared.Annotations = merge(w.claim.Annotations, map[string]string{
		v1.RebootPreBootIDAnnotationKey: w.nodes[0].Status.NodeInfo.BootID,
	})
	return true
}

// Operation names the reboot of a claim's machine to the provider. It stays the same until that reboot is over.
func Operation(claim *v1.NodeClaim) string {
	since := condition.Get(claim, v1.ConditionTypeRebooting).LastTransitionTime.UnixNano()
	return strings.Join([]string{string(claim.UID), strconv.FormatInt(since, 10), claim.Annotations[v1.RebootPreBootIDAnnotationKey]}, "-")
}

// Issued returns what to write once the provider has accepted the reboot of a claim's machine.
func Issued(v View, now time.Time) Step {
	w := work{claim: another(v.Claim), nodes: v.Nodes, now: now}
	w.issued()
	return w.step(v)
}

// Refused returns what to write where the provider does not reboot a claim's machine, and why not in its own words.
func Refused(v View, detail string, now time.Time, s Settings) Step {
	w := work{claim: another(v.Claim), nodes: v.Nodes, now: now, settings: s}
	w.endReboot(RebootEnd{Failure: RebootRefused, Detail: detail})
	return w.step(v)
}

// issued notes that the provider has accepted the reboot.
func (w *work) issued() {
	c := condition.Get(w.claim, v1.ConditionTypeRebooting)
	c.Reason = v1.ReasonRebootIssued
	condition.Set(w.claim, *c, w.now)
}

// booted reports whether the claim's only Node has booted since it had the boot id. Without ids nothing is known.
func (w *work) booted(before string) bool {
	if len(w.nodes) != 1 || before == "" {
		return false
	}
	id := w.nodes[0].Status.NodeInfo.BootID
	return id != "" && id != before
}

// endReboot ends a reboot: it sets the condition, clears the disruption reason and removes the taint. It returns false, which is what
// reboot and vacate return then. Without Settings.Reboots another Karpenter began the reboot: its end is written to the condition without
// a message, and no event or metric reports it.
func (w *work) endReboot(end RebootEnd) (goesOn bool) {
	if c := condition.Get(w.claim, v1.ConditionTypeRebooting); c != nil && c.Status == metav1.ConditionTrue {
		end.Took = w.now.Sub(c.LastTransitionTime.Time)
	}
	reason, message := v1.ReasonRebootSucceeded, ""
	if end.Failure != "" {
		reason = v1.ReasonRebootFailed
	} else if c := condition.Get(w.claim, v1.ConditionTypeInitialized); c != nil && c.Status == metav1.ConditionUnknown {
		end.Recovery = w.now.Sub(c.LastTransitionTime.Time)
	}
	if w.settings.Reboots {
		w.ended, message = &end, w.settings.RebootWords.of(end)
	}
	condition.SetFalse(w.claim, v1.ConditionTypeRebooting, reason, message, w.now)
	condition.Clear(w.claim, v1.ConditionTypeDisruptionReason, w.now)
	w.unfence()
	return false
}

// unfence takes the taint of a reboot off the claim's only Node, and reports whether it had it.
func (w *work) unfence() bool {
	if len(w.nodes) != 1 || !hasTaint(w.nodes[0], isRebootingTaint) {
		return false
	}
	w.copyNode()
	w.node.Spec.Taints = slices.DeleteFunc(w.node.Spec.Taints, func(t corev1.Taint) bool { return isRebootingTaint(&t) })
	return true
}

// unlabel takes the label of an initialized node off: no pod can run there until the machine is back.
func (w *work) unlabel() {
	if len(w.nodes) == 1 && hasLabel(w.nodes[0], v1.NodeInitializedLabelKey) {
		w.copyNode()
		delete(w.node.Labels, v1.NodeInitializedLabelKey)
	}
}

func (w *work) copyNode() {
	if w.node == nil {
		w.node = w.nodes[0].DeepCopy()
	}
}

func isRebootingTaint(t *corev1.Taint) bool { return t.Key == v1.RebootingTaintKey }

// withoutReboot returns the claim without the annotations of a reboot that is over. It returns nil if nothing is to be removed now: there
// are no such annotations, a reboot goes on, or the status of a new request may not be written yet; then until is when to look again.
func withoutReboot(claim *v1.NodeClaim, now time.Time) (out *v1.NodeClaim, until time.Time) {
	_, id := claim.Annotations[v1.RebootPreBootIDAnnotationKey]
	_, grace := claim.Annotations[v1.RebootGracePeriodAnnotationKey]
	if !id && !grace || condition.IsTrue(claim, v1.ConditionTypeRebooting) {
		return nil, time.Time{}
	}
	if times := rebootsOf(claim); len(times) > 0 && !id {
		if until = times[len(times)-1].Add(requestTime); now.Before(until) && !endedSince(claim, times[len(times)-1]) {
			return nil, until
		}
	}
	out = another(claim)
	out.ObjectMeta = *claim.ObjectMeta.DeepCopy()
	delete(out.Annotations, v1.RebootPreBootIDAnnotationKey)
	delete(out.Annotations, v1.RebootGracePeriodAnnotationKey)
	return out, time.Time{}
}

// endedSince reports whether a reboot of the claim's machine that was requested at a time, or later, is over.
func endedSince(claim *v1.NodeClaim, at time.Time) bool {
	c := condition.Get(claim, v1.ConditionTypeRebooting)
	return c != nil && !c.LastTransitionTime.Time.Before(at)
}
