package solve

import (
	"slices"

	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/reason"
	"karpenter.sh/karpenter/internal/core/rule/spread"
)

// An arrival is set where some constraint counts the pods of DaemonSets, which are on a new node before all others:
// then a pod that opens a node adds to its domains, and every new node has a domain of the keys by which they are
// counted.
type arrival struct {
	keys []int // topology keys other than the host name: those by which daemons are counted, and those that decide whether they start
}

// findArrival returns nil where no constraint counts any daemon.
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

// starts reports whether daemons that are counted on a shape start on such a node of a template with these choices left.
func (f *facts) starts(a *problem.Arrival, t problem.TemplateID, sh int, mask bits.Set) bool {
	return a.Where == nil || f.meetsAny(a.Where, t, sh, mask)
}

// arrive counts, in some groups, the daemons of a new bin whose domains are settled.
func (f *fleet) arrive(groups []spread.Group, bin problem.BinID) {
	n := f.node(bin)
	for _, a := range f.template(n).Arrivals(n.target) {
		group := &groups[a.Group]
		d := int32(bin)
		if group.Key != spread.Host {
			d = f.domainOf(group.Key, bin)
		}
		if d < 0 || !f.counts(group, bin) || !f.starts(&a, n.tmpl, n.target, f.maskOf(bin)) {
			continue
		}
		group.Add(int(d), int32(a.Count))
		group.Know(int(d))
	}
}

// expected says why the pod of a trial may not be the first on a new node of a shape, in the domains that were
// chosen, once the daemons are there; 0 if it may.
func (f *fleet) expected(q *trial, t problem.TemplateID, sh int, mask bits.Set) reason.Code {
	list := f.p.Templates[t].Arrivals(sh)
	count := func(sign int32) {
		for i := range list {
			a := &list[i]
			group := &f.groups[a.Group]
			d := int32(f.bins())
			if group.Key != spread.Host {
				d = q.domain[group.Key]
			}
			if d >= 0 && f.countsOn(group, t, sh, mask) && f.starts(a, t, sh, mask) {
				group.Add(int(d), sign*int32(a.Count))
			}
		}
	}
	count(1)
	defer count(-1)
	for i := range list {
		group := &f.groups[list[i].Group]
		if f.wary && f.upsets(group, q, f.countsOn(group, t, sh, mask) && f.starts(&list[i], t, sh, mask)) {
			return reason.Spread
		}
	}
	if code := f.refusesOwners(q.touches, f.bins()); code != 0 {
		return code
	}
	for k := range q.keys {
		if code := f.admits(&q.keys[k], int(q.domain[q.keys[k].key])); code != 0 {
			return code
		}
	}
	return 0
}

// upsets reports whether pods that are placed already would be too many in the domain of a spread, now that it
// counts the daemons of one more node there: all nodes may be there before kube-scheduler comes to them.
func (f *fleet) upsets(g *spread.Group, q *trial, counted bool) bool {
	if g.Kind != spread.Spread || g.Key == spread.Host || !counted {
		return false
	}
	d := int(q.domain[g.Key])
	return d >= 0 && g.OwnersAt(d) > 0 && g.At(d)-g.Least(nil) > g.MaxSkew
}

// cutDaemons takes out shapes of a template whose daemons are counted otherwise than those of a target.
func (f *fleet) cutDaemons(t *problem.Template, target int, shapes bits.Set) {
	if f.arrival != nil {
		shapes.Only(func(sh int) bool { return t.SameArrivals(sh, target) })
	}
}
