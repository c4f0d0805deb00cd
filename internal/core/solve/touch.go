package solve

import (
	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/rule/spread"
)

// Touches are the groups that one variant of a class has to do with, by topology key.
type touches struct {
	ready bool    // the rest was worked out
	host  touch   // of the host name
	keys  []touch // of all other keys that matter to the pods, or to daemons that groups count
	// oneByOne is set if each pod changes where the next may go, so that they have to be placed one by one.
	oneByOne bool
	// glued is set if the pods have to be on one host with others.
	glued bool
}

// A touch is the groups of one topology key.
type touch struct {
	key     int
	owned   []int    // groups that the pods own: they carry the constraint
	self    []bool   // for each of owned: the group counts the pods as well
	shunned []int    // required anti-affinity that selects the pods: they must avoid its owners
	counted []int    // groups that count the pods
	repels  []int    // required anti-affinity that the pods own: pods that it selects must avoid them
	reach   bits.Set // domains in which the pods could get a new node, if they own a spread over this key; else nil
}

// ties holds, for each class and variant, the groups that its pods have to do with, worked out when first needed.
type ties struct {
	facts      *facts
	stock      *stock
	touch      [][]touches      // [class][variant]
	reaches    map[string]reach // see reachOf
	anyMachine bits.Set         // classes that may use exotic and large machines too: they have no other place
}

func newTies(f *facts, stock *stock) *ties {
	return &ties{facts: f, stock: stock, touch: make([][]touches, len(f.p.Classes)), anyMachine: bits.Make(len(f.p.Classes))}
}

// read returns a class as one of its variants.
func (s *state) read(class problem.ClassID, variant int) reading {
	c := &s.facts.p.Classes[class]
	return reading{class, variant, c, &c.Variants[variant], s.ties.touchesOf(class, variant)}
}

// ask begins a trial for a reading. It uses the memory of the trial before, which must not be used any more.
func (s *state) ask(r reading) *trial {
	s.trial.reading = r
	return &s.trial
}

// touchesOf returns the groups that a variant has to do with.
func (ti *ties) touchesOf(class problem.ClassID, variant int) *touches {
	if ti.touch[class] == nil {
		ti.touch[class] = make([]touches, len(ti.facts.p.Classes[class].Variants))
	}
	t := &ti.touch[class][variant]
	if !t.ready {
		ti.fillTouches(t, class, &ti.facts.p.Classes[class].Variants[variant])
	}
	return t
}

// fillTouches works out touchesOf. Classes without any group keep empty touches, unless groups count daemons.
func (ti *ties) fillTouches(t *touches, class problem.ClassID, v *problem.Variant) {
	c := &ti.facts.p.Classes[class]
	t.ready = true
	t.glued = c.SharesDevices()
	if len(c.Groups) == 0 && len(v.Owns) == 0 && ti.facts.arrival == nil {
		return
	}
	t.host.key = spread.Host
	at := func(key int) *touch {
		if key == spread.Host {
			return &t.host
		}
		for i := range t.keys {
			if t.keys[i].key == key {
				return &t.keys[i]
			}
		}
		t.keys = append(t.keys, touch{key: key})
		return &t.keys[len(t.keys)-1]
	}
	matches := bits.Make(len(ti.facts.p.Groups))
	for _, g := range c.Groups {
		if !ti.facts.counts(v, g) {
			continue
		}
		matches.Add(g)
		to := at(ti.facts.p.Groups[g].Key)
		to.counted = append(to.counted, g)
		if ti.facts.p.Groups[g].Kind == spread.Anti && ti.facts.p.Groups[g].Required {
			to.shunned = append(to.shunned, g)
		}
	}
	for _, g := range v.Owns {
		group := &ti.facts.p.Groups[g]
		to := at(group.Key)
		to.owned = append(to.owned, g)
		to.self = append(to.self, matches.Has(g))
		if group.Kind == spread.Anti && group.Required {
			to.repels = append(to.repels, g)
		}
		if group.Key != spread.Host && group.Kind != spread.Affinity {
			t.oneByOne = true
		}
		if group.Key != spread.Host && group.Kind == spread.Spread && to.reach == nil {
			to.reach = ti.reachOf(class).domains[group.Key]
		}
		if group.Key == spread.Host && group.Kind == spread.Affinity {
			t.glued = true
		}
	}
	if ti.facts.arrival != nil {
		for _, key := range ti.facts.arrival.keys {
			at(key)
		}
	}
	for _, to := range t.keys {
		if len(to.shunned) > 0 {
			t.oneByOne = true
		}
	}
}
