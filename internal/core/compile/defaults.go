package compile

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"karpenter.sh/karpenter/internal/cluster"
)

// wantsDefaults reports whether the cluster's default spread constraints are for pods of a class: all of them or none.
func (b *builder) wantsDefaults(i *podInfo) bool {
	return len(b.in.DefaultSpread) > 0 && len(i.hard)+len(i.soft) == 0
}

// defaultSpread returns the default constraints for a pod, with the selector that kube-scheduler would deduce from services
// and the owner. Without one the pod stays unconstrained.
func (b *builder) defaultSpread(p *cluster.Pod) []spreadTerm {
	sel, ok := b.deduce(p)
	if !ok {
		return nil
	}
	var out []spreadTerm
	for i := range b.in.DefaultSpread {
		c := &b.in.DefaultSpread[i]
		t := b.mem.spreadTermOf(c)
		t.soft = c.WhenUnsatisfiable == corev1.ScheduleAnyway
		if t.soft && b.in.IgnorePreferences {
			continue
		}
		t.fixed = &sel
		out = append(out, t)
	}
	return out
}

// deduce unites the selectors of the services that select the pod, then those of its controlling owner.
func (b *builder) deduce(p *cluster.Pod) (selector, bool) {
	set := labels.Set{}
	for svc := range cluster.Services.In(b.in.Snap, p.Namespace) {
		if svc.Spec.Selector != nil && labels.SelectorFromSet(svc.Spec.Selector).Matches(labels.Set(p.Labels.Map)) {
			maps.Copy(set, svc.Spec.Selector)
		}
	}
	var owner *metav1.LabelSelector
	if p.Owner != nil {
		owner = b.in.Snap.OwnerSelector(p.Owner.UID)
	}
	if owner != nil && p.Owner.Kind == "ReplicationController" {
		maps.Copy(set, owner.MatchLabels)
		owner = nil
	}
	reqs, _ := labels.SelectorFromSet(set).Requirements()
	if owner != nil {
		s, err := metav1.LabelSelectorAsSelector(owner)
		if err != nil {
			return nothing, true
		}
		more, selectable := s.Requirements()
		if !selectable {
			return nothing, true
		}
		reqs = append(reqs, more...)
	}
	if len(reqs) == 0 {
		return selector{}, false
	}
	return canonical(reqs), true
}
