package devices

import (
	"math"
	"slices"
)

// A Demand is how many devices of some kinds are needed, whichever these are.
type Demand struct {
	Kinds []bool
	Count int64
}

// Demands is what claims come down to where numbers say all that they ask for. Where a claim may be served in
// several ways, wants all there is, or cares how its devices go together, numbers do not.
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

// Within reports whether whatever serves the one demand would serve the other.
func (d *Demand) Within(kinds []bool) bool {
	for k, wanted := range d.Kinds {
		if wanted && !kinds[k] {
			return false
		}
	}
	return true
}

// Free counts the devices of some kinds that are not allocated. Those that may be allocated several times never run
// out, as far as numbers of devices say.
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

// Same reports whether two demands are for the same kinds.
func (d *Demand) Same(kinds []bool) bool { return slices.Equal(d.Kinds, kinds) }
