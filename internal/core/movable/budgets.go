package movable

import (
	"time"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"karpenter.sh/karpenter/internal/cluster"
)

// A PDB is one PodDisruptionBudget with its selector compiled.
type PDB struct {
	Namespace, Name string
	Allowed         int  // disruptions that its status allows now
	Full            bool // it can never allow one: maxUnavailable 0 or minAvailable 100%
	AlwaysAllow     bool // unready pods may always go
	selector        labels.Selector
}

// Compile reads a PodDisruptionBudget. A selector that does not parse selects nothing, as for the API server.
func Compile(b *policyv1.PodDisruptionBudget) PDB {
	selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
	if err != nil {
		selector = labels.Nothing()
	}
	policy := b.Spec.UnhealthyPodEvictionPolicy
	return PDB{
		Namespace:   b.Namespace,
		Name:        b.Name,
		Allowed:     int(b.Status.DisruptionsAllowed),
		Full:        isZero(b.Spec.MaxUnavailable) || isAll(b.Spec.MinAvailable),
		AlwaysAllow: policy != nil && *policy == policyv1.AlwaysAllow,
		selector:    selector,
	}
}

// isZero reports whether a value is 0 or 0%.
func isZero(v *intstr.IntOrString) bool {
	return v != nil && (v.Type == intstr.Int && v.IntVal == 0 || v.Type == intstr.String && v.StrVal == "0%")
}

// isAll reports whether a value is 100%.
func isAll(v *intstr.IntOrString) bool {
	return v != nil && v.Type == intstr.String && v.StrVal == "100%"
}

// PDBs finds the budgets of a pod. The answer depends only on its namespace and labels, and is cached by these.
type PDBs struct {
	byNamespace map[string][]*PDB
	found       map[foundKey][]*PDB // cache
}

// A foundKey is a namespace and the ID of a set of labels (podclass.Labels.ID).
type foundKey struct {
	namespace string
	labels    uint32
}

// NewPDBs indexes the budgets of a cluster.
func NewPDBs(budgets []PDB) *PDBs {
	p := &PDBs{byNamespace: map[string][]*PDB{}, found: map[foundKey][]*PDB{}}
	for i := range budgets {
		p.byNamespace[budgets[i].Namespace] = append(p.byNamespace[budgets[i].Namespace], &budgets[i])
	}
	return p
}

// None reports whether there is no budget at all.
func (b *PDBs) None() bool { return len(b.byNamespace) == 0 }

// Of returns the budgets whose selector matches the pod.
func (b *PDBs) Of(p *cluster.Pod) []*PDB {
	budgets := b.byNamespace[p.Namespace]
	if len(budgets) == 0 {
		return nil
	}
	key := foundKey{p.Namespace, p.Labels.ID}
	if got, ok := b.found[key]; ok {
		return got
	}
	var got []*PDB
	for _, budget := range budgets {
		if budget.selector.Matches(labels.Set(p.Labels.Map)) {
			got = append(got, budget)
		}
	}
	b.found[key] = got
	return got
}

// Blocking returns the budget that keeps p from being evicted now, or nil. It returns nil for a pod that is not Evictable. A pod with
// several budgets is always blocked, because the API server refuses to evict it; then several is true and budget is one of them.
func (b *PDBs) Blocking(p *cluster.Pod, now time.Time) (budget *PDB, several bool) {
	if !Evictable(p, now) {
		return nil, false
	}
	of := b.Of(p)
	switch {
	case len(of) > 1:
		return of[0], true
	case len(of) == 1 && of[0].Allowed <= 0 && !(of[0].AlwaysAllow && p.NotReady):
		return of[0], false
	}
	return nil, false
}

// CurrentlyReschedulable reports whether a pod needs another node and is not kept on its present one for good, by do-not-disrupt or by a
// budget that can never allow an eviction.
func (b *PDBs) CurrentlyReschedulable(p *cluster.Pod, now time.Time) bool {
	if !Reschedulable(p) || Protected(p, now).Held {
		return false
	}
	if !Evictable(p, now) {
		return true
	}
	of := b.Of(p)
	return len(of) == 0 || len(of) == 1 && (!of[0].Full || of[0].AlwaysAllow && p.NotReady)
}
