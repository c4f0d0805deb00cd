package replay

import (
	"slices"
	"time"

	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/kit/ztime"
)

// retry is when a pod without a place is planned for again, unless the pace is slower.
const retry = 10 * time.Second

// A provisioner collects pods in batches and plans for them, as the controller's does.
type provisioner struct {
	engine      *engine.Engine
	first, last time.Time // of the batch, zero while there is none
	armed       bool
}

// podCame notes that a pod came that has no place, and schedules the end of the batch.
func (v *provisioner) podCame(r *run) {
	if v.first.IsZero() {
		v.first = r.now
	}
	v.last = r.now
	if !v.armed {
		v.armed = true
		r.at(v.batchEnd(r), func() { v.batchDue(r) })
	}
}

// batchEnd returns when the batch ends if no other pod comes.
func (v *provisioner) batchEnd(r *run) time.Time {
	return ztime.Sooner(v.last.Add(r.set.BatchIdle), v.first.Add(r.set.BatchMax))
}

// batchDue plans for the batch, or waits longer if pods came since it was scheduled.
func (v *provisioner) batchDue(r *run) {
	v.armed = false
	if at := v.batchEnd(r); r.now.Before(at) {
		v.armed = true
		r.at(at, func() { v.batchDue(r) })
		return
	}
	v.first = time.Time{}
	v.plan(r)
}

// fill binds waiting pods to a machine with free room. Pods with a plan are left out: they go to their machine when
// it is ready.
func (v *provisioner) fill(r *run, m *machine) {
	if m.node == nil || m.leaving || len(r.waiting) == 0 {
		return
	}
	still := r.waiting[:0]
	for _, p := range r.waiting {
		if p.planned == nil && !p.class.entangled && m.holds(p.class.asks) && p.class.admits(m) {
			r.bind(p, m)
		} else {
			still = append(still, p)
		}
	}
	clear(r.waiting[len(still):])
	r.waiting = still
}

// plan makes a plan for the pods that have none, launches its machines and binds pods to existing nodes. Pods that
// were refused are planned for again after retry or the pace, whichever is longer; those whose machine is sold out after retry.
func (v *provisioner) plan(r *run) {
	snap := r.Store.Snapshot()
	var ask []*cluster.Pod
	again := max(retry, r.set.Pace)
	for _, p := range r.waiting {
		if p.planned == nil && (p.asked.IsZero() || r.now.Sub(p.asked) >= again) {
			ask = append(ask, snap.Pod(p.key))
		}
	}
	if len(ask) == 0 {
		return
	}
	plan := v.engine.Plan(engine.Question{Snap: snap, Pools: r.Pools, Pods: ask, Settings: r.Engine, Now: r.now})
	asked := map[cluster.PodKey]bool{} // in this question, but for those whose machine is sold out
	for _, row := range ask {
		asked[row.PodKey] = true
	}
	for i := range plan.Open {
		o := &plan.Open[i]
		it, offer := r.buy(o)
		if offer == nil { // its pods ask again soon, and get something else
			again = retry
			for _, row := range o.Pods {
				delete(asked, row.PodKey)
			}
			continue
		}
		m := r.launch(o, it, offer)
		for _, row := range o.Pods {
			r.promise(r.pods[row.PodKey], m)
		}
	}
	for _, x := range plan.Place {
		p, m := r.pods[x.Pod.PodKey], r.machines[x.Node]
		switch {
		case p == nil || m == nil || m.leaving:
		case m.node == nil:
			r.promise(p, m)
		case m.holds(p.class.asks):
			r.waiting = slices.DeleteFunc(r.waiting, func(waiting *pod) bool { return waiting == p })
			r.bind(p, m)
		}
	}
	left := false
	for _, p := range r.waiting {
		if p.planned != nil {
			continue
		}
		if left = true; asked[p.key] {
			p.asked = r.now
		}
	}
	if left {
		r.after(again, func() { v.podCame(r) }) // begins a batch, as if a pod came
	}
	r.disruption.news(r)
}

// promise notes that a pod will go to a machine that boots.
func (r *run) promise(p *pod, m *machine) {
	p.planned = m
	m.due = append(m.due, p)
	r.update(func(d *cluster.Draft) { d.Plan(p.key, m.claim.Name, r.now) })
}
