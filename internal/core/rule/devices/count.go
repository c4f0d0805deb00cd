package devices

import (
	"math"
	"slices"
)

// A Demand is how many devices are needed, each of any of some kinds.
type Demand struct {
	Kinds []bool // by kind
	Count int64
}

// Demands returns the requests of claims as demands. It returns false if demands cannot say what the claims ask for: a claim is shared or
// allocated, has constraints, or has a request with several options, for all devices, or for an administrator.
func Demands(claims []*Claim) (out []Demand, ok bool) {
	for _, c := range claims {
		if c.Shared || c.At != Nowhere || len(c.Constraints) > 0 {
			return nil, false
		}
		for i := range c.Requests {
			d, ok := demandOf(&c.Requests[i])
			if !ok {
				return nil, false
			}
			out = append(out, d)
		}
	}
	return out, true
}

// demandOf returns a request as a demand; false if that is not possible, or if a selector cannot be answered.
func demandOf(r *Request) (Demand, bool) {
	if len(r.Options) != 1 || r.Options[0].All || r.Options[0].Admin {
		return Demand{}, false
	}
	o := &r.Options[0]
	d := Demand{Kinds: make([]bool, len(o.Fits)), Count: int64(o.Count)}
	for k := range o.Fits {
		f := &o.Fits[k]
		if f.Bad != nil {
			return Demand{}, false
		}
		d.Kinds[k] = f.Selected && f.Tolerated && f.Within
	}
	return d, true
}

// Within reports whether each kind that serves the demand is among kinds.
func (d *Demand) Within(kinds []bool) bool {
	for k, wanted := range d.Kinds {
		if wanted && !kinds[k] {
			return false
		}
	}
	return true
}

// Free counts the devices of some kinds that are not allocated. If one of them may be allocated several times, it returns a number that is
// never used up.
func (s *State) Free(kinds []bool) int64 {
	n := int64(0)
	for i := range s.inventory.Devices {
		switch d := &s.inventory.Devices[i]; {
		case !kinds[d.Kind] || s.used[i]:
		case d.Multiple:
			return math.MaxInt32
		default:
			n++
		}
	}
	return n
}

// Same reports whether the demand is for exactly these kinds.
func (d *Demand) Same(kinds []bool) bool { return slices.Equal(d.Kinds, kinds) }
