package solve

import (
	"slices"

	"karpenter.sh/karpenter/internal/core/pack"
)

// improve asks the packer for a cheaper fleet, and for a bound where its question is the whole one. It returns nil where there is none.
func (s *state) improve(r *Result) *state {
	k := s.repack()
	if k == nil {
		return nil
	}
	o := s.packOptions()
	whole := k.exact && k.plain() // the packer's question is all of ours
	o.Exact = whole && !s.p.Settings.Unproven
	answer := pack.Solve(&k.problem, o)
	r.Memory.Fleet, r.Memory.Known = answer.Memory, answer.Known
	if whole {
		r.Volume, r.Config = answer.VolumeBound, answer.ConfigBound
		r.Proof = Proof{Problem: &k.problem, Certificate: answer.Certificate}
	}
	if slices.ContainsFunc(answer.Left, func(n int) bool { return n > 0 }) {
		return nil
	}
	return k.replay(answer.Fleet)
}

// plain reports whether the packer's own bound holds for every plan: no item could be read another way at the same level, and
// no pool is limited, reserved or bound to minValues.
func (k *packing) plain() bool {
	s := k.s
	for t := range s.p.Templates {
		if tmpl := &s.p.Templates[t]; s.limits[tmpl.Pool].Limited || len(tmpl.Min) > 0 || len(tmpl.Catalog.Left) > 0 {
			return false
		}
	}
	loose := &packing{s: s, loose: true}
	for i := range k.items {
		if len(loose.readings(&k.items[i])) > 1 || k.takesExotic(i) {
			return false
		}
	}
	return true
}

// takesExotic reports whether an item runs on exotic machines, in whose room others may ride along.
func (k *packing) takesExotic(i int) bool {
	for c := range k.cells {
		if cell := &k.cells[c]; k.s.p.Templates[cell.tmpl].Catalog.Exotic.Has(cell.shape) {
			if k.problem.Classes[i].Cells.Has(c) {
				return true
			}
		}
	}
	return false
}

// enough is how close to the bound, in millionths, a fleet has to be for the search to end.
const enough = 1500

// packOptions are what the packer may spend.
func (s *state) packOptions() pack.Options {
	set := &s.p.Settings
	return pack.Options{Meter: s.meter, Least: set.Least, Most: set.Most, Gain: set.GainPermille, Enough: enough, Memory: set.Memory.Fleet, Known: set.Memory.Known}
}
