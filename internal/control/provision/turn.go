package provision

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/lifecycle"
	"karpenter.sh/karpenter/internal/core/reason"
	"karpenter.sh/karpenter/internal/explain/sentence"
	"karpenter.sh/karpenter/internal/kit/sleep"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// turn makes a plan for all pods that need one now, and carries it out. last is when the newest pod of the batch was seen, for metrics.
func (l *Loop) turn(ctx context.Context, last time.Time) error {
	snap := l.Store.Snapshot()
	now := time.Now()
	unbound, leaving := waiting(snap, now)
	pods := append(unbound, leaving...)
	if len(pods) == 0 {
		l.memory.looked(snap, nil, outcome{}, now)
		return nil
	}
	l.counted = true
	telemetry.Log(ctx).Info("found provisionable pod(s)", "Pods", telemetry.FirstFew(pods, podName), "duration", now.Sub(last))
	pools, missing := l.pools(ctx, snap, now)
	if len(pools) == 0 {
		telemetry.Log(ctx).Info("no nodepools found that can get nodes", "left-out", missing)
		l.undecidable(snap, pods, missing, now)
		return nil
	}
	sorted := l.spurned.Sort(snap, pods, now)
	in := engine.Question{Snap: snap, Pools: pools, Pods: sorted.Ask, Settings: l.settings.Engine, Now: now,
		LeftOut: l.memory.leftOut(pods),
		Stop:    after(planTime), Ended: func() bool { return ctx.Err() != nil }}
	if books := l.Catalogs.Commitments(ctx, snap, now); books != nil {
		in.Commitments = books.Certain
	}
	remembered := l.Engine.Memory()
	plan := l.plan(ctx, in)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	l.Desk.keep(in, remembered, plan.CutAt)
	l.respectScheduler(ctx, in, sorted, plan)
	return l.carryOut(ctx, snap, pods, answer{plan, missing}, last)
}

// nothingWaits resets the gauges and explanations of the last turn if no pod waits any more. A turn would not do that, since there is
// none without pods.
func (l *Loop) nothingWaits() {
	if !l.counted {
		return
	}
	l.counted = false
	l.Verdicts.Refuse(nil)
	l.Metrics.SchedulingIgnoredPods.Set(0)
	l.Metrics.SchedulingUnschedulablePods.WithLabelValues(name).Set(0)
	l.Metrics.SchedulingPendingPodsByZone.Reset()
}

// pools returns the pools that may get nodes now, by name, and a text about the pools that may not, "" if there are none. Static pools
// are in neither.
func (l *Loop) pools(ctx context.Context, snap *cluster.Snapshot, now time.Time) (out []engine.Pool, missing string) {
	var held []string
	known, notReady := l.Catalogs.Pools(ctx, snap)
	for p := range cluster.Pools.All(snap) {
		in, ok := known[p.Name]
		if !ok || notReady[p.Name] || p.IsStatic() {
			continue
		}
		if hold := lifecycle.Held(snap, p, now); hold != nil {
			held = append(held, sentence.Hold(hold))
			continue
		}
		out = append(out, onTrial(in))
	}
	if text := leftOut(snap, notReady); text != "" {
		held = append(held, text)
	}
	return out, strings.Join(held, "; ")
}

// undecidable ends a turn in which no pool may get nodes. It publishes events on the pods if there are pools that are not ready or held
// (missing). In a cluster without pools nothing is reported, because the pods may be another autoscaler's.
func (l *Loop) undecidable(snap *cluster.Snapshot, pods []*cluster.Pod, missing string, now time.Time) {
	why := map[types.UID]string{}
	for _, p := range pods {
		l.decided(p, now, false)
		if missing != "" && p.NodeName == "" {
			why[p.UID] = "no pool may open nodes; " + missing
			l.refused(p, why[p.UID], "no pools")
		}
	}
	l.Verdicts.Refuse(why)
	l.Metrics.SchedulingUnschedulablePods.WithLabelValues(name).Set(float64(len(pods)))
	l.memory.looked(snap, pods, outcome{}, now)
}

