package disruption

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/control/protection"
	"karpenter.sh/karpenter/internal/core/disrupt"
	"karpenter.sh/karpenter/internal/core/lifecycle"
	"karpenter.sh/karpenter/internal/explain/board"
	"karpenter.sh/karpenter/internal/explain/sentence"
	"karpenter.sh/karpenter/internal/history/journal"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// Telling is where the loop reports what it finds and does.
type Telling struct {
	Metrics *telemetry.Metrics
	Events  *telemetry.Events
	Journal *journal.Journal // may be nil
	// Verdicts receives what was found. It may be nil.
	Verdicts *board.Board
	// NeverReady receives replacements that joined and were not initialised in time. It may be nil.
	NeverReady func(*v1.NodeClaim)
}

// A teller turns findings into events, metrics and journal records. It remembers what it has reported, so that it reports news only, and
// removes the metrics of pools that are gone.
type teller struct {
	Telling
	pools map[string]bool // pools that have metrics
	// passing is since when a state that ends by itself has kept a claim, by claim and code.
	passing map[[2]string]time.Time
	// candidates is when a step was announced, by its ID.
	candidates map[string]time.Time
	held       map[[2]string]disrupt.Code // what kept a claim in the last turn, by claim and reason (see writeHeld)
	used       map[heldBudget]bool        // the budgets that were used up in the last turn
	said       board.Disruption           // what the views of the cluster were given last
}

func newTeller(t Telling) *teller {
	return &teller{Telling: t, pools: map[string]bool{}, candidates: map[string]time.Time{}}
}

// candidatesAgain is how long a step that is found again is not announced again. Its outcome is reported each time.
const candidatesAgain = time.Hour

// leastStateAge is how long a state that ends by itself must have lasted to be worth an event. Every machine that boots goes
// through some of these states.
const leastStateAge = 2 * time.Minute

// refs returns references to the Node and the claim of a row, as far as they exist.
func refs(n *cluster.Node) []corev1.ObjectReference { return telemetry.Refs(n.Node, n.Claim) }

// methods pairs each method with the reason of its steps.
var methods = []struct {
	method disrupt.Method
	reason v1.DisruptionReason
}{
	{disrupt.Repair, v1.DisruptionReasonUnhealthy},
	{disrupt.Emptiness, v1.DisruptionReasonEmpty},
	{disrupt.Drift, v1.DisruptionReasonDrifted},
	{disrupt.MultiNode, v1.DisruptionReasonUnderutilized},
	{disrupt.SingleNode, v1.DisruptionReasonUnderutilized},
}

// proposal reports what one pass of the planner found: metrics, events about nodes that stay and why, budgets, and steps. took is how
// long the pass took. An idle pass has found nothing new, and is not reported.
func (t *teller) proposal(ctx context.Context, w *disrupt.World, out *disrupt.Proposal, took time.Duration) {
	if out.Idle {
		return
	}
	for _, m := range methods {
		t.Metrics.DisruptionEvaluation.WithLabelValues(metricReason(m.reason), m.method.ConsolidationType()).Observe(took.Seconds())
		t.Metrics.DisruptionEligibleNodes.WithLabelValues(metricReason(m.reason)).Set(float64(out.Eligible[m.method]))
	}
	passing := map[[2]string]time.Time{}
	for i := range out.Blocks {
		if b := &out.Blocks[i]; b.Code == disrupt.Paused || b.Code == disrupt.Rollout {
			continue // the operator who paused it knows, and the pools or policies say so
		} else if !b.Code.Passes() || t.lasts(b, w.Now, passing) {
			t.blocked(w, b)
		}
	}
	t.passing = passing
	t.protections(w)
	maps.DeleteFunc(t.candidates, func(_ string, told time.Time) bool { return w.Now.Sub(told) >= candidatesAgain })
	for _, note := range out.Notes {
		if n := w.Snap.ClaimNode(note.Claim); n != nil {
			t.Events.Tell(refs(n), telemetry.Unconsolidatable, sentence.Refusal(note))
		}
	}
	t.budgets(w, out)
	t.writeHeld(w, out)
	t.say(w, out)
	for _, step := range out.Steps {
		t.proposed(ctx, step)
	}
	for _, step := range out.Rejected {
		t.judged(ctx, step, "rejected")
	}
}

func metricReason(r v1.DisruptionReason) string { return strings.ToLower(string(r)) }

// lasts reports whether a state that ends by itself has lasted for leastStateAge. It notes in passing since when it has lasted.
func (t *teller) lasts(b *disrupt.Refusal, now time.Time, passing map[[2]string]time.Time) bool {
	key := [2]string{b.Claim, string(b.Code)}
	since, known := t.passing[key]
	if !known {
		since = now
	}
	passing[key] = since
	return now.Sub(since) >= leastStateAge
}

