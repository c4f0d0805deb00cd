package lifecycle

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/kit/ztime"
)

// A View is all that Next and End read about a claim.
type View struct {
	Claim *v1.NodeClaim
	// Nodes are those with the claim's provider id. There should be one at most.
	Nodes []*corev1.Node
	// NeedsOpenNode says that a DaemonSet on the host's network, without which a node may never become ready, does not tolerate the
	// unregistered taint. Then the taint is removed at registration, even with Settings.HoldTaint.
	NeedsOpenNode bool
	// Unpublished are the DRA drivers that have not published their devices of the node yet; the node is not initialized before.
	Unpublished []string
	// PendingHook names what the provider still does before the Node may be registered; "" if nothing.
	PendingHook string
	// Occupied says that pods are on the node which leave it before its machine is rebooted.
	Occupied bool
}

// Settings of a claim's life. The zero value is the documented behaviour.
type Settings struct {
	// HoldTaint keeps the unregistered taint on a registered node until the node is ready for pods, so that the moment at
	// which pods may bind is ours; but no longer than this. Zero takes the taint off at registration.
	HoldTaint time.Duration
	// Words are what conditions say; nil leaves them without a message. RebootWords are those about reboots that ended.
	Words       Words
	RebootWords RebootWords
	// Reboots says that machines may be rebooted. Without it, reboots that another Karpenter began are only finished or called off.
	Reboots bool
}

// A Lack is what a claim's node lacks to be registered or initialized.
type Lack struct {
	Reason string // of the condition
	Name   string // of what is not ready, not there or still there: the Node, the taint, the resource, the drivers or the provider's hooks
	Nodes  int    // that have the claim's provider id, where they are not one
}

// Words say to people what a node lacks.
type Words func(Lack) string

func (w Words) of(l Lack) string {
	if w == nil {
		return ""
	}
	return w(l)
}

// RebootWords say to people how a reboot ended.
type RebootWords func(RebootEnd) string

func (w RebootWords) of(e RebootEnd) string {
	if w == nil {
		return ""
	}
	return w(e)
}

const (
	launchTimeout       = 5 * time.Minute  // until the cloud must have started a machine
	registrationTimeout = 15 * time.Minute // until its node must have joined
	shownAfter          = 2 * time.Minute  // from the launch until the cloud surely lists the machine
	shownWithin         = time.Minute      // from a write to a Node until the snapshot surely shows it
)

// A Kind is what package claim has to do.
type Kind uint8

// The steps of a claim.
const (
	Wait    Kind = iota // nothing now
	Prepare             // write finalizers and annotations; a claim without ours must not be launched
	Launch              // ask the cloud for a machine
	Write               // write what changed of node and claim
	GiveUp              // delete the claim
	Reboot              // ask the provider to reboot the machine
)

// A Reason is why Karpenter deletes a claim, as the disrupted counters name it.
type Reason string

// Reasons to give a claim up.
const (
	InsufficientCapacity Reason = "insufficient_capacity"
	NodeClassNotReady    Reason = "nodeclass_not_ready"
	LaunchTimeout        Reason = "launch_timeout"
	RegistrationTimeout  Reason = "registration_timeout"
	Expired              Reason = "expired"
	GarbageCollected     Reason = "garbage_collected"
	BrokenNode           Reason = "unhealthy"
)

// A Milestone is something that a step makes happen and that is worth a log line, a counter or an event.
type Milestone uint8

// Milestones, in the order in which they are reached.
const (
	Registered Milestone = iota + 1
	RegisteredWithoutTaint
	Opened // the node loses the unregistered taint, Karpenter's last taint on it
	Initialized
	RebootObserved // the machine has booted anew
)

// A Step is what a claim needs now.
type Step struct {
	Kind Kind
	// Node and Claim are what they should be, for Write (node first, then the claim's status) and Prepare; nil where
	// nothing changes.
	Node  *corev1.Node
	Claim *v1.NodeClaim
	// Reached are the milestones that a Write makes true.
	Reached []Milestone
	Reason  Reason // of GiveUp
	// Ended is the end of a reboot that a Write makes true, nil for none.
	Ended *RebootEnd
	// Overdue says that the machine has registered and had its time to be initialised.
	Overdue bool
	// Until is when to look again if nothing changes; zero for never.
	Until time.Time
}