// plan asks the engine, and sets the metrics about the plan and the time that it takes.
func (l *Loop) plan(ctx context.Context, in engine.Question) *engine.Plan {
	id := strconv.FormatUint(in.Snap.Revision(), 10)
	l.Metrics.SchedulingUnschedulablePods.DeleteLabelValues(name)
	depth := l.Metrics.SchedulingQueueDepth.WithLabelValues(name, id)
	depth.Set(float64(len(in.Pods)))
	age := l.Metrics.SchedulingUnfinishedWork.WithLabelValues(name, id)
	began := time.Now()
	aging, stopAging := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() {
		for sleep.For(aging, time.Second) {
			age.Set(time.Since(began).Seconds())
		}
	})
	plan := l.around(ctx, in)
	stopAging()
	done.Wait()
	l.Metrics.SchedulingQueueDepth.DeleteLabelValues(name, id)
	l.Metrics.SchedulingUnfinishedWork.DeleteLabelValues(name, id)
	l.Metrics.SchedulingDuration.WithLabelValues(name).Observe(time.Since(began).Seconds())
	l.countZones(plan.Zones)
	l.Metrics.PlanPrice.WithLabelValues(name).Set(plan.Price.Dollars())
	l.Metrics.PlanBound.WithLabelValues(name, "volume").Set(plan.VolumeBound.Dollars())
	l.Metrics.PlanBound.WithLabelValues(name, "configuration").Set(plan.ConfigBound.Dollars())
	if plan.CutAt > 0 {
		l.Metrics.PlanPartial.WithLabelValues(name).Inc()
		telemetry.Log(ctx).Info("the clock cut a plan short; a machine with more processors to spare might have found a cheaper one",
			"work", plan.CutAt.Seconds(), "duration", time.Since(began), "price", plan.Price.Dollars(), "gap", plan.Gap())
	}
	return plan
}

// leftOutDelay is how long after a plan the pods that it left out are planned for again.
const leftOutDelay = time.Second

// planTime bounds how long a plan may take by the clock. Normally the engine's own bounds of work end it long before; only on a machine
// with too little CPU time the clock does.
const planTime = 10 * time.Second

// after returns a function that reports whether d has passed since its first call.
func after(d time.Duration) (over func() bool) {
	var began time.Time
	return func() bool {
		if began.IsZero() {
			began = time.Now()
		}
		return time.Since(began) >= d
	}
}

// An answer is a plan, and a text about the pools that it could not use.
type answer struct {
	*engine.Plan
	missing string
}

// carryOut records where pods go, reports refused pods, and creates the claims of the plan. If a claim could not be created, its pods
// are due again after 1, 2, 4 or 8 seconds, by the number of failures in a row.
func (l *Loop) carryOut(ctx context.Context, snap *cluster.Snapshot, pods []*cluster.Pod, plan answer, last time.Time) error {
	now := time.Now()
	became := newOutcome()
	l.tryOnce(snap, plan.Plan)
	became.words = plan.words()
	l.place(ctx, snap, plan.Place, became, now)
	l.refuse(ctx, snap, plan.Refused, became, now)
	for i := range plan.Open {
		for _, p := range plan.Open[i].Pods {
			became.planned[p.UID] = true
			l.decided(p, now, true)
		}
	}
	l.write(snap, plan.Plan, became)
	l.Verdicts.Refuse(became.words)
	l.memory.looked(snap, pods, became, now)
	if len(plan.Open) == 0 {
		return nil
	}
	telemetry.Log(ctx).Info("computed new nodeclaim(s) to fit pod(s)", "nodeclaims", len(plan.Open), "pods", podsOf(plan.Open),
		"price", plan.Price.Dollars(), "gap", plan.Gap(), "work", plan.Work.Seconds(), "cut", plan.CutAt > 0)
	displaced := displacedPods(snap, plan.Open)
	claims, err := l.Opener.Open(ctx, lifecycle.Seed("provisioning", snap), "provisioned", plan.Open)
	l.Metrics.UnschedulableToClaim.Observe(time.Since(last).Seconds())
	var failed []*cluster.Pod
	for i, c := range claims {
		o := &plan.Open[i]
		if c == nil {
			failed = append(failed, o.Pods...)
			continue
		}
		if displaced[i] > 0 {
			l.Metrics.MachinesForStrays.WithLabelValues(o.Pool).Inc()
			l.Metrics.MachinesForStraysCost.WithLabelValues(o.Pool).Add(o.Price.Dollars() * float64(displaced[i]) / float64(len(o.Pods)))
		}
	}
	if err == nil {
		l.failures = 0
		return nil
	}
	l.failures = min(l.failures+1, 4)
	l.memory.hurry(failed, time.Now(), time.Second<<(l.failures-1))
	return err
}