// blocked publishes an event on a node that may not go and on its claim, and on the pools whose limits or broken nodes are the cause.
func (t *teller) blocked(w *disrupt.World, b *disrupt.Refusal) {
	n := w.Snap.ClaimNode(b.Claim)
	if n == nil {
		return
	}
	why := sentence.Refusal(*b)
	if b.Code == disrupt.TooManyBroken {
		concerned := append(refs(n), telemetry.PoolRef(w.Pools[b.Name].Pool))
		t.Events.Tell(concerned, telemetry.NodeRepairBlocked, why)
		return
	}
	t.Events.Tell(refs(n), telemetry.DisruptionBlocked, why, string(b.Code))
	for _, name := range b.Limits {
		if p := cluster.Pools.Get(w.Snap, name); p != nil {
			message := fmt.Sprintf("a limit holds up node %s: %s", n.Name, why)
			t.Events.Publish(telemetry.Event{Object: telemetry.PoolRef(p), Reason: telemetry.DisruptionBlocked,
				Message: message, Key: []string{name, "limit"}})
		}
	}
}

// protections publishes events about do-not-disrupt annotations of pods that protect for a time only or cannot be read. The author of an
// annotation that cannot be read believes that the pod is safe.
func (t *teller) protections(w *disrupt.World) {
	for n := range w.Snap.Nodes() {
		if _, ours := w.Pools[n.Pool()]; !ours || n.Claim == nil {
			continue
		}
		for _, p := range n.Pods {
			if p.DoNotDisrupt == "" { // nearly all pods
				continue
			}
			if e, ok := protection.Event(p, w.Now); ok {
				t.Events.Publish(e)
			}
		}
	}
}

// budgets reports what budgets allow and hold back: metrics for each pool, and events for budgets that cannot be read or are used up.
func (t *teller) budgets(w *disrupt.World, out *disrupt.Proposal) {
	for pool := range t.pools {
		if out.Counts[pool] == nil {
			labels := map[string]string{"nodepool": pool}
			t.Metrics.PoolAllowedDisruptions.DeletePartialMatch(labels)
			t.Metrics.PoolNodesConsumingBudgets.DeletePartialMatch(labels)
			t.Metrics.DisruptionHeldBackSavings.DeletePartialMatch(labels)
			delete(t.pools, pool)
		}
	}
	for pool, count := range out.Counts {
		t.pools[pool] = true
		for reason, allowed := range count.Raw {
			t.Metrics.PoolAllowedDisruptions.WithLabelValues(pool, metricReason(reason)).Set(float64(allowed))
			t.Metrics.PoolNodesConsumingBudgets.WithLabelValues(pool, metricReason(reason)).Set(float64(count.Uses(reason)))
		}
		t.Metrics.DisruptionHeldBackSavings.WithLabelValues(pool).Set(out.HeldBack[pool].Dollars())
		if count.Err != nil {
			message := fmt.Sprintf("no node is disrupted, because a budget cannot be read: %v", count.Err)
			t.Events.Publish(telemetry.Event{Object: telemetry.PoolRef(w.Pools[pool].Pool),
				Reason: telemetry.DisruptionBlocked, Message: message, Key: []string{pool, message}})
		}
	}
	for _, pool := range slices.Sorted(maps.Keys(out.Budgets)) {
		for _, reason := range out.Budgets[pool] {
			message := fmt.Sprintf("no more disruptions are allowed for reason %s by the pool's budgets now", reason)
			if held := out.HeldBack[pool]; held > 0 {
				message += fmt.Sprintf("; they hold back savings of $%.4f an hour", held.Dollars())
			}
			t.Events.Publish(telemetry.Event{Object: telemetry.PoolRef(w.Pools[pool].Pool),
				Reason: telemetry.DisruptionBlocked, Message: message, Key: []string{pool, string(reason)}})
		}
	}
}

// proposed reports a step of consolidation that waits for its second look: an event on its nodes, not again within candidatesAgain, and
// the scores of pools with policy Balanced.
func (t *teller) proposed(ctx context.Context, step *disrupt.Step) {
	if step.Reason != v1.DisruptionReasonUnderutilized {
		return
	}
	if now := time.Now(); now.Sub(t.candidates[step.ID()]) >= candidatesAgain {
		t.candidates[step.ID()] = now
		for _, c := range step.Remove {
			t.Events.Tell(refs(c.Node), telemetry.ConsolidationCandidate,
				sentence.Step(step)+", "+sentence.Saves(step.Saves().Dollars()), step.ID())
		}
	}
	pools := t.judged(ctx, step, "approved")
	for _, s := range step.Score {
		message := fmt.Sprintf("score %.2f, threshold 0.50 (k=2): saves %.1f%% of the pool's price for %.1f%% of its "+
			"disruption", s.Score, 100*s.Savings, 100*s.Disruption)
		if len(step.Remove) == 1 {
			t.Events.Tell(refs(step.Remove[0].Node), telemetry.ConsolidationApproved, message)
		} else {
			t.Events.Publish(telemetry.Event{Object: telemetry.PoolRef(pools[s.Pool]),
				Reason: telemetry.ConsolidationApproved, Message: message, Key: []string{s.Pool, message}})
		}
	}
}

