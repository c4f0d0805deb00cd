package solve

import (
	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/rule/spread"
)

// touches says which groups one variant of a class has to do with.
type touches struct {
	ready bool
	host  touch
	keys  []touch
	// one is set where each pod changes what the next may do, so that they are placed one by one.
	one bool
	// glued is set where the pods have to be on one host with others.
	glued bool
}

// A touch is the groups of one topology key.
type touch struct {
	key     int
	owned   []int    // groups whose constraint the pods carry
	self    []bool   // of each of these: it counts the pods as well
	shunned []int    // required anti-affinity of others that selects the pods
	counted []int    // groups that count the pods
	repels  []int    // required anti-affinity that the pods own
	reach   bits.Set // domains in which the pods could get a new node, where they are spread over them
}

// read returns a class as one of its variants.
func (s *state) read(class problem.ClassID, variant int) reading {
	c := &s.p.Classes[class]
	return reading{class, variant, c, &c.Variants[variant], s.touchesOf(class, variant)}
}

// ask begins a trial. The one before it is over.
func (s *state) ask(r reading) *trial {
	s.trial.reading = r
	return &s.trial
}

// touchesOf returns the groups that a variant has to do with.
func (s *state) touchesOf(class problem.ClassID, variant int) *touches {
	if s.touch[class] == nil {
		s.touch[class] = make([]touches, len(s.p.Classes[class].Variants))
	}
	t := &s.touch[class][variant]
	if !t.ready {
		s.fillTouches(t, class, &s.p.Classes[class].Variants[variant])
	}
	return t
}

func (s *state) fillTouches(t *touches, class problem.ClassID, v *problem.Variant) {
	c := &s.p.Classes[class]
	t.ready = true
	t.glued = c.SharesDevices()
	if len(c.Groups) == 0 && len(v.Owns) == 0 && s.arrival == nil {
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
	matches := bits.Make(len(s.groups))
	for _, g := range c.Groups {
		matches.Add(g)
		to := at(s.groups[g].Key)
		to.counted = append(to.counted, g)
		if s.groups[g].Kind == spread.Anti && s.groups[g].Required {
			to.shunned = append(to.shunned, g)
		}
	}
	for _, g := range v.Owns {
		group := &s.groups[g]
		to := at(group.Key)
		to.owned = append(to.owned, g)
		to.self = append(to.self, matches.Has(g))
		if group.Kind == spread.Anti && group.Required {
			to.repels = append(to.repels, g)
		}
		if group.Key != spread.Host && group.Kind != spread.Affinity {
			t.one = true
		}
		if group.Key != spread.Host && group.Kind == spread.Spread && to.reach == nil {
			to.reach = s.reachOf(class).domains[group.Key]
		}
		if group.Key == spread.Host && group.Kind == spread.Affinity {
			t.glued = true
		}
	}
	if s.arrival != nil {
		for _, key := range s.arrival.keys {
			at(key)
		}
	}
	for _, to := range t.keys {
		if len(to.shunned) > 0 {
			t.one = true
		}
	}
}