// place records in the store the pods that the plan places on nodes that exist or are booting, and publishes events on them.
func (l *Loop) place(ctx context.Context, snap *cluster.Snapshot, placements []engine.Placement, became outcome, now time.Time) {
	if len(placements) == 0 {
		return
	}
	l.Store.Update(func(d *cluster.Draft) {
		for _, p := range placements {
			target := targetOf(snap.Node(p.Node), p.Node)
			if have, ok := snap.Planned(p.Pod.PodKey); !ok || have.Target != target {
				d.Plan(p.Pod.PodKey, target, now)
			}
		}
	})
	unready := map[string]bool{}
	for _, p := range placements {
		became.planned[p.Pod.UID] = true
		l.decided(p.Pod, now, true)
		n := snap.Node(p.Node)
		if n != nil && !n.Initialized() {
			unready[p.Node] = true
		}
		l.Events.Publish(telemetry.Event{
			Object: telemetry.PodRef(p.Pod.Namespace, p.Pod.Name, p.Pod.UID), Reason: telemetry.Nominated,
			Key:     []string{string(p.Pod.UID)},
			Message: "Pod should schedule on: " + describe(n, p.Node),
		})
	}
	if len(unready) > 0 {
		telemetry.Log(ctx).Info("computed unready node(s) will fit pod(s)", "nodes", len(unready), "pods", len(placements))
	}
}

// targetOf returns the name by which seats refer to a row: that of its claim, if it has one, because it stays the same when the Node
// registers.
func targetOf(n *cluster.Node, row string) string {
	if n != nil && n.Claim != nil {
		return n.Claim.Name
	}
	return row
}

// describe returns the names of the claim and the Node of a row for an event, as far as they exist.
func describe(n *cluster.Node, row string) string {
	switch {
	case n == nil:
		return "node/" + row
	case n.Claim == nil:
		return "node/" + n.Name
	case n.Node == nil:
		return "nodeclaim/" + n.Claim.Name
	}
	return "nodeclaim/" + n.Claim.Name + ", node/" + n.Name
}

// refuse handles the pods that the plan refuses: it sets metrics, publishes events on pods whose owner has to act, removes seats that
// these pods still have, and reports to pools and quotas. Pods that the plan left out are only noted.
func (l *Loop) refuse(ctx context.Context, snap *cluster.Snapshot, refused []engine.Refused, became outcome, now time.Time) {
	ignored, unschedulable := 0, 0
	var stale []cluster.PodKey
	for i := range refused {
		r := &refused[i]
		what := judge(r)
		if what == notReached || what == postponed {
			became.leftOut[r.Pod.UID] = true
			if what == postponed && r.Pod.NodeName == "" {
				l.refused(r.Pod, became.words[r.Pod.UID], "postponed")
			}
			continue
		}
		l.decided(r.Pod, now, false)
		if _, ok := snap.Planned(r.Pod.PodKey); ok {
			stale = append(stale, r.Pod.PodKey)
		}
		switch what {
		case deferred:
			telemetry.Log(ctx).Debug("pod waits for reserved capacity", "Pod", podName(r.Pod))
			continue
		case avoids:
			ignored++
			continue
		case invalid:
			ignored++
		case unplaced:
			unschedulable++
		}
		if r.Pod.NodeName != "" {
			continue // it runs, so its owner need not act
		}
		text := became.words[r.Pod.UID]
		if became.refused[r.Pod.UID] = text; l.memory.pods[r.Pod.UID].refusal != text {
			telemetry.Log(ctx).Error("could not schedule pod", "Pod", podName(r.Pod), "error", text)
		}
		l.refused(r.Pod, text)
	}
	l.Metrics.SchedulingIgnoredPods.Set(float64(ignored))
	l.Metrics.SchedulingUnschedulablePods.WithLabelValues(name).Set(float64(unschedulable))
	if len(stale) > 0 {
		l.Store.Update(func(d *cluster.Draft) {
			for _, key := range stale {
				d.Unplan(key)
			}
		})
	}
	l.summarise(snap, refused)
}

// words returns the text of the reasons for each refused pod that does not run.
func (a *answer) words() map[types.UID]string {
	out := make(map[types.UID]string, len(a.Refused))
	var last *engine.Refused
	text := ""
	for i := range a.Refused {
		r := &a.Refused[i]
		if r.Pod.NodeName != "" {
			continue
		}
		if last == nil || !slices.Equal(last.Reasons, r.Reasons) { // pods that are refused alike share the text
			last, text = r, sentence.Explanation(r.Reasons)
			if a.missing != "" && judge(r) == unplaced && !about(r, reason.OnTrial, reason.Spurned) {
				text += "; " + a.missing
			}
		}
		out[r.Pod.UID] = text
	}
	return out
}

// told makes a refusal with a text, for a reason that this package and not the engine found.
func told(p *cluster.Pod, code reason.Code, text string) engine.Refused {
	return engine.Refused{Pod: p, Reasons: []reason.Count{{Code: code, Detail: text}}}
}

// refused publishes an event on a pod with the reason why it has no place. kind is part of the key by which events are deduplicated.
func (l *Loop) refused(p *cluster.Pod, why string, kind ...string) {
	l.Events.Publish(telemetry.Event{
		Object: telemetry.PodRef(p.Namespace, p.Name, p.UID), Reason: telemetry.FailedScheduling,
		Key: append(kind, string(p.UID)), Message: why, Still: l.stillWaits(p),
	})
}

