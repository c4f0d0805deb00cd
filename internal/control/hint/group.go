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
	// gatherTime is how long a node waits for the next one of the plan, and gatherTimeMost for all of them.
	gatherTime     = time.Second
	gatherTimeMost = 3 * time.Second
	// idleTimeout is how long a group waits while no hint is written, and writeTimeout for all of its hints: the API server may be slow.
	// The room of a node that opens without its hints is taken by pods that were meant for other nodes, and machines are bought
	// for those it was meant for.
	idleTimeout  = 3 * time.Second
	writeTimeout = 15 * time.Second
	// groupInterval is the time between two looks at a group.
	groupInterval = 50 * time.Millisecond
	// writeRounds is how often the hints of a group are looked at before it is opened: those that were wiped are written again.
	writeRounds = 2
)

// A group is nodes that lose the last taint that keeps pods away at the same moment.
type group struct {
	nodes  opening
	began  time.Time
	joined time.Time // the last of them
	opened chan struct{}
}

// Before is called just before a node loses the last taint that keeps pods away. It returns when the hints of the planned
// pods of the node, and of those that open with it, are written, or soon.
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

// join puts a node into the group that opens next. The first one of a group leads it.
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

// open writes the hints of a group while it gathers, and ends when all are written.
func (l *Loop) open(ctx context.Context, g *group) {
	defer l.release(g)
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	for round := 1; round <= writeRounds; {
		gathering := l.waitsForMore(g)
		told, alive := l.writeMissing(ctx, g, gathering)
		if !gathering {
			round++
		}
		if !alive || !gathering && !told || !sleep.For(ctx, groupInterval) { // until the watch tells what became of them
			return
		}
	}
}

// release lets the nodes of a group open. The next one starts another group, also where this one ended before it had gathered.
func (l *Loop) release(g *group) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.next == g {
		l.next = nil
	}
	close(g.opened)
}

// endWhenIdle ends ctx once no hint was written for a while.
func (l *Loop) endWhenIdle(ctx context.Context, end context.CancelFunc) {
	for wrote := l.wrote.Load(); sleep.For(ctx, idleTimeout); wrote = l.wrote.Load() {
		if l.wrote.Load() == wrote {
			end()
		}
	}
}

// waitsForMore reports whether the group stays open for more nodes. When it does not, the next node starts another one.
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

// writeMissing writes the hints that are missing, and reports whether there were any, and whether the API server
// takes them. While the group gathers the most frequent pods are not told: the last nodes of the plan may still
// come.
func (l *Loop) writeMissing(ctx context.Context, g *group, gathering bool) (told, alive bool) {
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
			told = true
			l.remember(pod, n)
			l.start(ctx, &wg, pod, n.Node.Name)
		}
	}
	wg.Wait()
	return told, ctx.Err() == nil
}

// opening is names of nodes that open together.
type opening map[string]bool

func (l *Loop) nodesOf(g *group) opening {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(g.nodes)
}

// opens returns n if it is one of them.
func (o opening) opens(n *cluster.Node) *cluster.Node {
	if n == nil || n.Node == nil || !o[n.Node.Name] {
		return nil
	}
	return n
}

// othersWait reports whether pods of another class than the unhinted one wait for nodes outside the group. They
// have no hints yet, and would take the room of pods of that class that have none either.
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
