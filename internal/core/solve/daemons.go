package solve

import (
	"slices"

	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/reason"
	"karpenter.sh/karpenter/internal/core/rule/spread"
)

// An arrival exists if some constraint counts the pods of DaemonSets. They are on a new node before all other pods, so a new node by itself
// adds pods to its domains. Therefore the domains of each new node are settled for all these keys.
type arrival struct {
	keys []int // topology keys other than the host name: those by which daemons are counted, and those that decide whether they start
}

// findArrival returns the topology keys of the constraints that count DaemonSet pods; nil if no constraint does.
func findArrival(p *problem.Problem) *arrival {
	var out *arrival
	add := func(key int) {
		if key != spread.Host && !slices.Contains(out.keys, key) {
			out.keys = append(out.keys, key)
		}
	}
	for t := range p.Templates {
		for g := range p.Templates[t].Daemons {
			d := &p.Templates[t].Daemons[g]
			if len(d.Counted) > 0 && out == nil {
				out = &arrival{}
			}
			for _, a := range d.Counted {
				add(p.Groups[a.Group].Key)
			}
			for _, key := range d.Decide {
				add(key)
			}
		}
	}
	return out
}

// starts reports whether the DaemonSet pods of an arrival start on a new node of shape sh, bought with the choices that mask leaves.
func (f *facts) starts(a *problem.Arrival, t problem.TemplateID, sh int, mask bits.Set) bool {
	return a.Where == nil || f.meetsAny(a.Where, t, sh, mask)
}

// arrive adds the DaemonSet pods of a new bin to the given groups that count them, in the domains of the bin that are settled.
func (cs *census) arrive(groups []spread.Group, bin problem.BinID) {
	n := cs.bins.node(bin)
	for _, a := range cs.bins.template(n).Arrivals(n.target) {
		group := &groups[a.Group]
		d := int32(bin)
		if group.Key != spread.Host {
			d = cs.bins.domainOf(group.Key, bin)
		}
		if d < 0 || !cs.counts(group, bin) || !cs.facts.starts(&a, n.tmpl, n.target, cs.bins.maskOf(bin)) {
			continue
		}
		group.Add(int(d), int32(a.Count))
		group.Know(int(d))
	}
}

// refusesFirst returns why the pod of a trial cannot be the first on a new node of shape sh in the chosen domains; 0 if it can. It counts
// the DaemonSet pods of that node while it asks, and takes them off again.
func (cs *census) refusesFirst(q *trial, t problem.TemplateID, sh int, mask bits.Set) reason.Code {
	list := cs.facts.p.Templates[t].Arrivals(sh)
	count := func(sign int32) {
		for i := range list {
			a := &list[i]
			group := &cs.groups[a.Group]
			d := int32(cs.bins.next())
			if group.Key != spread.Host {
				d = q.domain[group.Key]
			}
			if d >= 0 && cs.countsOn(group, t, sh, mask) && cs.facts.starts(a, t, sh, mask) {
				group.Add(int(d), sign*int32(a.Count))
			}
		}
	}
	count(1)
	defer count(-1)
	for i := range list {
		group := &cs.groups[list[i].Group]
		if cs.keepsSpread && cs.upsets(group, q, cs.countsOn(group, t, sh, mask) && cs.facts.starts(&list[i], t, sh, mask)) {
			return reason.Spread
		}
	}
	if code := cs.refusesOwners(q.touches, cs.bins.next()); code != 0 {
		return code
	}
	for k := range q.keys {
		if code := cs.admits(&q.keys[k], int(q.domain[q.keys[k].key])); code != 0 {
			return code
		}
	}
	return 0
}

// upsets reports whether the DaemonSet pods of one more node would push a spread above its maxSkew in a domain where pods with that spread
// are placed already. All new nodes may exist before kube-scheduler binds those pods, and it would then refuse them.
func (cs *census) upsets(g *spread.Group, q *trial, counted bool) bool {
	if g.Kind != spread.Spread || g.Key == spread.Host || !counted {
		return false
	}
	d := int(q.domain[g.Key])
	return d >= 0 && g.OwnersAt(d) > 0 && g.At(d)-g.Least(nil) > g.MaxSkew
}

// cutDaemons takes out the shapes on which constraints count other DaemonSet pods than on the target, with the choices that mask leaves.
func (cs *census) cutDaemons(t problem.TemplateID, target int, mask, shapes bits.Set) {
	if cs.facts.arrival != nil {
		shapes.Only(func(sh int) bool { return cs.facts.sameArrivals(t, sh, target, mask) })
	}
}

// sameArrivals reports whether constraints count the same DaemonSet pods on new nodes of two shapes, with the choices that mask leaves.
func (f *facts) sameArrivals(t problem.TemplateID, a, b int, mask bits.Set) bool {
	tmpl := &f.p.Templates[t]
	chosen := func(x problem.Arrival) bool { return x.Where != nil }
	if len(tmpl.Daemons) == 0 || tmpl.DaemonOf[a] == tmpl.DaemonOf[b] && !slices.ContainsFunc(tmpl.Arrivals(a), chosen) {
		return true
	}
	started := func(sh int) []problem.Arrival {
		return slices.DeleteFunc(slices.Clone(tmpl.Arrivals(sh)), func(x problem.Arrival) bool { return !f.starts(&x, t, sh, mask) })
	}
	return slices.EqualFunc(started(a), started(b), func(x, y problem.Arrival) bool { return x.Group == y.Group && x.Count == y.Count })
}
