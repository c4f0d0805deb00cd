// Package hint tells kube-scheduler where pods are meant to go, and counts whether they went there.
//
// A hint is status.nominatedNodeName of a pod that waits. If it is written too early, kube-scheduler wipes it in its next failed
// attempt. So it is written when the node is about to open, which means that it loses the last taint that keeps pods away, or right
// after that.
//
// Hints are best effort: nothing depends on them. No hints are written if the API server forbids them or kube-scheduler is too old, and
// under load they are dropped. A nomination by another writer is never changed. Our own is removed when the plan changes.
//
// Pods of the most frequent class get no hint (unhintedClass). hint.go has the loop and writes hints; group.go makes nodes that become
// ready at about the same time open together.
package hint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/cluster/podclass"
	"karpenter.sh/karpenter/internal/kit/bug"
	"karpenter.sh/karpenter/internal/kit/sleep"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

const (
	// writesAtOnce is how many hints are written at the same time.
	writesAtOnce = 64
	// mostQueued is how many hints may be written or wait to be written. Others are dropped.
	mostQueued = 4096
	// mostWrites is how often a hint that kube-scheduler wiped is written again.
	mostWrites = 3
)

// Outcomes of the metric about hints.
const (
	written = "written"
	cleared = "cleared"
	dropped = "dropped"
	failed  = "failed"
)

// Loop writes hints.
type Loop struct {
	store   *cluster.Store
	client  client.Client
	metrics *telemetry.Metrics
	// understood reports whether the API server's kube-scheduler knows what to do with a hint.
	understood func() (bool, error)

	off   atomic.Bool       // no hints are written
	slots chan struct{}     // one for each write at the same time
	queue atomic.Int64      // hints that are being written or wait for a slot
	seen  *cluster.Snapshot // of the last turn
	wrote atomic.Int64      // hints written so far

	mu       sync.Mutex
	hints    map[types.UID]*hint
	unhinted *podclass.Class // see unhintedClass
	next     *group          // to be opened, nil if none
}

// A hint is what was written for a pod.
type hint struct {
	node    string // "" if the hint was removed
	taints  int    // number of taints of the node when it was written
	times   int    // how often it was written
	writing bool
	version uint64 // of the pod once it was written, 0 before
	current bool   // the pod still waits
}

// New returns a loop that has not started. understood is asked when it starts, and until it has an answer.
func New(store *cluster.Store, c client.Client, m *telemetry.Metrics, understood func() (bool, error)) *Loop {
	return &Loop{
		store: store, client: c, metrics: m, understood: understood,
		slots: make(chan struct{}, writesAtOnce), hints: map[types.UID]*hint{},
	}
}

// Run works until ctx ends.
func (l *Loop) Run(ctx context.Context) error {
	const name = "pod.hint"
	ctx = telemetry.WithController(ctx, name)
	watched := l.metrics.Loop(name, 1)
	defer l.metrics.End(watched)
	l.off.Store(true)
	known, ask := false, time.Now()
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		if !known && !time.Now().Before(ask) {
			known, ask = l.ask(ctx), time.Now().Add(askAgain)
		}
		snap := l.store.Snapshot()
		if snap.Synced() {
			// What a turn starts outlives it, so it is given the context of the loop.
			watched.Turn(ctx, "telling where pods are meant to go", func(context.Context) error { l.turn(ctx, snap, &wg); return nil })
		}
		if !sleep.For(ctx, lookInterval) || !watched.Wait(ctx, askAgain, snap.Stale()) {
			return nil
		}
	}
}

// askAgain is how long to wait before the API server's version is asked for again after an error.
const askAgain = time.Minute

// ask finds out whether kube-scheduler understands hints, and turns them on if it does. It returns false if that could not be found out.
func (l *Loop) ask(ctx context.Context) (known bool) {
	ok, err := l.understood()
	switch {
	case err != nil:
		telemetry.Log(ctx).Error("no hints for kube-scheduler until its version is known", "error", err)
		return false
	case !ok:
		telemetry.Log(ctx).Debug("no hints for kube-scheduler, it is too old for them")
	default:
		l.off.Store(false)
	}
	return true
}

// lookInterval is the least time between two looks.
const lookInterval = 200 * time.Millisecond

// turn counts where planned pods went, starts the hints that are due, and removes hints that are no longer true. Writes go on in the
// background; wg counts them.
func (l *Loop) turn(ctx context.Context, snap *cluster.Snapshot, wg *sync.WaitGroup) {
	l.count(snap)
	if l.off.Load() {
		return
	}
	l.hintOpenNodes(ctx, snap, wg)
	for pod := range snap.Unbound() {
		if pod.OurHint == "" || l.ahead(pod) {
			continue
		}
		planned, _ := snap.Planned(pod.PodKey)
		if !l.stillTrue(snap, pod, snap.Target(planned.Target)) {
			l.start(ctx, wg, pod, "")
		}
	}
	l.tidy(snap)
}

