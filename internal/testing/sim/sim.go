// Package sim plays the rest of a cluster on a memapi server: kubelets that join when a fakecloud machine boots, a scheduler that
// binds pods, controllers that make evicted pods anew and clear away what belonged to Nodes that are gone.
//
// It is as simple as it can be and as strict as it must be: nothing is bound to a node that is not ready, tainted or full, and
// every pod ends when its node does. All of it lives in the time of the test's bubble.
package sim

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/kit/bounded"
	"karpenter.sh/karpenter/internal/testing/fakecloud"
	"karpenter.sh/karpenter/internal/testing/memapi"
)

// Options are the times of a cluster.
type Options struct {
	Cloud fakecloud.Options // Started and Stopped are ours
	// ReadyAfter is how long a kubelet takes from joining to ready.
	ReadyAfter time.Duration
	// PodStart is how long a pod takes from its binding to Running, PodStop from its deletion to its end.
	PodStart, PodStop time.Duration
	// Joins reports whether the kubelet of a machine comes up at all; nil for always.
	Joins func(cloud.Machine) bool
	// NeverReady reports whether the kubelet of a machine joins and stays unready; nil for none.
	NeverReady func(cloud.Machine) bool
	// RebootsFor is how long a machine takes from a reboot until its kubelet is back; nil for half a minute. Never is a negative time.
	RebootsFor func(cloud.Machine) time.Duration
	// Sick reports whether a pod that runs on a node does not get ready; nil for none. It is asked once, when the pod starts.
	Sick func(*corev1.Pod, *corev1.Node) bool
	// Refuses says which nodes kube-scheduler keeps a pod off for reasons that nothing else knows; nil for none. It is asked every second.
	Refuses func(*corev1.Pod, *corev1.Node) bool
	// Down marks a scheduler, by the name that pods have for it, which does nothing now; nil for never.
	Down func(scheduler string) bool
	// NoTaint makes kubelets join without the unregistered taint.
	NoTaint bool
}

// A World is a cluster without Karpenter.
type World struct {
	API   *memapi.Server
	Cloud *fakecloud.Cloud

	options Options
	dirty   chan struct{}

	mu     sync.Mutex
	pods   map[types.NamespacedName]*corev1.Pod // as last seen; never changed
	busy   map[types.NamespacedName]bool        // pods that have a step to take, or had one when they were last looked at
	held   map[string]*held                     // by node
	asks   asks                                 // of the pods
	nodes  map[string]*corev1.Node
	due    map[types.NamespacedName]time.Time // when a pod runs, or ends
	serial int
}

// New makes a world. Nothing happens in it until Run.
func New(o Options) (*World, error) {
	w := &World{
		API: memapi.New(memapi.Scheme()), options: o, dirty: make(chan struct{}, 1),
		pods: map[types.NamespacedName]*corev1.Pod{}, busy: map[types.NamespacedName]bool{}, held: map[string]*held{},
		asks: asks{}, nodes: map[string]*corev1.Node{}, due: map[types.NamespacedName]time.Time{},
	}
	o.Cloud.Started, o.Cloud.Stopped, o.Cloud.Rebooted = w.started, w.stopped, w.rebooted
	c, err := fakecloud.New(o.Cloud)
	w.Cloud = c
	return w, err
}

// Run plays until ctx ends.
func (w *World) Run(ctx context.Context) {
	var wait sync.WaitGroup
	wait.Go(func() { w.API.Watch(ctx, 0, w.see, func() {}) })
	wait.Go(func() { w.play(ctx) })
	wait.Wait()
}

// NodeName is the name of the Node that a machine becomes.
func NodeName(m cloud.Machine) string {
	return "node-" + m.ProviderID[strings.LastIndex(m.ProviderID, "-")+1:]
}

// started is a kubelet that joins.
func (w *World) started(m cloud.Machine) {
	if w.options.Joins != nil && !w.options.Joins(m) {
		return
	}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: NodeName(m), Labels: map[string]string{
		corev1.LabelHostname: NodeName(m), corev1.LabelInstanceTypeStable: m.InstanceType, corev1.LabelTopologyZone: m.Zone,
	}}}
	n.Spec.ProviderID = m.ProviderID
	if !w.options.NoTaint {
		n.Spec.Taints = append(n.Spec.Taints, v1.UnregisteredTaint())
	}
	n.Spec.Taints = append(n.Spec.Taints, notReady)
	n.Status.Capacity, n.Status.Allocatable = m.Capacity, m.Allocatable
	n.Status.NodeInfo.BootID = "boot-1"
	SetReady(n, corev1.ConditionFalse)
	w.API.Put(n)
	if w.options.NeverReady != nil && w.options.NeverReady(m) {
		return
	}
	time.AfterFunc(w.options.ReadyAfter, func() {
		memapi.Edit(w.API, "", n.Name, func(n *corev1.Node) {
			SetReady(n, corev1.ConditionTrue)
			n.Spec.Taints = without(n.Spec.Taints, notReady)
		})
	})
}