// judged counts a step of consolidation for each of its pools, with the decision about it ("approved", "rejected") and the scores of
// pools with policy Balanced. It returns the pools by name.
func (t *teller) judged(ctx context.Context, step *disrupt.Step, decision string) map[string]*v1.NodePool {
	pools := map[string]*v1.NodePool{}
	for _, c := range step.Remove {
		pools[c.Pool.Name] = c.Pool
	}
	for name, pool := range pools {
		t.Metrics.ConsolidationMoves.WithLabelValues(decision, name, string(pool.Spec.Disruption.ConsolidationPolicy)).Inc()
	}
	for _, s := range step.Score {
		t.Metrics.ConsolidationScore.WithLabelValues(decision, s.Pool,
			string(pools[s.Pool].Spec.Disruption.ConsolidationPolicy)).Observe(s.Score)
		telemetry.Log(ctx).Debug("consolidation score", "NodePool", s.Pool, "command", sentence.Step(step), "score",
			fmt.Sprintf("%.2f", s.Score), "savings_fraction", s.Savings, "disruption_fraction", s.Disruption,
			"threshold", 0.5, "approved", decision == "approved")
	}
	return pools
}

// rejected reports a step that Confirm refused: in the journal, the metric of failed validations and, unless it is about an empty node,
// by events on its nodes.
func (t *teller) rejected(step *disrupt.Step, snap *cluster.Snapshot, cause disrupt.Code) {
	t.writeStep(journal.HeldBack, step, snap, sentence.Step(step)+", "+rejection(cause))
	if cause != disrupt.Scheduling {
		t.Metrics.DisruptionFailedValidations.WithLabelValues(step.Method.ConsolidationType()).Add(float64(len(step.Remove)))
	}
	if step.Method == disrupt.Emptiness {
		return
	}
	for _, c := range step.Remove {
		t.Events.Tell(refs(c.Node), telemetry.ConsolidationRejected, sentence.Step(step)+", "+rejection(cause), step.ID())
	}
}

// starting logs a decision, in one line.
func (t *teller) starting(ctx context.Context, step *disrupt.Step) {
	telemetry.Log(ctx).Info("disrupting node(s)", "command", sentence.Step(step), "reason", metricReason(step.Reason),
		"decision", step.Decision(),
		"disrupted-node-count", len(step.Remove), "replacement-node-count", len(step.Open), "pod-count", step.Pods(),
		"disrupted-nodes", disrupted(step), "replacement-nodes", replacements(step),
		"estimated-savings", sentence.PerHour(step.Saves().Dollars()))
}

// Log lines about nodes have the form that queries over logs know.
type (
	named struct {
		Name string `json:"name"`
	}
	leaves struct {
		Node         named  `json:"Node"`
		NodeClaim    named  `json:"NodeClaim"`
		InstanceType string `json:"instance-type"`
		CapacityType string `json:"capacity-type"`
	}
	comes struct {
		CapacityType  string `json:"capacity-type"`
		InstanceTypes string `json:"instance-types,omitempty"` // of a single replacement
	}
)

// disrupted lists the removed nodes of a step for a log line.
func disrupted(step *disrupt.Step) []leaves {
	out := make([]leaves, len(step.Remove))
	for i, c := range step.Remove {
		labels := c.Node.Labels()
		out[i] = leaves{named{c.Name()}, named{c.Node.Claim.Name}, labels[corev1.LabelInstanceTypeStable], labels[v1.CapacityTypeLabelKey]}
	}
	return out
}

// replacements lists the openings of a step for a log line.
func replacements(step *disrupt.Step) []comes {
	out := make([]comes, len(step.Open))
	for i := range step.Open {
		out[i].CapacityType = step.Open[i].CapacityType
	}
	if len(step.Open) == 1 {
		out[0].InstanceTypes = telemetry.FirstFew(step.Open[0].Types, telemetry.Itself)
	}
	return out
}

