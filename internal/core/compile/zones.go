package compile

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/rule/spread"
)

// Zones is how many waiting pods are tied to each zone, how many could go to several, and how many to none.
type Zones struct {
	In             map[string]int
	Flexible, None int
}

// Zones counts waiting pods by the zone that they are tied to: by requirements, by volumes, and by spreads and affinities over zones with
// the pods that run now. Preferences are ignored.
func (l *Compiled) Zones() Zones {
	out := Zones{In: map[string]int{}}
	at := slices.IndexFunc(l.Problem.Keys, func(k problem.Key) bool { return k.Name == corev1.LabelTopologyZone })
	for c := range l.Classes {
		n := 0
		for _, p := range l.Classes[c].Pods {
			if p.NodeName == "" && p.Phase == corev1.PodPending {
				n++
			}
		}
		if n == 0 {
			continue
		}
		switch zones, open := l.zonesOf(&l.Problem.Classes[c], at); {
		case open || len(zones) > 1:
			out.Flexible += n
		case len(zones) == 0:
			out.None += n
		default:
			out.In[zones[0]] += n
		}
	}
	return out
}

// zonesOf returns the zones to which pods of a class can go; open reports that nothing ties them to zones. key is the index of zones among
// the problem's topology keys, −1 if no pod is about zones.
func (l *Compiled) zonesOf(c *problem.Class, key int) (zones []string, open bool) {
	last := c.Variants[len(c.Variants)-1].Level
	for _, v := range slices.Backward(c.Variants) {
		if v.Level != last {
			break
		}
		reqs := l.Reqs[v.Reqs]
		if _, never := reqs.Conflict(); never {
			continue
		}
		set, _ := reqs.Get(corev1.LabelTopologyZone)
		asked := l.askedOf(c, &v, key)
		switch {
		case len(asked) > 0:
			zones = append(zones, l.admitted(c, asked, key, set.Has)...)
		case set.Open():
			return nil, true
		default:
			zones = append(zones, set.Values()...)
		}
	}
	slices.Sort(zones)
	return slices.Compact(zones), false
}

// askedOf returns the groups about zones that pods of a class own, or that keep them away.
func (l *Compiled) askedOf(c *problem.Class, v *problem.Variant, key int) []int {
	var out []int
	for _, g := range v.Owns {
		if l.Problem.Groups[g].Key == key && key >= 0 {
			out = append(out, g)
		}
	}
	for _, g := range c.Groups {
		if of := &l.Problem.Groups[g]; key >= 0 && of.Key == key && of.Kind == spread.Anti && of.Required {
			out = append(out, g)
		}
	}
	return out
}

// admitted returns the zones that all of these groups admit one more pod of a class to.
func (l *Compiled) admitted(c *problem.Class, groups []int, key int, has func(zone string) bool) []string {
	k := &l.Problem.Keys[key]
	reach := bits.Make(len(k.Values))
	for d, zone := range k.Values {
		if has(zone) && slices.ContainsFunc(k.Tmpl, func(of problem.KeyOf) bool { return gives(&of, d) }) {
			reach.Add(d)
		}
	}
	var out []string
	for d, zone := range k.Values {
		if has(zone) && !slices.ContainsFunc(groups, func(g int) bool { return l.refuses(c, g, d, reach) }) {
			out = append(out, zone)
		}
	}
	return out
}

// gives reports whether new nodes of a template can be in a domain.
func gives(of *problem.KeyOf, d int) bool {
	switch of.Kind {
	case problem.Fixed:
		return int(of.Domain) == d
	case problem.ByChoice:
		return of.Choice[d] != nil
	}
	return slices.Contains(of.Shape, int32(d))
}

// refuses reports whether group g keeps one more pod of a class out of domain d, because the pods own it or because its owners repel them.
func (l *Compiled) refuses(c *problem.Class, g, d int, reach bits.Set) bool {
	of := &l.Problem.Groups[g]
	owned := slices.Contains(c.Variants[len(c.Variants)-1].Owns, g)
	self := slices.Contains(c.Groups, g)
	return owned && !of.Admits(d, self, reach) || self && of.Repels(d)
}
