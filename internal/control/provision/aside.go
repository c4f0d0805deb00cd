package provision

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"karpenter.sh/karpenter/internal/bug"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/lower"
	"karpenter.sh/karpenter/internal/core/podclass"
	"karpenter.sh/karpenter/internal/telemetry"
)

const (
	// asideFor is how long what makes the engine panic is left out, allAsideFor how long where nothing could be planned without panic: then
	// it hangs on what is in the cluster, and may be over soon.
	asideFor    = 10 * time.Minute
	allAsideFor = time.Minute
)

// aside is what is left out of plans because the engine panicked over it, and until when.
type aside struct {
	classes map[*podclass.Class]leftAside
	pools   map[string]leftAside
}

type leftAside struct {
	until time.Time
	why   string
}

// around plans, and when the engine panics plans for everything but what it panics over: one pod that nobody thought of must not cost all
// others their nodes. The pods that are left out are refused.
func (l *Loop) around(ctx context.Context, in lower.Input) *lower.Plan {
	all := in.Pods
	in.Pools, in.Pods = l.aside.without(in.Pools, all, in.Now)
	plan, err := l.try(ctx, in)
	if broken, ok := errors.AsType[*bug.Panic](err); ok {
		l.watched.Panicked()
		plan = l.find(ctx, in, broken)
	}
	for _, p := range all {
		if left, ok := l.aside.classes[p.Class]; ok {
			plan.Refused = append(plan.Refused, lower.Refused{Pod: p, Text: left.why})
		}
	}
	return plan
}

// without returns what is not left aside now.
func (a *aside) without(pools []lower.PoolInput, pods []*cluster.Pod, now time.Time) ([]lower.PoolInput, []*cluster.Pod) {
	over := func(left leftAside) bool { return !now.Before(left.until) }
	maps.DeleteFunc(a.classes, func(_ *podclass.Class, left leftAside) bool { return over(left) })
	maps.DeleteFunc(a.pools, func(_ string, left leftAside) bool { return over(left) })
	if len(a.pools) > 0 {
		pools = slices.DeleteFunc(slices.Clone(pools), func(p lower.PoolInput) bool { _, left := a.pools[p.Pool.Name]; return left })
	}
	if len(a.classes) > 0 {
		pods = slices.DeleteFunc(slices.Clone(pods), func(p *cluster.Pod) bool { _, left := a.classes[p.Class]; return left })
	}
	return pools, pods
}

// try asks the engine.
func (l *Loop) try(ctx context.Context, in lower.Input) (plan *lower.Plan, err error) {
	if len(in.Pods) == 0 {
		return &lower.Plan{}, nil
	}
	defer bug.Catch(&err, fmt.Sprintf("planning for %d pod(s)", len(in.Pods)))
	return l.Engine.Plan(ctx, in), nil
}

// find leaves aside what the engine panics over, and returns the plan for the rest: without some classes of pods if that helps, else
// without some pools. What it has no patience to find now is the next turn's.
func (l *Loop) find(ctx context.Context, in lower.Input, broken *bug.Panic) *lower.Plan {
	plan := &lower.Plan{}
	fails := func(in lower.Input) bool { return bug.Panics(func() { plan = l.Engine.Plan(ctx, in) }) }
	enough := bug.Patience(ctx)
	all := classesOf(in.Pods)
	classes, unknown := bug.Culprits(all, func(some []*podclass.Class) bool { return fails(ofClasses(in, some)) }, enough)
	long := asideFor
	if len(classes) == len(all) && len(unknown) == 0 {
		pools, rest := bug.Spoilers(in.Pools, func(some []lower.PoolInput) bool {
			in := in
			in.Pools = some
			return fails(in)
		}, enough)
		if len(pools)+len(rest) < len(in.Pools) {
			l.leavePools(ctx, pools, in.Now.Add(asideFor), broken)
			return plan
		}
		long = allAsideFor
	}
	l.leaveClasses(ctx, in, classes, in.Now.Add(long), broken)
	return plan
}

// classesOf returns the classes of some pods in the order in which they come.
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

// ofClasses is the same question about pods of some classes only.
func ofClasses(in lower.Input, classes []*podclass.Class) lower.Input {
	wanted := map[*podclass.Class]bool{}
	for _, c := range classes {
		wanted[c] = true
	}
	in.Pods = slices.DeleteFunc(slices.Clone(in.Pods), func(p *cluster.Pod) bool { return !wanted[p.Class] })
	return in
}

// reported is what everybody is told about a bug of ours that concerns them.
const reported = "Karpenter runs into a bug of its own over this %s and leaves it out until %s; please report it: %v"

func (l *Loop) leaveClasses(ctx context.Context, in lower.Input, classes []*podclass.Class, until time.Time, broken *bug.Panic) {
	for _, c := range classes {
		pods := ofClasses(in, []*podclass.Class{c}).Pods
		telemetry.Log(ctx).Error("pods are left out of plans because of a bug", "Pods", telemetry.FirstFew(pods, podName), "until", until, "error", broken)
		if l.aside.classes == nil {
			l.aside.classes = map[*podclass.Class]leftAside{}
		}
		l.aside.classes[c] = leftAside{until, fmt.Sprintf(reported, "pod", until.UTC().Format(time.TimeOnly), broken.Value)}
	}
}

func (l *Loop) leavePools(ctx context.Context, pools []lower.PoolInput, until time.Time, broken *bug.Panic) {
	for _, p := range pools {
		telemetry.Log(ctx).Error("a pool is left out of plans because of a bug", "NodePool", p.Pool.Name, "until", until, "error", broken)
		if l.aside.pools == nil {
			l.aside.pools = map[string]leftAside{}
		}
		why := fmt.Sprintf(reported, "pool", until.UTC().Format(time.TimeOnly), broken.Value)
		l.aside.pools[p.Pool.Name] = leftAside{until, why}
		l.Events.Publish(telemetry.Event{
			Object: telemetry.PoolRef(p.Pool), Reason: telemetry.LeftOut, Key: []string{string(p.Pool.UID)}, Message: why,
		})
	}
}