// unhintedClass returns the class whose pods get no hint: the most frequent class among the pods that wait. Of equally frequent classes
// it is the class that needs less memory. kube-scheduler keeps room for pods with a hint. If all other pods have one, the room that is
// left is the room planned for this class, and its pods may share it in any way. The class stays the same as long as pods of it wait.
func (l *Loop) unhintedClass(snap *cluster.Snapshot) *podclass.Class {
	count := map[*podclass.Class]int{}
	for pod := range snap.Unbound() {
		count[pod.Class]++
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if count[l.unhinted] > 0 {
		return l.unhinted
	}
	l.unhinted = nil
	for pod := range snap.Unbound() { // in their order, so that the choice is the same every time
		if l.unhinted == nil || count[pod.Class] > count[l.unhinted] || count[pod.Class] == count[l.unhinted] &&
			memory(pod.Class) < memory(l.unhinted) {
			l.unhinted = pod.Class
		}
	}
	return l.unhinted
}

// memory returns how much memory the containers of a pod request. Small pods find another place more easily than large ones.
func memory(c *podclass.Class) int64 {
	var sum int64
	for i := range c.Spec.Containers {
		sum += c.Spec.Containers[i].Resources.Requests.Memory().Value()
	}
	return sum
}

// hintOpenNodes starts the hints for pods that are planned for nodes that are open.
func (l *Loop) hintOpenNodes(ctx context.Context, snap *cluster.Snapshot, wg *sync.WaitGroup) {
	ready := map[string]bool{} // by target
	var unhinted *podclass.Class
	for key, planned := range snap.Plans() {
		if unhinted == nil { // chosen only if there is a plan: before, while pods arrive, another class may be the most frequent one
			unhinted = l.unhintedClass(snap)
		}
		open, known := ready[planned.Target]
		n := snap.Target(planned.Target)
		if !known {
			open = n != nil && n.Node != nil && n.Claim != nil && usable(n) && !held(n)
			ready[planned.Target] = open
		}
		if pod := snap.Pod(key); open && pod != nil && pod.Class != unhinted && l.shouldHint(pod, n) {
			l.start(ctx, wg, pod, n.Node.Name)
		}
	}
}

// stillTrue reports whether the hint of a pod names the node that is planned for it. A pod without a plan keeps its hint while that node
// exists and stays: a restart forgets plans.
func (l *Loop) stillTrue(snap *cluster.Snapshot, pod *cluster.Pod, target *cluster.Node) bool {
	if target != nil && target.Node != nil {
		return target.Node.Name == pod.OurHint
	}
	n := snap.Node(pod.OurHint)
	return n != nil && n.Node != nil && !n.MarkedForRemoval
}

// usable reports whether pods can be bound to a node now or as soon as it opens: it is ready and registered, and has none of its claim's
// startup taints.
func usable(n *cluster.Node) bool {
	ready := false
	for i := range n.Node.Status.Conditions {
		if c := &n.Node.Status.Conditions[i]; c.Type == corev1.NodeReady {
			ready = c.Status == corev1.ConditionTrue
		}
	}
	return ready && n.Registered() && !slices.ContainsFunc(n.Node.Spec.Taints, func(t corev1.Taint) bool {
		return t.Key != corev1.TaintNodeNotReady && slices.ContainsFunc(n.Claim.Spec.StartupTaints,
			func(s corev1.Taint) bool { return s.MatchTaint(&t) })
	})
}

// held reports whether the node has not been opened: Karpenter's own taint still keeps pods away.
func held(n *cluster.Node) bool {
	return slices.ContainsFunc(n.Node.Spec.Taints, func(t corev1.Taint) bool { return v1.IsUnregisteredTaint(&t) })
}

// needsHint reports whether a waiting pod should have a hint for node n and has none. A hint that was just written counts, even if the
// watch does not show it yet (ahead).
func (l *Loop) needsHint(pod *cluster.Pod, n *cluster.Node) bool {
	return pod.NodeName == "" && pod.NominatedNode == "" && pod.OurHint != n.Node.Name && n.Claim != nil &&
		!n.MarkedForRemoval && !l.ahead(pod)
}

// ahead reports whether the store does not show yet what this loop last wrote on a pod.
func (l *Loop) ahead(pod *cluster.Pod) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.hints[pod.UID]
	return h != nil && (h.writing || h.version > pod.Version)
}

// remember notes that a pod has a hint for a node that is about to open.
func (l *Loop) remember(pod *cluster.Pod, n *cluster.Node) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hints[pod.UID] = &hint{node: n.Node.Name, taints: len(n.Node.Spec.Taints), times: 1}
}