// stillWaits returns a function that reports whether the pod still waits without a place when it is called.
func (l *Loop) stillWaits(p *cluster.Pod) func() bool {
	key, uid := p.PodKey, p.UID
	return func() bool {
		snap := l.Store.Snapshot()
		now := snap.Pod(key)
		if now == nil || now.UID != uid || !snap.IsProvisionable(now) {
			return false
		}
		_, placed := snap.Planned(key)
		return !placed
	}
}

// judgement says what a refusal means for the pod.
type judgement int

const (
	unplaced   judgement = iota // no node and no pool can hold it
	invalid                     // it asks for something that cannot exist
	avoids                      // it does not want a Karpenter node
	deferred                    // it waits for a reservation
	notReached                  // the plan was stopped before it came to the pod
	postponed                   // the same, because there were too many pods
)

// about reports whether one of the reasons has one of these codes.
func about(r *engine.Refused, codes ...reason.Code) bool {
	return slices.ContainsFunc(r.Reasons, func(c reason.Count) bool { return slices.Contains(codes, c.Code) })
}

// judge returns what a refusal means, by the codes of its reasons.
func judge(r *engine.Refused) judgement {
	has := func(codes ...reason.Code) bool { return about(r, codes...) }
	switch {
	case has(reason.NotReached):
		return notReached
	case has(reason.Postponed):
		return postponed
	case has(reason.AvoidsManaged):
		return avoids
	case has(reason.Invalid, reason.RestrictedLabel, reason.VolumeInvalid, reason.DeviceInvalid):
		return invalid
	case has(reason.Reservation):
		return deferred
	}
	return unplaced
}

// decided notes a decision about a pod that waits, and measures how long the first one took.
func (l *Loop) decided(p *cluster.Pod, now time.Time, placed bool) {
	if p.NodeName != "" {
		return
	}
	if waited, first := l.Times.Decided(p.UID, now, placed); first {
		l.Metrics.PodSchedulingDecision.Observe(waited.Seconds())
	}
}

// summarise publishes events on pools and quotas: how many pods each could not hold, and why.
func (l *Loop) summarise(snap *cluster.Snapshot, refused []engine.Refused) {
	l.tellQuotas(snap, refused)
	for _, s := range summaries(snap, refused) {
		p := cluster.Pools.Get(snap, s.pool)
		if s.noTypes != "" {
			l.Events.Publish(telemetry.Event{
				Object: telemetry.PoolRef(p), Reason: telemetry.NoCompatibleInstanceTypes,
				Key: []string{string(p.UID)}, Message: s.noTypes,
			})
		}
		l.Events.Publish(telemetry.Event{
			Object: telemetry.PoolRef(p), Reason: telemetry.PodsUnschedulable, Key: []string{string(p.UID)}, Message: s.text,
		})
	}
}

// tellQuotas publishes an event on each quota that keeps pods waiting, with their number and the limit that is reached.
func (l *Loop) tellQuotas(snap *cluster.Snapshot, refused []engine.Refused) {
	pods, first := map[string]int{}, map[string]reason.Count{}
	for i := range refused {
		seen := map[string]bool{}
		for _, c := range refused[i].Reasons {
			if c.Code != reason.Quota || seen[c.Detail] {
				continue
			}
			seen[c.Detail] = true
			if pods[c.Detail]++; pods[c.Detail] == 1 {
				first[c.Detail] = c
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(pods)) {
		if q := cluster.Quotas.Get(snap, name); q != nil {
			l.Events.Publish(telemetry.Event{Object: telemetry.QuotaRef(q), Reason: telemetry.QuotaReached, Key: []string{string(q.UID)},
				Message: fmt.Sprintf("%d pod(s) wait for room under this quota: %s", pods[name],
					sentence.Explanation([]reason.Count{first[name]}))})
		}
	}
}

// displacedPods counts, for each opening, the pods that had a seat on a registered node that stays, and lost it to other pods.
// (Initialized would be too strict: kube-scheduler binds pods to a node a moment before it is marked as that.)
func displacedPods(snap *cluster.Snapshot, openings []engine.Opening) []int {
	out := make([]int, len(openings))
	for i := range openings {
		for _, p := range openings[i].Pods {
			had, ok := snap.Planned(p.PodKey)
			if n := snap.Target(had.Target); ok && n != nil && n.Registered() && !n.MarkedForRemoval {
				out[i]++
			}
		}
	}
	return out
}

func podsOf(openings []engine.Opening) int {
	n := 0
	for i := range openings {
		n += len(openings[i].Pods)
	}
	return n
}

func podName(p *cluster.Pod) string { return p.Namespace + "/" + p.Name }
