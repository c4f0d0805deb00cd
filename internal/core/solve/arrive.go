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
func (s *state) arrive(groups []spread.Group, bin int) {
	i := bin - len(s.p.Nodes)
	for _, a := range s.p.Templates[s.tmpl[i]].arrivals(int(s.target[i])) {
		group := &groups[a.Group]
		d := int32(bin)
		if group.Key != spread.Host {
			d = s.domain[group.Key][i]
		}
		if d < 0 || !s.counts(group, bin) {
			continue
		}
		group.Add(int(d), int32(a.Count))
		group.Know(int(d))
	}
}

// expected says why a pod may not be the first on a new node of a shape, in the domains in s.choice, once the daemons are there; 0 if it may.
func (s *state) expected(tmpl, sh int, t *touches, mask bits.Set) reason.Code {
	list := s.p.Templates[tmpl].arrivals(sh)
	count := func(sign int32) {
		for _, a := range list {
			group := &s.groups[a.Group]
			d := int32(s.bins)
			if group.Key != spread.Host {
				d = s.choice[group.Key]
			}
			if d >= 0 && s.countsOn(group, tmpl, sh, mask) {
				group.Add(int(d), sign*int32(a.Count))
			}
		}
	}
	count(1)
	defer count(-1)
	for i, g := range t.host.owned {
		if !s.groups[g].Admits(s.bins, t.host.self[i], nil) {
			return codeOf(s.groups[g].Kind)
		}
	}
	for k := range t.keys {
		if code := s.admits(&t.keys[k], int(s.choice[t.keys[k].key])); code != 0 {
			return code
		}
	}
	return 0
}

// cutByArrivals takes shapes of a template out of s.shapes whose daemons are counted otherwise than those of sh.
func (s *state) cutByArrivals(tmpl, sh int) {
	if s.arrival == nil {
		return
	}
	t := &s.p.Templates[tmpl]
	for other := range s.shapes.All() {
		if !slices.Equal(t.arrivals(other), t.arrivals(sh)) {
			s.shapes.Remove(other)
		}
	}
}
