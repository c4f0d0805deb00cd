package compile

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"karpenter.sh/karpenter/internal/cluster"
)

// wantsDefaults reports whether pods of a class get the cluster's default spread constraints: only pods without any spread of their own do.
func (b *builder) wantsDefaults(i *podInfo) bool {
	return len(b.in.DefaultSpread) > 0 && len(i.hard)+len(i.soft) == 0
}

// defaultSpread returns the default constraints for a pod, with the selector that kube-scheduler would deduce from services
// and the owner; nil if it would deduce none. Preferences are left out if the question ignores them.
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

// deduce unites the selectors of all services that select the pod with that of its controlling owner; false if there are none. If the
// owner's selector is invalid, it selects no pod.
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