var notReady = corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}

func without(taints []corev1.Taint, gone corev1.Taint) []corev1.Taint {
	var out []corev1.Taint
	for _, t := range taints {
		if !t.MatchTaint(&gone) {
			out = append(out, t)
		}
	}
	return out
}

func SetReady(n *corev1.Node, status corev1.ConditionStatus) {
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, LastTransitionTime: metav1.NewTime(time.Now())}}
}

// stopped is a kubelet that is never heard of again, and the cloud's controller that notices.
func (w *World) stopped(m cloud.Machine) {
	name := NodeName(m)
	memapi.Edit(w.API, "", name, func(n *corev1.Node) { SetReady(n, corev1.ConditionUnknown) })
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_ = w.API.Client("cloud-controller").Delete(context.Background(), n) // it may be gone already
}

// rebooted is a kubelet that shuts down, and is back with another boot id and without the faults that it reported.
func (w *World) rebooted(m cloud.Machine) {
	memapi.Edit(w.API, "", NodeName(m), func(n *corev1.Node) { SetReady(n, corev1.ConditionFalse) })
	away := 30 * time.Second
	if w.options.RebootsFor != nil {
		away = w.options.RebootsFor(m)
	}
	if away < 0 {
		return
	}
	time.AfterFunc(away, func() {
		memapi.Edit(w.API, "", NodeName(m), func(n *corev1.Node) {
			var boot int
			_, _ = fmt.Sscanf(n.Status.NodeInfo.BootID, "boot-%d", &boot)
			n.Status.NodeInfo.BootID = fmt.Sprint("boot-", boot+1)
			SetReady(n, corev1.ConditionTrue)
		})
	})
}

func (w *World) see(e memapi.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch o := e.Object.(type) {
	case *corev1.Pod:
		key := types.NamespacedName{Namespace: o.Namespace, Name: o.Name}
		w.forget(key)
		if e.Deleted {
			for _, what := range []string{"start", "stop"} {
				delete(w.due, types.NamespacedName{Namespace: o.Namespace + "/" + what, Name: o.Name})
			}
			w.replace(o)
		} else {
			w.learn(key, bounded.Pod(o))
		}
	case *corev1.Node:
		if e.Deleted {
			delete(w.nodes, o.Name)
			if h := w.held[o.Name]; h != nil {
				maps.Copy(w.busy, h.pods)
			}
		} else {
			w.nodes[o.Name] = bounded.Object(o)
		}
	default:
		return
	}
	select {
	case w.dirty <- struct{}{}:
	default:
	}
}

// replace makes a new pod for a pod that a ReplicaSet has lost. Its name is none that a test would give a pod.
func (w *World) replace(old *corev1.Pod) {
	owner := metav1.GetControllerOf(old)
	if owner == nil || owner.Kind != "ReplicaSet" {
		return
	}
	w.serial++
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: old.Namespace, Name: fmt.Sprintf("%s-again-%d", owner.Name, w.serial), Annotations: old.Annotations,
		OwnerReferences: old.OwnerReferences,
	}, Spec: *old.Spec.DeepCopy()}
	pod.Labels = maps.Clone(old.Labels)
	for _, key := range topologyLabels { // they are no labels of the template
		delete(pod.Labels, key)
	}
	pod.Spec.NodeName = ""
	pod.Status.Phase = corev1.PodPending
	go w.API.Put(pod) // see is called under the watch's own feet
}

// play takes a turn at most every tenth of a second while something happens.
func (w *World) play(ctx context.Context) {
	for {
		next := w.turn(time.Now())
		var timer <-chan time.Time
		if !next.IsZero() {
			timer = time.After(time.Until(next))
		}
		select {
		case <-ctx.Done():
			return
		case <-w.dirty:
		case <-timer:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
}
