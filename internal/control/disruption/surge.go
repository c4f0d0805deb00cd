package disruption

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/disrupt"
	"karpenter.sh/karpenter/internal/core/movable"
	"karpenter.sh/karpenter/internal/core/surge"
	"karpenter.sh/karpenter/internal/explain/sentence"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

const (
	// verdictAge is how old a verdict about a workload may get.
	verdictAge = time.Minute
	// readsPerTurn bounds how many Deployments one turn reads.
	readsPerTurn = 20
	// undoneWait is how long a workload is left alone when another program took the annotation away.
	undoneWait = 24 * time.Hour
	// rolloutWait is how long a step waits for a rollout of the owner before it is taken back.
	rolloutWait = 10 * time.Minute
)

// A surger moves pods that a PodDisruptionBudget holds, by a restart of their Deployment: the new pods start before the old ones end.
// It is nil if that is off.
type surger struct {
	client client.Client
	known  map[types.UID]judged    // by the owner of a pod that a PodDisruptionBudget holds
	undone map[types.UID]time.Time // Deployments whose restart another program took back, and when
	turn   uint64                  // counts changes of known
}

// judged is the verdict on the owner of a pod, and when it was read.
type judged struct {
	pod     cluster.PodKey // one of its pods
	verdict surge.Verdict
	read    time.Time
}

func newSurger(c client.Client) *surger {
	return &surger{client: c, known: map[types.UID]judged{}, undone: map[types.UID]time.Time{}}
}

// show adds the verdicts to the world of the planner.
func (s *surger) show(w *disrupt.World) {
	if s == nil {
		return
	}
	w.Surge, w.SurgeTurn = make(map[types.UID]surge.Verdict, len(s.known)), s.turn
	for owner, one := range s.known {
		w.Surge[owner] = one.verdict
	}
}

// consider judges the workloads of pods that hold nodes (in blocks), and again those whose verdict is old, up to readsPerTurn. It forgets
// workloads whose pod is gone. It reports whether any verdict changed.
func (s *surger) consider(ctx context.Context, snap *cluster.Snapshot, blocks []disrupt.Refusal, now time.Time) bool {
	if s == nil {
		return false
	}
	before, reads := s.turn, readsPerTurn
	for _, owner := range slices.SortedFunc(maps.Keys(s.known), func(a, b types.UID) int {
		return s.known[a].read.Compare(s.known[b].read)
	}) {
		one := s.known[owner]
		p := snap.Pod(one.pod)
		switch {
		case p == nil || p.NodeName == "" || p.Owner == nil || p.Owner.UID != owner:
			delete(s.known, owner)
			s.turn++
		case now.Sub(one.read) >= verdictAge && reads > 0:
			reads--
			s.judge(ctx, snap, p, now)
		}
	}
	for i := range blocks {
		if blocks[i].Code != disrupt.PodBudget || reads == 0 {
			continue
		}
		p := snap.Pod(*blocks[i].Pod)
		if p == nil || p.Owner == nil {
			continue
		}
		if _, known := s.known[p.Owner.UID]; !known {
			reads--
			s.judge(ctx, snap, p, now)
		}
	}
	return s.turn != before
}

// judge notes the verdict about the workload of a pod.
func (s *surger) judge(ctx context.Context, snap *cluster.Snapshot, p *cluster.Pod, now time.Time) {
	_, verdict, err := s.read(ctx, snap, p, now)
	if err != nil {
		telemetry.Log(ctx).Error("cannot read a Deployment", "workload", deploymentOf(p), "error", err)
		return
	}
	if old, known := s.known[p.Owner.UID]; !known || old.verdict != verdict {
		s.turn++
	}
	s.known[p.Owner.UID] = judged{p.PodKey, verdict, now}
}

// deploymentOf returns the name of the Deployment that a pod seems to belong to; Name is "" if it seems to belong to none.
func deploymentOf(p *cluster.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: p.Namespace, Name: surge.Deployment(p)}
}

// read asks the API server for the Deployment of a pod, and judges whether its pod can move by restart. The Deployment is nil if there is
// none. One whose restart another program took back is left alone for undoneWait (Reverted).
func (s *surger) read(ctx context.Context, snap *cluster.Snapshot, p *cluster.Pod, now time.Time) (
	*appsv1.Deployment, surge.Verdict, error) {
	name, d := deploymentOf(p), &appsv1.Deployment{}
	if name.Name == "" {
		return nil, surge.NoDeployment, nil
	}
	if err := s.client.Get(ctx, name, d); apierrors.IsNotFound(err) {
		return nil, surge.NoDeployment, nil
	} else if err != nil {
		return nil, "", err
	}
	pool := ""
	if n := snap.Node(p.NodeName); n != nil {
		pool = n.Pool()
	}
	verdict := surge.Judge(snap, p, pool, d, now)
	if at, undone := s.undone[d.UID]; undone && verdict == surge.Possible && now.Sub(at) < undoneWait {
		verdict = surge.Reverted
	}
	return d, verdict, nil
}