// Next returns what the claim needs now. The claim is not being deleted; v is not changed.
//
// The order is: finalizer, leftovers of a reboot, launch, registration, removal of the unregistered taint, then a reboot that is under
// way, else initialization. What several of these change is written together.
func Next(v View, now time.Time, s Settings) Step {
	if !slices.Contains(v.Claim.Finalizers, v1.TerminationFinalizer) {
		claim := another(v.Claim)
		claim.Finalizers = append(slices.Clip(claim.Finalizers), v1.TerminationFinalizer)
		return Step{Kind: Prepare, Claim: claim}
	}
	cleaned, until := withoutReboot(v.Claim, now)
	if cleaned != nil {
		return Step{Kind: Prepare, Claim: cleaned}
	}
	claim := another(v.Claim)
	condition.Init(claim)
	if condition.IsUnknown(claim, v1.ConditionTypeLaunched) {
		return launchStep(claim, now)
	}
	w := work{claim: claim, now: now, settings: s, nodes: v.Nodes, until: until, unpublished: v.Unpublished,
		pendingHook: v.PendingHook, occupied: v.Occupied}
	if v.NeedsOpenNode {
		w.settings.HoldTaint = 0
	}
	w.refresh()
	w.register()
	if w.timedOut() {
		return Step{Kind: GiveUp, Reason: RegistrationTimeout, Claim: w.claim}
	}
	w.open()
	if !w.reboot() {
		w.initialize()
	}
	if w.prepared != nil {
		return Step{Kind: Prepare, Claim: w.prepared}
	}
	overdue := w.overdue()
	step := w.step(v)
	step.Overdue = overdue
	return step
}

// another returns a shallow copy of a claim. The maps and slices in it are shared with the first, so callers replace them and never
// change them. A deep copy would be expensive, since a claim lists hundreds of instance types.
func another(claim *v1.NodeClaim) *v1.NodeClaim {
	out := *claim
	return &out
}

// launchStep returns the step of a claim without machine: launch, or give up if that has been tried for launchTimeout.
func launchStep(claim *v1.NodeClaim, now time.Time) Step {
	until := condition.Get(claim, v1.ConditionTypeLaunched).LastTransitionTime.Add(launchTimeout)
	if !now.Before(until) {
		return Step{Kind: GiveUp, Reason: LaunchTimeout, Claim: claim}
	}
	return Step{Kind: Launch, Claim: claim, Until: until}
}

// work holds copies of a claim and its Node while Next works out a step. Its methods change the copies and note the rest in its fields;
// step compares the copies with the View and makes the Step.
type work struct {
	claim    *v1.NodeClaim
	nodes    []*corev1.Node
	node     *corev1.Node // our copy of the only node
	now      time.Time
	settings Settings
	until    time.Time
	reached  []Milestone

	unpublished []string
	pendingHook string

	occupied bool
	prepared *v1.NodeClaim // with annotations that are to be written before anything else
	asks     bool          // the provider is to be asked for a reboot
	ended    *RebootEnd
}

// refresh sets the observed generation of conditions that are True or False to the claim's present one: a change of the claim does not make
// them outdated.
func (w *work) refresh() {
	for _, t := range []string{v1.ConditionTypeLaunched, v1.ConditionTypeRegistered, v1.ConditionTypeInitialized} {
		if c := condition.Get(w.claim, t); c != nil && c.Status != "Unknown" && c.ObservedGeneration != w.claim.Generation {
			condition.Set(w.claim, *c, w.now)
		}
	}
}

// register joins the claim with its only Node (see Join) and makes Registered true, once the provider's hook, if there is one, allows it.
// It does so again for a Node that a kubelet has made anew. Several Nodes for one claim make Registered false for good.
func (w *work) register() {
	if condition.IsTrue(w.claim, v1.ConditionTypeRegistered) && !w.anew() || condition.IsFalse(w.claim, v1.ConditionTypeRegistered) {
		return
	}
	if !w.findNode(v1.ConditionTypeRegistered) {
		return
	}
	if w.pendingHook != "" {
		pending := Lack{Reason: v1.ReasonRegistrationHookPending, Name: w.pendingHook}
		condition.SetUnknown(w.claim, v1.ConditionTypeRegistered, pending.Reason, w.say(pending), w.now)
		return
	}
	if !hasLabel(w.node, v1.NodeRegisteredLabelKey) && !hasTaint(w.node, v1.IsUnregisteredTaint) {
		w.reached = append(w.reached, RegisteredWithoutTaint)
	}
	Join(w.node, w.claim)
	w.claim.Status.NodeName = w.node.Name
	condition.SetTrue(w.claim, v1.ConditionTypeRegistered, w.now)
	w.reached = append(w.reached, Registered)
}

