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
	// patience is how long the hints of a group may take to be written.
	patience = 3 * time.Second
	// groupInterval is the time between two looks at a group.
	groupInterval = 50 * time.Millisecond
	// rounds is how often the hints of a group are looked at before it is opened: those that were wiped are written again.
	rounds = 2
)

// door is a group of nodes that lose the last taint that keeps pods away at the same moment.
type door struct {
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
	d, leads := l.join(node)
	if leads {
		l.open(ctx, d)
		return
	}
	select {
	case <-ctx.Done():
	case <-d.opened:
	}
}

// join puts a node into the group that opens next. The first one of a group leads it.
func (l *Loop) join(node string) (d *door, leads bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if leads = l.door == nil; leads {
		l.door = &door{nodes: map[string]bool{}, began: now, opened: make(chan struct{})}
	}
	l.door.nodes[node], l.door.joined = true, now
	return l.door, leads
}

func (l *Loop) open(ctx context.Context, d *door) {
	defer close(d.opened)
	for l.gathers(d) && pause.For(ctx, groupInterval) {
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for round := 1; l.tell(ctx, d) && round < rounds; round++ {
		if !pause.For(ctx, groupInterval) { // until the watch tells what became of them
			return
		}
	}
}

// gathers tells whether the group stays open for more nodes. When it does not, the next node starts another one.
func (l *Loop) gathers(d *door) bool {
	snap := l.store.Snapshot()
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if now.Sub(d.joined) < gatherTime && now.Sub(d.began) < gatherTimeMost && expects(snap, d) {
		return true
	}
	l.door = nil
	return false
}

// expects tells whether pods are planned for another node of ours that has yet to open.
func expects(snap *cluster.Snapshot, d *door) bool {
	last := ""
	for _, p := range snap.Plans() {
		if p.Target == last { // neighbours often go to the same node
			continue
		}
		last = p.Target
		n := snap.Target(p.Target)
		if n != nil && n.Claim != nil && !n.MarkedForRemoval && (n.Node == nil || !n.Initialized() && !d.nodes[n.Node.Name]) {
			return true
		}
	}
	return false
}

// tell writes the hints that are missing, and tells whether there were any.
func (l *Loop) tell(ctx context.Context, d *door) bool {
	snap := l.store.Snapshot()
	plain := l.unhinted(snap)
	if strangers(snap, d, plain) {
		plain = nil
	}
	var wg sync.WaitGroup
	any := false
	for key, p := range snap.Plans() {
		n := d.opens(snap.Target(p.Target))
		if n == nil || !usable(n) {
			continue
		}
		if pod := snap.Pod(key); pod != nil && pod.Class != plain && lacks(pod, n) {
			any = true
			l.note(pod, n)
			l.start(ctx, &wg, pod, n.Node.Name)
		}
	}
	wg.Wait()
	return any
}

// opens returns n if it is one of the group.
func (d *door) opens(n *cluster.Node) *cluster.Node {
	if n == nil || n.Node == nil || !d.nodes[n.Node.Name] {
		return nil
	}
	return n
}

// strangers tells whether pods of another class than plain wait for nodes outside the group. They have no hints yet, and would
// take the room of pods of the plain class that have none either.
func strangers(snap *cluster.Snapshot, d *door, plain *podclass.Class) bool {
	for key, p := range snap.Plans() {
		pod := snap.Pod(key)
		if pod != nil && pod.NodeName == "" && pod.Class != plain && pod.NominatedNode == "" && pod.OurHint == "" && d.opens(snap.Target(p.Target)) == nil {
			return true
		}
	}
	return false
}
