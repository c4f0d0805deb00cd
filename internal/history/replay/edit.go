package replay

import (
	"cmp"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/label"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/drift"
	"karpenter.sh/karpenter/internal/core/engine"
)

// An Edit is a change of the pools and node classes while the recording runs. Machines that would be launched differently
// now drift.
type Edit struct {
	At    time.Time
	Pools []engine.Pool // as they are from then on; others stay as they were
	// Classes say of the machines of node classes that were changed, by name, why they drift; "" where they do not.
	Classes map[string]func(*v1.NodeClaim) string
}

// vocabulary returns the labels that the requirements of pools may name.
func (r *run) vocabulary() *label.Vocabulary { return label.NewVocabulary(v1.Labels(), r.Labels) }

// stamped returns the pools with the hash of their template as an annotation, as the controller writes it.
func stamped(pools []engine.Pool) []engine.Pool {
	out := slices.Clone(pools)
	for i := range out {
		p := out[i].Pool.DeepCopy()
		stamp := drift.PoolStamp(p)
		if p.Annotations == nil {
			p.Annotations = map[string]string{}
		}
		p.Annotations[v1.NodePoolHashAnnotationKey], p.Annotations[v1.NodePoolHashVersionAnnotationKey] = stamp.Hash, stamp.Version
		out[i].Pool = p
	}
	return out
}

// setPools puts pools into the store and makes them those that are planned with.
func (r *run) setPools(pools []engine.Pool) {
	r.listed = stamped(pools)
	r.update(func(d *cluster.Draft) {
		for _, p := range r.listed {
			cluster.Pools.Put(d, p.Pool)
		}
		d.Synced(true)
	})
	r.updateCatalogs()
}

// applyEdit makes the pools and classes of an edit the present ones. Pools that it does not name stay.
func (r *run) applyEdit(e *Edit) {
	pools := slices.Clone(e.Pools)
	for _, p := range r.listed {
		if !slices.ContainsFunc(e.Pools, func(x engine.Pool) bool { return x.Pool.Name == p.Pool.Name }) {
			pools = append(pools, p)
		}
	}
	r.setPools(pools)
	r.judgeDrift(e.Classes)
	for _, m := range r.open {
		m.restless = true // what calm is may have changed
	}
	r.provisioner.podCame(r)
	r.disruption.news(r)
}

// judgeDrift finds out for each machine whether it drifts. classes are those that an edit changed, nil for none.
func (r *run) judgeDrift(classes map[string]func(*v1.NodeClaim) string) {
	known := r.vocabulary()
	for _, name := range slices.Sorted(maps.Keys(r.machines)) {
		m := r.machines[name]
		pool, there := r.pools[m.claim.Labels[v1.NodePoolLabelKey]]
		if !there {
			continue
		}
		why := drift.Reason(pool.Pool, m.claim, known)
		if why == "" && drift.InstanceTypeGone(m.claim, pool.Catalog, known) {
			why = v1.ReasonInstanceTypeNotFound
		}
		if ref := m.claim.Spec.NodeClassRef; ref != nil && classes[ref.Name] != nil {
			m.outdated = classes[ref.Name](m.claim)
		}
		r.setDrift(m, cmp.Or(why, m.outdated))
	}
}

// setDrift writes or clears the condition Drifted of a machine's claim; why is "" for none.
func (r *run) setDrift(m *machine, why string) {
	had := condition.Get(m.claim, v1.ConditionTypeDrifted)
	if why == "" && had == nil || why != "" && had != nil && had.Reason == why {
		return
	}
	c := m.claim.DeepCopy()
	if why == "" {
		condition.Clear(c, v1.ConditionTypeDrifted, r.now)
	} else {
		condition.Set(c, metav1.Condition{Type: v1.ConditionTypeDrifted, Status: metav1.ConditionTrue, Reason: why, Message: why}, r.now)
	}
	m.claim = c
	r.update(func(d *cluster.Draft) { d.PutClaim(c) })
}