// anew reports whether the Node looks as a kubelet has created it, although the claim has registered. That happens if a user deletes the
// registered Node by force, and the kubelet restarts and creates another. Its unregistered taint would keep pods away for good.
func (w *work) anew() bool {
	return w.lost(v1.ConditionTypeRegistered, v1.NodeRegisteredLabelKey) && hasTaint(w.nodes[0], v1.IsUnregisteredTaint)
}

// initialized reports whether the claim has the condition Initialized and its Node has not lost the label for it.
func (w *work) initialized() bool {
	return condition.IsTrue(w.claim, v1.ConditionTypeInitialized) && !w.lost(v1.ConditionTypeInitialized, v1.NodeInitializedLabelKey)
}

// lost reports whether the claim's only Node lacks a label that was written to it before the condition became true. For shownWithin after
// that it returns false: the snapshot may show the new claim beside the old Node.
func (w *work) lost(conditionType, label string) bool {
	if len(w.nodes) != 1 || w.nodes[0].DeletionTimestamp != nil || hasLabel(w.nodes[0], label) {
		return false
	}
	until := condition.Get(w.claim, conditionType).LastTransitionTime.Add(shownWithin)
	if w.now.Before(until) {
		w.wake(until)
		return false
	}
	return true
}

// AsksHooks reports whether the claim's Node could be registered now, so that the provider's registration hook has to be asked.
func AsksHooks(v View) bool {
	return len(v.Nodes) == 1 && condition.IsTrue(v.Claim, v1.ConditionTypeLaunched) &&
		condition.IsUnknown(v.Claim, v1.ConditionTypeRegistered)
}

// AskFrom returns from when on to ask the cloud whether the machine of a claim without Node still runs; zero if there is no need to ask.
// Before that time a cloud may not list a machine that it has just launched.
func AskFrom(v View) time.Time {
	c := condition.Get(v.Claim, v1.ConditionTypeLaunched)
	if c == nil || c.Status != "True" || v.Claim.Status.ProviderID == "" || len(v.Nodes) > 0 ||
		condition.IsTrue(v.Claim, v1.ConditionTypeRegistered) {
		return time.Time{}
	}
	return c.LastTransitionTime.Add(shownAfter)
}

// timedOut reports whether the node should have registered by now. If it still has time, the step wakes up at the end of it.
func (w *work) timedOut() bool {
	c := condition.Get(w.claim, v1.ConditionTypeRegistered)
	if c.Status == "True" {
		return false
	}
	w.wake(c.LastTransitionTime.Add(registrationTimeout))
	return !w.now.Before(w.until)
}

// findNode copies the claim's only Node into w.node and returns true. If there is none, or more than one, it sets the condition of the
// given type to say so and returns false.
func (w *work) findNode(conditionType string) bool {
	if w.node != nil {
		return true
	}
	switch {
	case w.claim.Status.ProviderID == "" || len(w.nodes) == 0:
		awaitNode(w.claim, conditionType, w.now, w.settings.Words)
		return false
	case len(w.nodes) > 1 && conditionType == v1.ConditionTypeRegistered:
		condition.SetFalse(w.claim, conditionType, v1.ReasonMultipleNodesFound,
			w.say(Lack{Reason: v1.ReasonMultipleNodesFound, Nodes: len(w.nodes)}), w.now)
		return false
	case len(w.nodes) > 1:
		condition.SetUnknown(w.claim, conditionType, v1.ReasonNodeNotFound,
			w.say(Lack{Reason: v1.ReasonNodeNotFound, Nodes: len(w.nodes)}), w.now)
		return false
	}
	w.node = w.nodes[0].DeepCopy()
	return true
}

// awaitNode sets a condition to Unknown because the claim has no Node yet.
func awaitNode(claim *v1.NodeClaim, conditionType string, now time.Time, words Words) {
	condition.SetUnknown(claim, conditionType, v1.ReasonNodeNotFound, words.of(Lack{Reason: v1.ReasonNodeNotFound}), now)
}

func (w *work) say(l Lack) string { return w.settings.Words.of(l) }

// open takes the unregistered taint off a registered node, so that pods may be scheduled to it. With Settings.HoldTaint it waits until the
// node is ready for pods, but no longer than that time.
func (w *work) open() {
	if !condition.IsTrue(w.claim, v1.ConditionTypeRegistered) || w.initialized() {
		return
	}
	if w.node == nil && (len(w.nodes) != 1 || !hasTaint(w.nodes[0], v1.IsUnregisteredTaint)) {
		return
	}
	if !w.findNode(v1.ConditionTypeInitialized) || !hasTaint(w.node, v1.IsUnregisteredTaint) {
		return
	}
	if hold := w.settings.HoldTaint; hold > 0 && !usable(w.node) {
		until := condition.Get(w.claim, v1.ConditionTypeRegistered).LastTransitionTime.Add(hold)
		if w.now.Before(until) {
			w.wake(until)
			return
		}
	}
	w.node.Spec.Taints = slices.DeleteFunc(w.node.Spec.Taints, func(t corev1.Taint) bool { return v1.IsUnregisteredTaint(&t) })
	w.reached = append(w.reached, Opened)
}

