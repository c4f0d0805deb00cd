package sim

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"karpenter.sh/karpenter/internal/history/kubescore"
	"karpenter.sh/karpenter/internal/kit/ztime"
	"karpenter.sh/karpenter/internal/testing/memapi"
)

// An action is a change that a turn makes, after it has looked at everything.
type action func()

// turn lets every pod take its next step, and returns when the next is due without anything happening.
func (w *World) turn(now time.Time) time.Time {
	w.mu.Lock()
	actions, next := w.decide(now)
	w.mu.Unlock()
	for _, act := range actions {
		act()
	}
	return next
}

func (w *World) decide(now time.Time) (actions []action, next time.Time) {
	var room *room
	for _, key := range w.podsInOrder() {
		p := w.pods[key]
		if w.settled(p) {
			delete(w.busy, key)
			continue
		}
		if room == nil && p.Spec.NodeName == "" {
			room = w.room()
		}
		act, at := w.step(p, room, now)
		if act != nil {
			actions = append(actions, act)
		}
		next = ztime.Sooner(next, at)
	}
	return actions, next
}

// podsInOrder are those that may have a step to take, the oldest first, as a queue would have them.
func (w *World) podsInOrder() []types.NamespacedName {
	keys := slices.Collect(maps.Keys(w.busy))
	slices.SortFunc(keys, func(a, b types.NamespacedName) int {
		return cmp.Or(w.pods[a].CreationTimestamp.Compare(w.pods[b].CreationTimestamp.Time),
			cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return keys
}

// step is what one pod does next.
func (w *World) step(p *corev1.Pod, room *room, now time.Time) (action, time.Time) {
	switch {
	case p.Spec.NodeName == "" && p.DeletionTimestamp != nil:
		return w.end(p), time.Time{}
	case p.Spec.NodeName == "" && (len(p.Spec.SchedulingGates) > 0 || w.options.Down != nil && w.options.Down(p.Spec.SchedulerName)):
		return nil, w.retry(now)
	case p.Spec.NodeName == "":
		return w.bind(p, room), w.retry(now)
	case w.nodes[p.Spec.NodeName] == nil:
		return w.end(p), time.Time{}
	case p.DeletionTimestamp != nil:
		return w.after(p, "stop", w.options.PodStop, now, w.end(p))
	case p.Status.Phase == corev1.PodPending || p.Status.Phase == "":
		return w.after(p, "start", w.options.PodStart, now, w.run(p))
	}
	return nil, time.Time{}
}

// retry is when kube-scheduler tries again by itself: what it refuses for reasons of its own may change without an event.
func (w *World) retry(now time.Time) time.Time {
	if w.options.Refuses == nil && w.options.Down == nil {
		return time.Time{}
	}
	return now.Add(time.Second)
}

// after does something a while after it was first asked for.
func (w *World) after(p *corev1.Pod, what string, wait time.Duration, now time.Time, do action) (action, time.Time) {
	key := types.NamespacedName{Namespace: p.Namespace + "/" + what, Name: p.Name}
	at, ok := w.due[key]
	if !ok {
		at = now.Add(wait)
		w.due[key] = at
	}
	if now.Before(at) {
		return nil, at
	}
	delete(w.due, key)
	return do, time.Time{}
}

func (w *World) end(p *corev1.Pod) action { return func() { w.API.Remove(p) } }

func (w *World) run(p *corev1.Pod) action {
	node := w.nodes[p.Spec.NodeName]
	return func() {
		memapi.Edit(w.API, p.Namespace, p.Name, func(p *corev1.Pod) {
			now := metav1.NewTime(time.Now())
			p.Status.Phase, p.Status.StartTime = corev1.PodRunning, &now
			if w.options.Sick != nil && w.options.Sick(p, node) {
				setPodCondition(p, corev1.PodReady, corev1.ConditionFalse, "ContainersNotReady")
				return
			}
			setPodCondition(p, corev1.PodReady, corev1.ConditionTrue, "")
		})
	}
}

func setPodCondition(p *corev1.Pod, t corev1.PodConditionType, status corev1.ConditionStatus, reason string) {
	p.Status.Conditions = slices.DeleteFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == t })
	p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{
		Type: t, Status: status, Reason: reason, LastTransitionTime: metav1.NewTime(time.Now()),
	})
}

// bind puts a pod on the node that kube-scheduler would choose, or says that there is none.
func (w *World) bind(p *corev1.Pod, room *room) action {
	asked := w.asks.of(p).Request
	plain := len(p.Spec.NodeSelector)+len(p.Spec.Tolerations) == 0 && w.options.Refuses == nil // what it asks for reports whether it fits
	if plain && room.full[asked] {
		return w.refuse(p, len(room.of))
	}
	name := best(p, w.allowed(p, room))
	if name == "" {
		room.full[asked] = room.full[asked] || plain
		return w.refuse(p, len(room.of))
	}
	room.of[name].take(p)
	node := room.of[name].node
	return func() {
		memapi.Edit(w.API, p.Namespace, p.Name, func(p *corev1.Pod) {
			p.Spec.NodeName = name
			copyTopology(node, p)
			setPodCondition(p, corev1.PodScheduled, corev1.ConditionTrue, "")
		})
	}
}