// restart starts a rolling restart, by an annotation of the pod template as kubectl does. It fails with a conflict if the Deployment has
// changed since it was read.
func (s *surger) restart(ctx context.Context, d *appsv1.Deployment, now time.Time) (surge.Restart, error) {
	r := surge.Restart{Value: now.UTC().Format(time.RFC3339), At: now}
	annotations := map[string]any{"annotations": map[string]string{surge.RestartedAt: r.Value}}
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": d.ResourceVersion}, // a change that was not seen is not overwritten
		"spec":     map[string]any{"template": map[string]any{"metadata": annotations}},
	})
	if err != nil {
		return r, err
	}
	target := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, Name: d.Name}}
	return r, s.client.Patch(ctx, target, client.RawPatch(types.MergePatchType, body))
}

// restartHeldPods restarts, once each, the Deployments of pods that a PodDisruptionBudget holds, or that are the only ready pod of their
// ReplicaSet, on the nodes that a command removes. It reports whether the command need not wait for them any longer. It does not wait for
// pods that no restart can move, such as those whose owner has not agreed. If a restart fails or does not finish in time, it takes the
// command back and returns false.
func (l *Loop) restartHeldPods(ctx context.Context, snap *cluster.Snapshot, c *command) bool {
	if l.surge == nil {
		return true
	}
	var budgets []movable.PDB
	for b := range cluster.PDBs.All(snap) {
		budgets = append(budgets, movable.Compile(b))
	}
	pdbs, standing, now, left := movable.NewPDBs(budgets), surge.StandingOf(snap), time.Now(), false
	for _, m := range c.Candidates {
		n := m.Staying(snap)
		if n == nil {
			continue
		}
		for _, p := range n.Pods {
			if surge.Deployment(p) == "" || !movable.Reschedulable(p) {
				continue
			}
			held, _ := pdbs.Blocking(p, now)
			if _, asked := c.restarts[deploymentOf(p)]; !asked && held == nil && !standing.Sole(snap, p) {
				continue
			}
			waits, err := l.restartFor(ctx, snap, c, p, now)
			if err != nil {
				l.fail(ctx, c, err)
				return false
			}
			left = left || waits
		}
	}
	return !left
}

// restartFor restarts the Deployment of a pod if that can move the pod and was not done yet. It reports whether the command has to wait;
// an error means that the command has to be taken back.
func (l *Loop) restartFor(ctx context.Context, snap *cluster.Snapshot, c *command, p *cluster.Pod, now time.Time) (waits bool, err error) {
	d, verdict, err := l.surge.read(ctx, snap, p, now)
	if err != nil { // the next turn tries again
		telemetry.Log(ctx).Error("cannot read a Deployment", "workload", deploymentOf(p), "error", err)
		return true, nil
	}
	name := deploymentOf(p)
	r, asked := c.restarts[name]
	if d != nil && !asked {
		if last, restarted := surge.LastRestart(d); restarted && !last.At.Before(c.Created.Truncate(time.Second)) {
			r, asked = last, true // the command asked for it before this process took over
		}
	}
	if asked && d != nil {
		switch surge.Progress(d, r, now) {
		case surge.Undone:
			l.surge.undone[d.UID] = now
			return false, fmt.Errorf("another program took the restart of Deployment %s/%s back", d.Namespace, d.Name)
		case surge.Overdue:
			return false, fmt.Errorf("the restart of Deployment %s/%s did not progress within its deadline", d.Namespace, d.Name)
		}
		return true, nil
	}
	switch {
	case verdict == surge.UnderWay && now.Sub(c.begun) < rolloutWait:
		return true, nil
	case verdict.Passes():
		return false, fmt.Errorf("pod %s/%s cannot move by restart: %s", p.Namespace, p.Name, sentence.Surge(verdict))
	case verdict != surge.Possible: // its owner has not asked for a successor, or there can be none
		return false, nil
	}
	r, err = l.surge.restart(ctx, d, now)
	if apierrors.IsConflict(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("restart Deployment %s/%s: %w", d.Namespace, d.Name, err)
	}
	c.restarts[name] = r
	telemetry.Log(ctx).Info("restarting a Deployment so that its pod leaves a node", "command", c.ID, "workload", name)
	if n := snap.Node(p.NodeName); n != nil {
		l.tell.Events.Tell(refs(n), telemetry.SurgeRestart,
			fmt.Sprintf("Deployment %s is restarted, so that pod %s leaves the node when its successor is ready", name, p.Name))
	}
	return true, nil
}