// usable reports whether a starting node is ready and has no ephemeral taint but the unregistered one.
func usable(n *corev1.Node) bool {
	return ready(n) && !hasTaint(n, func(t *corev1.Taint) bool { return v1.KnownEphemeralTaint(t) && !v1.IsUnregisteredTaint(t) })
}

// initialize makes Initialized true, and puts the label on the Node, once the node lacks nothing (see missing) and all drivers have
// published their devices. Until then the condition says what is lacking.
func (w *work) initialize() {
	if !condition.IsTrue(w.claim, v1.ConditionTypeRegistered) || w.initialized() {
		return
	}
	if !w.findNode(v1.ConditionTypeInitialized) {
		return
	}
	lack := missing(w.claim, w.node)
	if lack.Reason == "" && len(w.unpublished) > 0 {
		lack = Lack{Reason: v1.ReasonDRADriverPoolsNotPublished, Name: strings.Join(w.unpublished, ", ")}
	}
	if lack.Reason != "" {
		if settled := readySince(w.node).Add(settling); lack.Reason == v1.ReasonKnownEphemeralTaintsExist && w.now.Before(settled) {
			w.wake(settled)
			return
		}
		// a condition that has been true stays true while a Node that a kubelet has made anew becomes ready
		if !condition.IsTrue(w.claim, v1.ConditionTypeInitialized) {
			condition.SetUnknown(w.claim, v1.ConditionTypeInitialized, lack.Reason, w.say(lack), w.now)
		}
		return
	}
	setLabel(w.node, v1.NodeInitializedLabelKey, "true")
	condition.SetTrue(w.claim, v1.ConditionTypeInitialized, w.now)
	w.reached = append(w.reached, Initialized)
}

// settling is how long after a node has become ready its condition does not mention the ephemeral taints that are left. Nearly every node
// loses them within that time, so the write is saved.
const settling = 3 * time.Second

// missing returns the first thing that keeps a node from being initialized, the zero Lack if there is none: it is not ready, has a startup
// taint or an ephemeral taint, or does not report a resource that the claim requests.
func missing(claim *v1.NodeClaim, node *corev1.Node) Lack {
	if !ready(node) {
		return Lack{Reason: v1.ReasonNodeNotReady, Name: node.Name}
	}
	for i := range node.Spec.Taints {
		t := &node.Spec.Taints[i]
		if slices.ContainsFunc(claim.Spec.StartupTaints, func(s corev1.Taint) bool { return s.MatchTaint(t) }) {
			return Lack{Reason: v1.ReasonStartupTaintsExist, Name: t.ToString()}
		}
	}
	for i := range node.Spec.Taints {
		if t := &node.Spec.Taints[i]; v1.KnownEphemeralTaint(t) {
			return Lack{Reason: v1.ReasonKnownEphemeralTaintsExist, Name: t.ToString()}
		}
	}
	for _, name := range sortedNames(claim.Spec.Resources.Requests) {
		want, have := claim.Spec.Resources.Requests[name], node.Status.Allocatable[name]
		if !want.IsZero() && have.IsZero() {
			return Lack{Reason: v1.ReasonResourceNotRegistered, Name: string(name)}
		}
	}
	return Lack{}
}

// wake makes the step look again at a time, if nothing else wakes it earlier.
func (w *work) wake(at time.Time) { w.until = ztime.Sooner(w.until, at) }

// step returns the Step: Write with those copies that differ from the View, or else Reboot if the provider is to be asked, or else Wait.
func (w *work) step(v View) Step {
	s := Step{Kind: Wait, Reached: w.reached, Until: w.until, Ended: w.ended}
	if w.node != nil && !equality.Semantic.DeepEqual(w.node, w.nodes[0]) {
		s.Kind, s.Node = Write, w.node
	}
	if !equality.Semantic.DeepEqual(w.claim.Status, v.Claim.Status) {
		s.Kind, s.Claim = Write, w.claim
	}
	if s.Kind == Wait && w.asks { // only once all about the reboot is written, so that another process can go on with it
		s.Kind, s.Claim = Reboot, w.claim
	}
	return s
}
