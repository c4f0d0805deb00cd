package sim

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"karpenter.sh/karpenter/internal/history/kubescore"
)

// held is what pods have of a node.
type held struct {
	load kubescore.Load
	pods map[types.NamespacedName]bool
}

// learn takes in the present version of a pod.
func (w *World) learn(key types.NamespacedName, p *corev1.Pod) {
	w.pods[key], w.busy[key] = p, true
	if p.Spec.NodeName == "" {
		return
	}
	h := w.held[p.Spec.NodeName]
	if h == nil {
		h = &held{pods: map[types.NamespacedName]bool{}}
		w.held[p.Spec.NodeName] = h
	}
	asked := w.asks.of(p)
	h.pods[key] = true
	h.load.Used, h.load.Guessed = h.load.Used.Plus(asked.Request), h.load.Guessed.Plus(asked.Guessed)
}

// forget lets go of the version of a pod that was known, if there was one.
func (w *World) forget(key types.NamespacedName) {
	p := w.pods[key]
	if p == nil {
		return
	}
	if h := w.held[p.Spec.NodeName]; h != nil {
		asked := w.asks.of(p)
		delete(h.pods, key)
		h.load.Used, h.load.Guessed = h.load.Used.Minus(asked.Request), h.load.Guessed.Minus(asked.Guessed)
		if len(h.pods) == 0 {
			delete(w.held, p.Spec.NodeName)
		}
	}
	delete(w.asks, p)
	delete(w.pods, key)
	delete(w.busy, key)
}

// settled marks a pod that has no step to take until it or its node changes.
func (w *World) settled(p *corev1.Pod) bool {
	return p.Spec.NodeName != "" && w.nodes[p.Spec.NodeName] != nil && p.DeletionTimestamp == nil &&
		p.Status.Phase != corev1.PodPending && p.Status.Phase != ""
}
