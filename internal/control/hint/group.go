package hint

import (
	"context"
	"sync"
	"time"

	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/podclass"
	"karpenter.sh/karpenter/internal/pause"
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
	nodes  map[string]bool
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
		l.next = &group{nodes: map[string]bool{}, began: now, opened: make(chan struct{})}
	}
	l.next.nodes[node], l.next.joined = true, now
	return l.next, leads
}

func (l *Loop) open(ctx context.Context, g *group) {
	defer close(g.opened)
	for l.waitsForMore(g) && pause.For(ctx, groupInterval) {
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	go l.endWhenIdle(ctx, cancel)
	for round := 1; l.writeMissing(ctx, g) && round < writeRounds; round++ {
		if !pause.For(ctx, groupInterval) { // until the watch tells what became of them
			return
		}
	}
}

// endWhenIdle ends ctx once no hint was written for a while.
func (l *Loop) endWhenIdle(ctx context.Context, end context.CancelFunc) {
	for wrote := l.wrote.Load(); pause.For(ctx, idleTimeout); wrote = l.wrote.Load() {
		if l.wrote.Load() == wrote {
			end()
		}
	}
}

// waitsForMore tells whether the group stays open for more nodes. When it does not, the next node starts another one.
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

// othersToOpen tells whether pods are planned for another node of ours that has yet to open.
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

// writeMissing writes the hints that are missing, and tells whether there were any.
func (l *Loop) writeMissing(ctx context.Context, g *group) bool {
	snap := l.store.Snapshot()
	unhinted := l.unhintedClass(snap)
	if othersWait(snap, g, unhinted) {
		unhinted = nil
	}
	var wg sync.WaitGroup
	any := false
	for key, p := range snap.Plans() {
		n := g.opens(snap.Target(p.Target))
		if n == nil || !usable(n) {
			continue
		}
		if pod := snap.Pod(key); pod != nil && pod.Class != unhinted && needsHint(pod, n) {
			any = true
			l.remember(pod, n)
			l.start(ctx, &wg, pod, n.Node.Name)
		}
	}
	wg.Wait()
	return any
}

// opens returns n if it is one of the group.
func (g *group) opens(n *cluster.Node) *cluster.Node {
	if n == nil || n.Node == nil || !g.nodes[n.Node.Name] {
		return nil
	}
	return n
}

// othersWait tells whether pods of another class than the unhinted one wait for nodes outside the group. They have no hints yet, and would
// take the room of pods of that class that have none either.
func othersWait(snap *cluster.Snapshot, g *group, unhinted *podclass.Class) bool {
	for key, p := range snap.Plans() {
		pod := snap.Pod(key)
		if pod != nil && pod.NodeName == "" && pod.Class != unhinted && pod.NominatedNode == "" && pod.OurHint == "" && g.opens(snap.Target(p.Target)) == nil {
			return true
		}
	}
	return false
}
