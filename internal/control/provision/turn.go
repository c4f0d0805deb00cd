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

// turn looks, thinks and acts once. last is when the newest pod of the batch was seen.
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

// nothingWaits takes back what the last turn counted, once no pod waits any more: there is no turn without pods.
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

// pools returns the pools that may get nodes now, by name, and says which others there are. The engine ranks them.
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

// undecidable notes that these pods have been looked at and that there is no pool to give them nodes. Their owners hear it if there
// are pools that could, were they ready; in a cluster without pools Karpenter has no say.
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

// plan asks the engine and measures how long it thinks.
func (l *Loop) plan(ctx context.Context, in engine.Question) *engine.Plan {
	id := strconv.FormatUint(in.Snap.Revision(), 10)
	l.Metrics.SchedulingUnschedulablePods.DeleteLabelValues(name)
	depth := l.Metrics.SchedulingQueueDepth.WithLabelValues(name, id)
	depth.Set(float64(len(in.Pods)))
	age := l.Metrics.SchedulingUnfinishedWork.WithLabelValues(name, id)
	began := time.Now()
	aging, grown := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() {
		for sleep.For(aging, time.Second) {
			age.Set(time.Since(began).Seconds())
		}
	})
	plan := l.around(ctx, in)
	grown()
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

// leftOutDelay is when pods that a plan left out are planned for again.
const leftOutDelay = time.Second

// planTime is how long the placing of pods and the search for a cheaper fleet may take by the clock, while pods wait. On a machine that
// is not starved the work that the engine grants itself ends them long before.
const planTime = 10 * time.Second

// after returns a clock that runs from when it is first asked and reports whether d has passed.
func after(d time.Duration) (over func() bool) {
	var began time.Time
	return func() bool {
		if began.IsZero() {
			began = time.Now()
		}
		return time.Since(began) >= d
	}
}

// An answer is a plan, and which pools it had to do without.
type answer struct {
	*engine.Plan
	missing string
}

// carryOut records where pods go and has opened what is missing.
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
	displaced := displaced(snap, plan.Open)
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

// place records the pods that go to nodes that exist or are on their way.
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

// targetOf is what a plan means by a row: its claim, whose name stays the same when its Node comes.
func targetOf(n *cluster.Node, row string) string {
	if n != nil && n.Claim != nil {
		return n.Claim.Name
	}
	return row
}

// describe names the claim and the node of a row, as far as there are any.
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

// refuse tells about pods that have no place.
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
			continue // it runs; there is nothing that its owner would have to do now
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

// words returns, for each refused pod, the reason. A pod that runs waits for nothing.
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

// told is a refusal of our own.
func told(p *cluster.Pod, code reason.Code, text string) engine.Refused {
	return engine.Refused{Pod: p, Reasons: []reason.Count{{Code: code, Detail: text}}}
}

// refused tells the owner of a pod why it has no place, once in a while for each kind of reason.
func (l *Loop) refused(p *cluster.Pod, why string, kind ...string) {
	l.Events.Publish(telemetry.Event{
		Object: telemetry.PodRef(p.Namespace, p.Name, p.UID), Reason: telemetry.FailedScheduling,
		Key: append(kind, string(p.UID)), Message: why, Still: l.stillWaits(p),
	})
}

// stillWaits returns a check whether the pod still waits without a place.
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
	unplaced   judgement = iota // nothing can hold it
	invalid                     // it asks for what can never be given
	avoids                      // it does not want a Karpenter node
	deferred                    // it waits for a reservation
	notReached                  // not looked at yet
	postponed                   // the same, because too much was asked at once
)

// about reports whether one of the reasons has one of these codes.
func about(r *engine.Refused, codes ...reason.Code) bool {
	return slices.ContainsFunc(r.Reasons, func(c reason.Count) bool { return slices.Contains(codes, c.Code) })
}

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

// decided notes a decision about a pod that waits.
func (l *Loop) decided(p *cluster.Pod, now time.Time, placed bool) {
	if p.NodeName != "" {
		return
	}
	if waited, first := l.Times.Decided(p.UID, now, placed); first {
		l.Metrics.PodSchedulingDecision.Observe(waited.Seconds())
	}
}

// summarise tells each pool at once how many pods it could not hold, and why.
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

// tellQuotas tells each quota how many pods it keeps waiting, and of what it allows no more.
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

// displaced counts, for each opening, the pods that had a place on a node that pods can bind to, and lost it to
// others. kube-scheduler binds to what has registered; that it is initialized is written a moment later.
func displaced(snap *cluster.Snapshot, openings []engine.Opening) []int {
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