// started counts a step that was begun, and adds it to the journal.
func (t *teller) started(step *disrupt.Step, snap *cluster.Snapshot) {
	t.writeStep(journal.Stepped, step, snap, sentence.Step(step))
	labels := []string{step.Decision(), metricReason(step.Reason), step.Method.ConsolidationType()}
	t.Metrics.DisruptionDecisions.WithLabelValues(labels...).Inc()
	pools := map[string]bool{}
	for _, c := range step.Remove {
		pools[c.Pool.Name] = true
		if step.First != "" {
			t.Metrics.DisruptionTerminateFirst.WithLabelValues(c.Pool.Name, metricReason(step.Reason), string(step.First)).Inc()
		}
	}
	for pool := range pools {
		t.Metrics.DisruptionDecisionsByPool.WithLabelValues(append([]string{pool}, labels...)...).Inc()
	}
}

// waiting publishes events on a replacement that has not been initialized.
func (t *teller) waiting(claim *v1.NodeClaim) {
	t.Events.Tell(telemetry.Refs(nil, claim), telemetry.DisruptionLaunching, "launching as a replacement of disrupted nodes")
	t.Events.Tell(telemetry.Refs(nil, claim), telemetry.DisruptionWaitingReadiness, "the nodes it replaces wait until it is initialized")
}

// removed counts a candidate whose claim was deleted, and publishes an event. The metric names the pool's consolidation policy only where
// that policy decides: not for drifted and broken nodes.
func (t *teller) removed(n *cluster.Node, reason v1.DisruptionReason, pool *v1.NodePool, pods int) {
	t.Events.Tell(refs(n), telemetry.DisruptionTerminating, "disrupting the node: "+string(reason))
	policy := v1.ConsolidationPolicy("")
	if pool != nil && reason != v1.DisruptionReasonDrifted && reason != v1.DisruptionReasonUnhealthy {
		policy = pool.Spec.Disruption.ConsolidationPolicy
	}
	t.Metrics.Disrupted(n.Claim, metricReason(reason), policy, pods)
}

// repaired counts a broken node whose claim was deleted.
func (t *teller) repaired(n *cluster.Node, repairs *lifecycle.Repairs, reason v1.DisruptionReason) {
	if reason != v1.DisruptionReasonUnhealthy || n.Node == nil {
		return
	}
	if fault := repairs.Of(n.Node, n.Claim, time.Now()); fault != nil {
		t.Metrics.Unhealthy(n.Node, n.Claim, fault.Condition.Type, fault.Grace)
	}
}

// neverReady reports the replacements that have joined the cluster and were not initialized: they count against the readiness of the
// pool's nodes.
func (t *teller) neverReady(snap *cluster.Snapshot, c *command) {
	if t.NeverReady == nil {
		return
	}
	for _, name := range c.Replacements {
		if n := snap.ClaimNode(name); n != nil && !c.initialized[name] && condition.IsTrue(n.Claim, v1.ConditionTypeRegistered) {
			t.NeverReady(n.Claim)
		}
	}
}

// A refusal is an error because a pool may not open what was asked for.
type refusal interface {
	error
	RefusedBy() string // the name of the pool
}

// failed reports why a command was taken back: in the journal, by events on its candidates and on a pool that refused a replacement. It
// counts the replacements that were not initialized.
func (t *teller) failed(snap *cluster.Snapshot, c *command, why error) {
	t.writeFailed(snap, c, why)
	for _, m := range c.Candidates {
		if n := m.Node(snap); n != nil {
			t.Events.Tell(refs(n), telemetry.DisruptionFailed, fmt.Sprintf("the node stays for now (%s): %v", c.Reason, why))
		}
	}
	if refused, ok := errors.AsType[refusal](why); ok {
		if pool := cluster.Pools.Get(snap, refused.RefusedBy()); pool != nil {
			message := fmt.Sprintf("%d node(s) are not replaced (%s): %v", len(c.Candidates), c.Reason, refused)
			t.Events.Publish(telemetry.Event{Object: telemetry.PoolRef(pool), Reason: telemetry.DisruptionFailed,
				Message: message, Key: []string{pool.Name, refused.Error()}})
		}
	}
	decision := "delete"
	if len(c.Replacements) > 0 {
		decision = "replace"
	}
	missing := len(c.Replacements) - len(c.initialized)
	t.Metrics.DisruptionQueueFailures.WithLabelValues(decision, metricReason(c.Reason), string(c.Method)).Add(float64(missing))
}

// reasonCondition returns the condition that marks a claim as being disrupted.
func reasonCondition(reason v1.DisruptionReason) metav1.Condition {
	return metav1.Condition{Type: v1.ConditionTypeDisruptionReason, Status: metav1.ConditionTrue,
		Reason: string(reason), Message: string(reason)}
}
