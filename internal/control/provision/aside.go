package provision

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/cluster/podclass"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/reason"
	"karpenter.sh/karpenter/internal/kit/bug"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// aside is what is left out of plans because the engine panicked over it.
type aside struct {
	classes bug.Aside[*podclass.Class]
	pools   bug.Aside[string]
}

// around plans without what is left aside. If the engine panics, around finds the classes of pods or the pools that cause it, leaves
// these aside and returns the plan for the rest: one unexpected pod must not cost all others their nodes. Pods that are left out are
// refused.
func (l *Loop) around(ctx context.Context, in engine.Question) *engine.Plan {
	all := in.Pods
	in.Pools, in.Pods = l.aside.without(in.Pools, all, in.Now)
	plan, err := l.planSafely(in)
	if broken, ok := errors.AsType[*bug.Panic](err); ok {
		l.watched.Panicked()
		plan = l.find(ctx, in, broken)
	}
	for _, p := range all {
		if why, left := l.aside.classes.Has(p.Class); left {
			plan.Refused = append(plan.Refused, told(p, reason.LeftAside, why))
		}
	}
	return plan
}

// without returns the pools and pods that are not left aside now.
func (a *aside) without(pools []engine.Pool, pods []*cluster.Pod, now time.Time) ([]engine.Pool, []*cluster.Pod) {
	a.classes.Sweep(now)
	a.pools.Sweep(now)
	if !a.pools.Empty() {
		pools = slices.DeleteFunc(slices.Clone(pools), func(p engine.Pool) bool { _, left := a.pools.Has(p.Pool.Name); return left })
	}
	if !a.classes.Empty() {
		pods = slices.DeleteFunc(slices.Clone(pods), func(p *cluster.Pod) bool { _, left := a.classes.Has(p.Class); return left })
	}
	return pools, pods
}

// planSafely asks the engine, and returns a panic as an error.
func (l *Loop) planSafely(in engine.Question) (plan *engine.Plan, err error) {
	if len(in.Pods) == 0 {
		return &engine.Plan{}, nil
	}
	defer bug.Catch(&err, fmt.Sprintf("planning for %d pod(s)", len(in.Pods)))
	return l.Engine.Plan(in), nil
}

// find finds what the engine panics over, leaves it aside and returns the plan for the rest. It leaves out some classes of pods, or if
// the engine panics over every class, some pools. What it cannot find in the time that it has, later turns find. The last call of fails
// that does not panic sets plan.
func (l *Loop) find(ctx context.Context, in engine.Question, broken *bug.Panic) *engine.Plan {
	plan := &engine.Plan{}
	fails := func(in engine.Question) bool { return bug.Panics(func() { plan = l.Engine.Plan(in) }) }
	enough := bug.Patience(ctx)
	all := classesOf(in.Pods)
	classes, unknown := bug.Culprits(all, func(some []*podclass.Class) bool { return fails(ofClasses(in, some)) }, enough)
	long := bug.AsideFor
	if len(classes) == len(all) && len(unknown) == 0 {
		pools, rest := bug.Spoilers(in.Pools, func(some []engine.Pool) bool {
			in := in
			in.Pools = some
			return fails(in)
		}, enough)
		if len(pools)+len(rest) < len(in.Pools) {
			l.leavePools(ctx, pools, in.Now.Add(bug.AsideFor), broken)
			return plan
		}
		long = bug.AllAsideFor
	}
	l.leaveClasses(ctx, in, classes, in.Now.Add(long), broken)
	return plan
}

// classesOf returns the classes of some pods, in the order of their first pods.
func classesOf(pods []*cluster.Pod) []*podclass.Class {
	var out []*podclass.Class
	seen := map[*podclass.Class]bool{}
	for _, p := range pods {
		if !seen[p.Class] {
			seen[p.Class] = true
			out = append(out, p.Class)
		}
	}
	return out
}

// ofClasses returns the same question about pods of some classes only.
func ofClasses(in engine.Question, classes []*podclass.Class) engine.Question {
	wanted := map[*podclass.Class]bool{}
	for _, c := range classes {
		wanted[c] = true
	}
	in.Pods = slices.DeleteFunc(slices.Clone(in.Pods), func(p *cluster.Pod) bool { return !wanted[p.Class] })
	return in
}

// leavesOut completes the report "Karpenter runs into a bug of its own over this pod and … until …" (bug.Aside.Leave).
const leavesOut = "leaves it out"

// leaveClasses leaves classes of pods aside until a time, and reports that in the log. Their pods get the reason as a refusal (around).
func (l *Loop) leaveClasses(ctx context.Context, in engine.Question, classes []*podclass.Class, until time.Time, broken *bug.Panic) {
	for _, c := range classes {
		pods := ofClasses(in, []*podclass.Class{c}).Pods
		telemetry.Log(ctx).Error("pods are left out of plans because of a bug", "Pods",
			telemetry.FirstFew(pods, podName), "until", until, "error", broken)
		l.aside.classes.Leave(c, until, "pod", leavesOut, broken)
	}
}

// leavePools leaves pools aside until a time, and reports each in the log and by an event.
func (l *Loop) leavePools(ctx context.Context, pools []engine.Pool, until time.Time, broken *bug.Panic) {
	for _, p := range pools {
		telemetry.Log(ctx).Error("a pool is left out of plans because of a bug", "NodePool", p.Pool.Name, "until", until, "error", broken)
		report := l.aside.pools.Leave(p.Pool.Name, until, "pool", leavesOut, broken)
		l.Events.Publish(telemetry.Event{
			Object: telemetry.PoolRef(p.Pool), Reason: telemetry.LeftOut, Key: []string{string(p.Pool.UID)}, Message: report,
		})
	}
}
