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

// A provisioner collects pods in batches and plans for them.
type provisioner struct {
	engine      *engine.Engine
	first, last time.Time // of the batch, zero while there is none
	armed       bool
}

// want says that a pod came that has no place.
func (v *provisioner) want(r *run) {
	if v.first.IsZero() {
		v.first = r.now
	}
	v.last = r.now
	if !v.armed {
		v.armed = true
		r.at(v.closes(r), func() { v.fire(r) })
	}
}

// closes is when the batch is complete if nothing else comes.
func (v *provisioner) closes(r *run) time.Time {
	return ztime.Sooner(v.last.Add(r.set.BatchIdle), v.first.Add(r.set.BatchMax))
}

func (v *provisioner) fire(r *run) {
	v.armed = false
	if at := v.closes(r); r.now.Before(at) {
		v.armed = true
		r.at(at, func() { v.fire(r) })
		return
	}
	v.first = time.Time{}
	v.plan(r)
}

// room gives what was freed on a machine to pods that wait. Those that have a plan go to it when it is ready.
func (v *provisioner) room(r *run, m *machine) {
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

// plan finds places for the pods that have none.
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
	unsold := map[cluster.PodKey]bool{}
	for i := range plan.Open {
		o := &plan.Open[i]
		it, offer := r.buy(o)
		if offer == nil { // its pods ask again soon, and get something else
			again = retry
			for _, row := range o.Pods {
				unsold[row.PodKey] = true
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
			r.waiting = slices.DeleteFunc(r.waiting, func(x *pod) bool { return x == p })
			r.bind(p, m)
		}
	}
	left := false
	for _, p := range r.waiting {
		if p.planned != nil {
			continue
		}
		if left = true; !unsold[p.key] {
			p.asked = r.now
		}
	}
	if left {
		r.after(again, func() { v.want(r) })
	}
	r.disruption.news(r)
}

// promise notes that a pod goes to a machine that boots.
func (r *run) promise(p *pod, m *machine) {
	p.planned = m
	m.due = append(m.due, p)
	r.update(func(d *cluster.Draft) { d.Plan(p.key, m.claim.Name, r.now) })
}
