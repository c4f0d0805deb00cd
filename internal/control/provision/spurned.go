package provision

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/cluster/seat"
	"karpenter.sh/karpenter/internal/core/bindfail"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/reason"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// respectScheduler changes a plan by what the schedulers of pods did with earlier places. It removes the places to which they do not
// bind the pods (lost), plans a new node for pods that may try one (sorted.Try), and refuses and holds the other pods (sorted.Held).
func (l *Loop) respectScheduler(ctx context.Context, in engine.Question, sorted bindfail.Sorted, plan *engine.Plan) {
	lost := l.spurned.Judge(in.Snap, staying(in.Snap, plan.Place), in.Now)
	l.record(ctx, in, lost)
	lost = append(lost, l.withoutBare(in, plan)...)
	leave := map[*cluster.Pod]bool{}
	for _, h := range lost {
		leave[h.Pod] = true
		l.Metrics.PlacesLost.WithLabelValues(in.Snap.Node(h.Node).Pool()).Inc()
		telemetry.Log(ctx).Info("pod loses the place that it was not bound to", "Pod", podName(h.Pod), "Node", h.Node,
			"scheduler", schedulerOf(h.Pod), "silent", h.Silent, "bare", h.Bare)
	}
	plan.Place = slices.DeleteFunc(plan.Place, func(p engine.Placement) bool { return leave[p.Pod] })
	held := slices.Concat(lost, sorted.Held)
	for _, h := range held {
		plan.Refused = append(plan.Refused, told(h.Pod, reason.Spurned, spurnedText(h)))
	}
	l.hold(in.Snap, held)
	if len(sorted.Try) > 0 {
		l.tryFurther(ctx, in, sorted.Try, plan)
	}
}

// withoutBare removes from a plan the openings for pods whose last nodes came without the expected devices, and returns these pods.
func (l *Loop) withoutBare(in engine.Question, plan *engine.Plan) (lost []bindfail.Held) {
	plan.Open = slices.DeleteFunc(plan.Open, func(o engine.Opening) bool {
		bare := l.spurned.Bare(in.Snap, o.Pods, in.Now)
		lost = append(lost, bare...)
		return len(bare) > 0
	})
	return lost
}

// tryFurther plans for pods that may try a further node, and adds that to the plan. Nodes that are initialized are closed to them,
// because their scheduler has seen these. Nodes on which the plan places pods are closed too, because their free room is not known
// before the plan is in the store.
func (l *Loop) tryFurther(ctx context.Context, in engine.Question, pods []*cluster.Pod, plan *engine.Plan) {
	in.Pods, in.Closed = pods, map[string]bool{}
	for n := range in.Snap.Nodes() {
		if n.Initialized() {
			in.Closed[n.Name] = true
		}
	}
	for _, p := range plan.Place {
		in.Closed[p.Node] = true
	}
	further := l.around(ctx, in)
	plan.Open = append(plan.Open, further.Open...)
	plan.Place = append(plan.Place, further.Place...)
	plan.Refused = append(plan.Refused, further.Refused...)
}

// staying returns the unbound pods that a plan places where they have their seats already.
func staying(snap *cluster.Snapshot, placements []engine.Placement) []*cluster.Pod {
	var out []*cluster.Pod
	for _, p := range placements {
		had, ok := snap.Planned(p.Pod.PodKey)
		if target := snap.Target(had.Target); ok && target != nil && target.Name == p.Node && p.Pod.NodeName == "" {
			out = append(out, p.Pod)
		}
	}
	return out
}

// hold notes in the store which pods get no place now (held), so that other loops plan none for them, and releases those that were held.
func (l *Loop) hold(snap *cluster.Snapshot, held []bindfail.Held) {
	keys := make(map[cluster.PodKey]bool, len(held))
	for _, h := range held {
		keys[h.Pod.PodKey] = true
	}
	var on, off []cluster.PodKey
	for p := range snap.Unbound() {
		switch was := snap.Held(p.PodKey); {
		case keys[p.PodKey] && !was:
			on = append(on, p.PodKey)
		case was && !keys[p.PodKey]:
			off = append(off, p.PodKey)
		}
	}
	if len(on)+len(off) == 0 {
		return
	}
	l.Store.Update(func(d *cluster.Draft) {
		for _, key := range on {
			d.Unplan(key)
			d.Hold(key)
		}
		for _, key := range off {
			d.Unhold(key)
		}
	})
}

// spurnedText returns why a pod gets no place, and what its owner should look at.
func spurnedText(h bindfail.Held) string {
	next := "one further node is tried"
	if !h.Next.IsZero() {
		next = "a further node is tried at " + h.Next.UTC().Format(time.TimeOnly)
	}
	name, since := schedulerOf(h.Pod), h.Ready.UTC().Format(time.TimeOnly)
	if h.Bare {
		return fmt.Sprintf("node %s has been ready since %s without the devices that machines of its type are expected "+
			"to have: compare the ResourceSlices of its drivers with "+
			"what the claims of the pod ask for; %s", h.Node, since, next)
	}
	if h.Silent {
		return fmt.Sprintf("node %s has been ready for it since %s, but in %v scheduler %q has neither bound nor "+
			"judged it there: is that scheduler running? %s",
			h.Node, since, seat.Longest, name, next)
	}
	return fmt.Sprintf("node %s has been ready since %s and has room for it as far as Karpenter can see, but scheduler "+
		"%q does not bind it there: "+
		"what keeps it away is in that scheduler's own events of this pod; %s", h.Node, since, name, next)
}

func schedulerOf(p *cluster.Pod) string {
	return cmp.Or(p.Class.Spec.SchedulerName, corev1.DefaultSchedulerName)
}
