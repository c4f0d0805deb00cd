package disruption

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/disrupt"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/kit/bug"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// aside is what is left out because the planner panicked over it.
type aside struct {
	claims bug.Aside[types.UID]
	pools  bug.Aside[string]
	all    time.Time // until then no node is looked at
}

// apply hides from the planner what is left aside: nodes count as busy, so they are neither removed nor used as room, and pools are
// left out of the world.
func (a *aside) apply(w *disrupt.World) {
	a.claims.Sweep(w.Now)
	a.pools.Sweep(w.Now)
	for uid := range a.claims.All() {
		w.Busy[uid] = true
	}
	if !a.pools.Empty() {
		w.Pools = maps.Clone(w.Pools)
		maps.DeleteFunc(w.Pools, func(name string, _ engine.Pool) bool { _, left := a.pools.Has(name); return left })
	}
}

// propose asks the planner. If the planner panics, propose finds the nodes or pools that cause it, leaves these aside and returns the
// proposal for the rest: one node must not keep the controller from looking after all others.
func (l *Loop) propose(ctx context.Context, w *disrupt.World) *disrupt.Proposal {
	if w.Now.Before(l.aside.all) {
		return &disrupt.Proposal{Idle: true, Next: l.aside.all}
	}
	var out *disrupt.Proposal
	err := l.safely("looking for nodes to remove", func() { out, l.memory = disrupt.Propose(w, l.memory) })
	broken, ok := errors.AsType[*bug.Panic](err)
	if !ok {
		return out
	}
	l.memory = l.memory.Afresh()
	return l.find(ctx, w, broken)
}

// find finds what the planner panics over, leaves it aside and returns the proposal for the rest. It first looks for nodes, and if
// leaving out nodes does not help, for pools. If neither helps, nothing is looked at for a while. The last call of fails that does not
// panic sets out and l.memory.
func (l *Loop) find(ctx context.Context, w *disrupt.World, broken *bug.Panic) *disrupt.Proposal {
	out := &disrupt.Proposal{Idle: true}
	fails := func(w *disrupt.World) bool {
		return bug.Panics(func() { out, l.memory = disrupt.Propose(w, l.memory.Afresh()) })
	}
	enough := bug.Patience(ctx)
	all := candidates(w)
	nodes, unknown := bug.Culprits(all, func(some []*cluster.Node) bool { return fails(withNodes(w, all, some)) }, enough)
	if len(nodes)+len(unknown) < len(all) {
		l.leaveNodes(ctx, nodes, w.Now, broken)
		return out
	}
	names := slices.Sorted(maps.Keys(w.Pools))
	pools, rest := bug.Spoilers(names, func(some []string) bool { return fails(withPools(w, some)) }, enough)
	if len(pools)+len(rest) < len(names) {
		l.leavePools(ctx, w, pools, broken)
		return out
	}
	telemetry.Log(ctx).Error("no node can be looked at because of a bug", "again", bug.AllAsideFor, "error", broken)
	l.aside.all = w.Now.Add(bug.AllAsideFor)
	return out
}

// candidates are the nodes that the planner may look at.
func candidates(w *disrupt.World) []*cluster.Node {
	var out []*cluster.Node
	for n := range w.Snap.Nodes() {
		if n.Claim != nil && !w.Busy[n.Claim.UID] {
			out = append(out, n)
		}
	}
	return out
}

// withNodes is the world with only some of its machines to be looked at.
func withNodes(w *disrupt.World, all, some []*cluster.Node) *disrupt.World {
	less := *w
	less.Busy = maps.Clone(w.Busy)
	for _, n := range all {
		less.Busy[n.Claim.UID] = true
	}
	for _, n := range some {
		delete(less.Busy, n.Claim.UID)
	}
	return &less
}

// withPools is the world with only some of its pools.
func withPools(w *disrupt.World, some []string) *disrupt.World {
	less := *w
	less.Pools = map[string]engine.Pool{}
	for _, name := range some {
		less.Pools[name] = w.Pools[name]
	}
	return &less
}

const doesNotDisrupt = "does not disrupt it"

// leaveNodes leaves nodes aside for a while, and reports each in the log and by an event.
func (l *Loop) leaveNodes(ctx context.Context, nodes []*cluster.Node, now time.Time, broken *bug.Panic) {
	until := now.Add(bug.AsideFor)
	for _, n := range nodes {
		why := l.aside.claims.Leave(n.Claim.UID, until, "node", doesNotDisrupt, broken)
		telemetry.Log(ctx).Error("a node is not disrupted because of a bug", "NodeClaim", n.Claim.Name, "until", until, "error", broken)
		l.tell.Events.Tell(refs(n), telemetry.LeftOut, why)
	}
}

// leavePools leaves pools aside for a while, and reports each in the log and by an event.
func (l *Loop) leavePools(ctx context.Context, w *disrupt.World, pools []string, broken *bug.Panic) {
	until := w.Now.Add(bug.AsideFor)
	for _, name := range pools {
		why := l.aside.pools.Leave(name, until, "pool", doesNotDisrupt, broken)
		telemetry.Log(ctx).Error("a pool is not disrupted because of a bug", "NodePool", name, "until", until, "error", broken)
		l.tell.Events.Publish(telemetry.Event{
			Object: telemetry.PoolRef(w.Pools[name].Pool), Reason: telemetry.LeftOut, Key: []string{name}, Message: why,
		})
	}
}
