package hint

import (
	"context"
	"maps"
	"sync"
	"time"

	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/cluster/podclass"
	"karpenter.sh/karpenter/internal/kit/sleep"
)

// Nodes that become ready about the same time are opened together. kube-scheduler tries every waiting pod whenever a node
// opens, and a pod that fails then loses its hint, also one whose own node was about to open.
const (
	// gatherTime is how long a group waits for the next node of the plan, and gatherTimeMost for all of them.
	gatherTime     = time.Second
	gatherTimeMost = 3 * time.Second
	// idleTimeout is how long a group waits while no hint is written, and writeTimeout for all of its hints: the API server may be slow.
	// If a node opens without its hints, pods that were planned for other nodes take its room, and machines are bought for its own pods.
	idleTimeout  = 3 * time.Second
	writeTimeout = 15 * time.Second
	// groupInterval is the time between two looks at a group.
	groupInterval = 50 * time.Millisecond
	// writeRounds is how often missing hints are looked for after the group has gathered: hints that were wiped are written again.
	writeRounds = 2
)

// A group is nodes that open together: they lose the last taint that keeps pods away at the same moment.
type group struct {
	nodes  opening
	began  time.Time
	joined time.Time     // when the last node joined
	opened chan struct{} // closed when the nodes may open
}

// Before is called just before a node opens (loses the last taint that keeps pods away). It waits until the hints of the pods that are
// planned for the node's group are written, at most for the times above.
func (l *Loop) Before(ctx context.Context, node string) {
	if l.off.Load() {
		return
	}
	g, leads := l.join(node)
	if leads {
		l.open(ctx, g)
		return
	}
	select {
	case <-ctx.Done():
	case <-g.opened:
	}
}

// join puts a node into the group that opens next. leads is true for the first node of a group: its caller writes the hints for all.
func (l *Loop) join(node string) (g *group, leads bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if leads = l.next == nil; leads {
		l.next = &group{nodes: opening{}, began: now, opened: make(chan struct{})}
	}
	l.next.nodes[node], l.next.joined = true, now
	return l.next, leads
}

// open writes the hints of a group while it gathers, and releases the group when all are written, the API server does not take them, or
// writeTimeout has passed.
func (l *Loop) open(ctx context.Context, g *group) {
	defer l.release(g)
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	for round := 1; round <= writeRounds; {
		gathering := l.waitsForMore(g)
		wrote, alive := l.writeMissing(ctx, g, gathering)
		if !gathering {
			round++
		}
		if !alive || !gathering && !wrote || !sleep.For(ctx, groupInterval) { // meanwhile the watch may show hints that were wiped
			return
		}
	}
}

// release lets the nodes of a group open. If the group was still gathering, the next node starts another group.
func (l *Loop) release(g *group) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.next == g {
		l.next = nil
	}
	close(g.opened)
}

// endWhenIdle calls end, which ends ctx, once no hint was written for idleTimeout. It returns when ctx ends.
func (l *Loop) endWhenIdle(ctx context.Context, end context.CancelFunc) {
	for wrote := l.wrote.Load(); sleep.For(ctx, idleTimeout); wrote = l.wrote.Load() {
		if l.wrote.Load() == wrote {
			end()
		}
	}
}

// waitsForMore reports whether the group goes on gathering nodes. If not, it closes the group: the next node starts another one.
func (l *Loop) waitsForMore(g *group) bool {
	snap := l.store.Snapshot()
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if now.Sub(g.joined) < gatherTime && now.Sub(g.began) < gatherTimeMost && othersToOpen(snap, g) {
		return true
	}
	l.next = nil
	return false
}

// othersToOpen reports whether pods are planned for another Karpenter node that has yet to open.
func othersToOpen(snap *cluster.Snapshot, g *group) bool {
	last := ""
	for _, p := range snap.Plans() {
		if p.Target == last { // neighbours often go to the same node
			continue
		}
		last = p.Target
		n := snap.Target(p.Target)
		if n != nil && n.Claim != nil && !n.MarkedForRemoval && (n.Node == nil || !n.Initialized() && !g.nodes[n.Node.Name]) {
			return true
		}
	}
	return false
}

// writeMissing writes the missing hints of pods that are planned for the group. It reports whether there were any, and whether writing
// was not ended because it was idle or took too long. The unhinted class gets hints only if the group has gathered and other pods
// without hints wait for nodes outside it (othersWait).
func (l *Loop) writeMissing(ctx context.Context, g *group, gathering bool) (wrote, alive bool) {
	ctx, end := context.WithCancel(ctx)
	defer end()
	go l.endWhenIdle(ctx, end)
	snap := l.store.Snapshot()
	nodes := l.nodesOf(g)
	unhinted := l.unhintedClass(snap)
	if !gathering && othersWait(snap, nodes, unhinted) {
		unhinted = nil
	}
	var wg sync.WaitGroup
	for key, p := range snap.Plans() {
		n := nodes.opens(snap.Target(p.Target))
		if n == nil || !usable(n) {
			continue
		}
		if pod := snap.Pod(key); pod != nil && pod.Class != unhinted && l.needsHint(pod, n) {
			wrote = true
			l.remember(pod, n)
			l.start(ctx, &wg, pod, n.Node.Name)
		}
	}
	wg.Wait()
	return wrote, ctx.Err() == nil
}

// An opening is a set of names of nodes that open together.
type opening map[string]bool

// nodesOf returns a copy of the group's nodes: others may join meanwhile.
func (l *Loop) nodesOf(g *group) opening {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(g.nodes)
}

// opens returns n if it is one of the nodes, else nil.
func (o opening) opens(n *cluster.Node) *cluster.Node {
	if n == nil || n.Node == nil || !o[n.Node.Name] {
		return nil
	}
	return n
}

// othersWait reports whether pods of other classes, which have no hints yet, wait for nodes outside the group. They would take the room
// of pods of the unhinted class, so then that class gets hints as well.
func othersWait(snap *cluster.Snapshot, nodes opening, unhinted *podclass.Class) bool {
	for key, p := range snap.Plans() {
		pod := snap.Pod(key)
		if pod != nil && pod.NodeName == "" && pod.Class != unhinted && pod.NominatedNode == "" &&
			pod.OurHint == "" && nodes.opens(snap.Target(p.Target)) == nil {
			return true
		}
	}
	return false
}