// topologyLabels are the labels that admission copies from a node to a pod that is bound to it.
var topologyLabels = []string{corev1.LabelTopologyZone, corev1.LabelTopologyRegion}

// copyTopology copies the topology labels of a node to a pod that is bound to it, as admission does from Kubernetes 1.35 on.
func copyTopology(node *corev1.Node, p *corev1.Pod) {
	for _, key := range topologyLabels {
		if value, ok := node.Labels[key]; ok {
			if p.Labels == nil {
				p.Labels = map[string]string{}
			}
			p.Labels[key] = value
		}
	}
}

// allowed leaves out the nodes that a pod is kept off.
func (w *World) allowed(p *corev1.Pod, room *room) *room {
	if w.options.Refuses == nil {
		return room
	}
	return room.without(func(f *free) bool { return w.options.Refuses(p, f.node) })
}

// refuse says that there is no node for a pod, and where the options ask for so much says it again when there are more or fewer nodes.
func (w *World) refuse(p *corev1.Pod, nodes int) action {
	message := ""
	if w.options.Refuses != nil {
		message = fmt.Sprintf("0/%d nodes are available", nodes)
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonUnschedulable && c.Message == message {
			return nil
		}
	}
	return func() {
		memapi.Edit(w.API, p.Namespace, p.Name, func(p *corev1.Pod) {
			since := metav1.NewTime(time.Now())
			const manager = "scheduler"
			p.ManagedFields = slices.DeleteFunc(p.ManagedFields, func(f metav1.ManagedFieldsEntry) bool { return f.Manager == manager })
			p.ManagedFields = append(p.ManagedFields, metav1.ManagedFieldsEntry{Manager: manager, Time: new(since),
				FieldsV1: metav1.NewFieldsV1(
					`{"f:status":{"f:conditions":{"k:{\"type\":\"PodScheduled\"}":{}}}}`)})
			for _, c := range p.Status.Conditions {
				if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
					since = c.LastTransitionTime
				}
			}
			setPodCondition(p, corev1.PodScheduled, corev1.ConditionFalse, corev1.PodReasonUnschedulable)
			c := &p.Status.Conditions[len(p.Status.Conditions)-1]
			c.Message, c.LastTransitionTime = message, since
		})
	}
}

// free is a node that takes pods, and what is taken of it.
type free struct {
	node *corev1.Node
	load kubescore.Load
	pods int64 // that still fit by number
	asks asks
}

// A room is every node that takes pods.
type room struct {
	of    map[string]*free
	names []string                   // in order
	full  map[kubescore.Request]bool // what no node has left for plain pods: room only gets less
}

func (w *World) room() *room {
	r := &room{of: map[string]*free{}, full: map[kubescore.Request]bool{}}
	for name, n := range w.nodes {
		if n.DeletionTimestamp != nil || n.Spec.Unschedulable {
			continue
		}
		f := newFree(n)
		f.asks = w.asks
		if h := w.held[name]; h != nil {
			f.load.Used, f.load.Guessed = h.load.Used, h.load.Guessed
			f.pods -= int64(len(h.pods))
		}
		r.add(f)
	}
	slices.Sort(r.names)
	return r
}

func (r *room) add(f *free) {
	r.of[f.node.Name] = f
	r.names = append(r.names, f.node.Name)
}

// without leaves out some nodes.
func (r *room) without(out func(*free) bool) *room {
	left := &room{of: map[string]*free{}}
	for _, name := range r.names {
		if f := r.of[name]; !out(f) {
			left.add(f)
		}
	}
	return left
}

func newFree(n *corev1.Node) *free {
	have := n.Status.Allocatable
	f := &free{node: n, load: kubescore.Load{Has: kubescore.Request{CPU: have.Cpu().MilliValue(),
		Memory: have.Memory().Value()}}, pods: 110}
	if q, ok := have[corev1.ResourcePods]; ok {
		f.pods = q.Value()
	}
	return f
}

func (f *free) holds(p *corev1.Pod) bool {
	room, asked := f.load.Has.Minus(f.load.Used), f.asks.of(p).Request // no sum, which an absurd request would overflow
	return asked.CPU <= room.CPU && asked.Memory <= room.Memory && f.pods >= 1
}

func (f *free) take(p *corev1.Pod) {
	asked := f.asks.of(p)
	f.load.Used, f.load.Guessed, f.pods = f.load.Used.Plus(asked.Request), f.load.Guessed.Plus(asked.Guessed), f.pods-1
}

// open reports whether the node's taints and labels let the pod in.
func (f *free) open(p *corev1.Pod) bool {
	for i := range f.node.Spec.Taints {
		t := &f.node.Spec.Taints[i]
		if t.Effect != corev1.TaintEffectPreferNoSchedule && !tolerated(p, t) {
			return false
		}
	}
	for k, v := range p.Spec.NodeSelector {
		if f.node.Labels[k] != v {
			return false
		}
	}
	return true
}

func tolerated(p *corev1.Pod, t *corev1.Taint) bool {
	for i := range p.Spec.Tolerations {
		o := &p.Spec.Tolerations[i]
		if (o.Effect == "" || o.Effect == t.Effect) && (o.Key == "" && o.Operator == corev1.TolerationOpExists || o.Key == t.Key &&
			(o.Operator == corev1.TolerationOpExists || o.Value == t.Value)) {
			return true
		}
	}
	return false
}