// shouldHint reports whether the hint for a node should be written on a pod now, and notes it if so. A hint that was wiped is written
// again only if the node's taints have changed, and at most mostWrites times.
func (l *Loop) shouldHint(pod *cluster.Pod, n *cluster.Node) bool {
	if !l.needsHint(pod, n) {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.hints[pod.UID]
	if h == nil || h.node != n.Node.Name {
		l.hints[pod.UID] = &hint{node: n.Node.Name, taints: len(n.Node.Spec.Taints), times: 1}
		return true
	}
	// It was written and wiped. Without a change of the node it would be wiped again.
	if h.taints == len(n.Node.Spec.Taints) || h.times >= mostWrites {
		return false
	}
	h.taints, h.times = len(n.Node.Spec.Taints), h.times+1
	return true
}

// tidy forgets pods that no longer wait.
func (l *Loop) tidy(snap *cluster.Snapshot) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.hints) == 0 {
		return
	}
	for pod := range snap.Unbound() {
		if h := l.hints[pod.UID]; h != nil {
			h.current = true
		}
	}
	for uid, h := range l.hints {
		if !h.current {
			delete(l.hints, uid)
		}
		h.current = false
	}
}

// start writes a hint in the background, or drops it if too many wait. With node "" it removes the hint.
func (l *Loop) start(ctx context.Context, wg *sync.WaitGroup, pod *cluster.Pod, node string) {
	if l.queue.Add(1) > mostQueued {
		l.queue.Add(-1)
		l.metrics.HintsWritten.WithLabelValues(dropped).Inc()
		return
	}
	h := l.begin(pod.UID, node)
	wg.Go(func() {
		defer l.queue.Add(-1)
		defer l.end(h)
		select {
		case l.slots <- struct{}{}:
			defer func() { <-l.slots }()
		case <-ctx.Done():
			l.metrics.HintsWritten.WithLabelValues(dropped).Inc()
			return
		}
		// a pod that has been bound meanwhile must not get a hint
		if now := l.store.Snapshot().Pod(pod.PodKey); now != nil && now.UID == pod.UID && now.NodeName == "" {
			outcome := l.writeSafely(ctx, pod, h)
			l.metrics.HintsWritten.WithLabelValues(outcome).Inc()
			if outcome == written {
				l.wrote.Add(1)
			}
		}
	})
}

// begin notes that a hint for node is being written on a pod.
func (l *Loop) begin(pod types.UID, node string) *hint {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.hints[pod]
	if h == nil || h.node != node {
		h = &hint{node: node}
		l.hints[pod] = h
	}
	h.writing = true
	return h
}

func (l *Loop) end(h *hint) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h.writing = false
}

// writeSafely drops a hint over which the program panics: nothing depends on it.
func (l *Loop) writeSafely(ctx context.Context, pod *cluster.Pod, h *hint) (outcome string) {
	var err error
	defer func() {
		if err != nil {
			outcome = dropped
		}
	}()
	defer bug.Catch(&err, "hinting at a node for pod "+pod.Namespace+"/"+pod.Name)
	return l.write(ctx, pod, h)
}

// write sets or, with an empty node, clears the hint of a pod. It returns the outcome.
func (l *Loop) write(ctx context.Context, pod *cluster.Pod, h *hint) string {
	var value any
	outcome := cleared
	if h.node != "" {
		value, outcome = h.node, written
	}
	// The UID keeps the hint from a new pod of the same name.
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID},
		"status":   map[string]any{"nominatedNodeName": value},
	})
	if err != nil {
		telemetry.Log(ctx).Error("could not make a hint", "error", err)
		return failed
	}
	o := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	err = l.client.Status().Patch(ctx, o, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(cluster.HintManager))
	switch {
	case err == nil:
		l.mu.Lock()
		h.version = cluster.VersionOf(o)
		l.mu.Unlock()
		return outcome
	case apierrors.IsForbidden(err):
		if !l.off.Swap(true) {
			telemetry.Log(ctx).Info("no hints for kube-scheduler, pods/status may not be patched", "because", err)
		}
	case apierrors.IsNotFound(err), apierrors.IsConflict(err), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
	default:
		telemetry.Log(ctx).Debug("could not write a hint", "Pod", fmt.Sprintf("%s/%s", pod.Namespace, pod.Name), "error", err)
	}
	return failed
}

// count counts the pods that were bound since the last turn and had a plan, by whether they went to the planned node.
func (l *Loop) count(snap *cluster.Snapshot) {
	seen := l.seen
	if l.seen = snap; seen == nil {
		return
	}
	for was, now := range snap.PodChanges(seen) {
		if was == nil || now == nil || was.UID != now.UID || was.NodeName != "" || now.NodeName == "" {
			continue
		}
		seat, ok := seen.Planned(now.PodKey)
		switch target := snap.Target(seat.Target); {
		case !ok:
		case target != nil && target.Name == now.NodeName:
			l.metrics.PodsBound.WithLabelValues("as_planned").Inc()
		default:
			l.metrics.PodsBound.WithLabelValues("elsewhere").Inc()
		}
	}
}
