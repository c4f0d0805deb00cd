package solve

import (
	"slices"

	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/reason"
	"karpenter.sh/karpenter/internal/core/rule/spread"
)

// An arrival is set where some constraint counts the pods of DaemonSets, which are on a new node before all others: then whoever opens a
// node adds to its domains, and every new node has a domain of the keys by which they are counted.
type arrival struct {
	keys []int // topology keys other than the host name
}

// findArrival returns nil where no constraint counts any daemon.
func findArrival(p *Problem) *arrival {
	var out *arrival
	for t := range p.Templates {
		for g := range p.Templates[t].Daemons {
			for _, a := range p.Templates[t].Daemons[g].Counted {
				if out == nil {
					out = &arrival{}
				}
				if key := p.Groups[a.Group].Key; key != spread.Host && !slices.Contains(out.keys, key) {
					out.keys = append(out.keys, key)
				}
			}
		}
	}
	return out
}

// arrivals are the daemons of a shape that are counted.
func (t *Template) arrivals(sh int) []Arrival {
	if len(t.Daemons) == 0 {
		return nil
	}
	return t.Daemons[t.DaemonOf[sh]].Counted
}

// arrive counts, in some groups, the daemons of a new bin whose domains are settled.
func (f *fleet) arrive(groups []spread.Group, bin BinID) {
	n := f.node(bin)
	for _, a := range f.template(n).arrivals(n.target) {
		group := &groups[a.Group]
		d := int32(bin)
		if group.Key != spread.Host {
			d = f.domainOf(group.Key, bin)
		}
		if d < 0 || !f.counts(group, bin) {
			continue
		}
		group.Add(int(d), int32(a.Count))
		group.Know(int(d))
	}
}

// expected says why the pod of a trial may not be the first on a new node of a shape, in the domains that were chosen, once the daemons are
// there; 0 if it may.
func (f *fleet) expected(q *trial, t TemplateID, sh int, mask bits.Set) reason.Code {
	list := f.p.Templates[t].arrivals(sh)
	count := func(sign int32) {
		for _, a := range list {
			group := &f.groups[a.Group]
			d := int32(f.bins())
			if group.Key != spread.Host {
				d = q.domain[group.Key]
			}
			if d >= 0 && f.countsOn(group, t, sh, mask) {
				group.Add(int(d), sign*int32(a.Count))
			}
		}
	}
	count(1)
	defer count(-1)
	for _, a := range list {
		if f.wary && f.upsets(&f.groups[a.Group], q, f.countsOn(&f.groups[a.Group], t, sh, mask)) {
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

// upsets reports whether pods that are placed already would be too many in the domain of a spread, now that it counts the daemons of one more
// node there: all nodes may be there before kube-scheduler comes to them.
func (f *fleet) upsets(g *spread.Group, q *trial, counted bool) bool {
	if g.Kind != spread.Spread || g.Key == spread.Host || !counted {
		return false
	}
	d := int(q.domain[g.Key])
	return d >= 0 && g.OwnersAt(d) > 0 && g.At(d)-g.Least(nil) > g.MaxSkew
}

// cutDaemons takes out shapes of a template whose daemons are counted otherwise than those of a target.
func (f *fleet) cutDaemons(t *Template, target int, shapes bits.Set) {
	if f.arrival != nil {
		shapes.Only(func(sh int) bool { return slices.Equal(t.arrivals(sh), t.arrivals(target)) })
	}
}
