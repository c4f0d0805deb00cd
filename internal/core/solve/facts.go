package solve

import (
	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/quantity"
	"karpenter.sh/karpenter/internal/core/work"
)

// Facts are what all placements of one run share: what follows from the problem alone, worked out once, and the meter. The last three
// fields are scratch memory: each use overwrites the one before, so only what is read at once may be kept there.
type facts struct {
	p       *problem.Problem
	meter   *work.Meter
	width   int                  // words of the longest mask
	largest int                  // shapes of the largest catalogue
	least   quantity.Vec         // of each resource, the smallest need of any class
	twin    []problem.TemplateID // by template; see findTwins
	large   []int64              // by pool; see findLarge
	arrival *arrival             // daemons that groups count; nil for nearly all problems
	diverse bool                 // some pool has minValues
	strict  bits.Set             // groups that some class owns as a requirement, not only as a preference
	zoneKey int                  // the key of zones, −1 without one
	rooms   roomTable
	shapes  bits.Set // the result of bins.buyable
	spare   bits.Set // a mask that a function asks about
	both    bits.Set // a mask within sells and meetsAny; their argument may be spare
}

// What steps cost, in units of work.
const (
	tryWork    = 50 // of a trial, and more for each group it has to do with
	groupWork  = 12
	commitWork = 80 // of placing pods on a bin
	shapeWork  = 8  // of looking at a shape as the machine for a new bin
)

// factsOf works out the facts of a problem. Without a meter in its settings, the run gets one of its own.
func factsOf(p *problem.Problem) *facts {
	f := &facts{p: p, meter: p.Settings.Meter, width: 1, least: leastNeed(p), twin: findTwins(p), large: findLarge(p),
		arrival: findArrival(p), strict: findStrict(p), zoneKey: findZoneKey(p)}
	if f.meter == nil {
		f.meter = &work.Meter{}
	}
	for i := range p.Templates {
		f.width = max(f.width, len(p.Templates[i].Mask))
		f.largest = max(f.largest, p.Templates[i].Catalog.Len())
		f.diverse = f.diverse || len(p.Templates[i].Min) > 0
	}
	f.shapes = bits.Make(f.largest)
	f.spare, f.both = bits.Make(64*f.width), bits.Make(64*f.width)
	return f
}

// leastNeed returns, of each resource, the smallest need of any class. A bin with less room than that can take no pod.
func leastNeed(p *problem.Problem) quantity.Vec {
	least := make(quantity.Vec, p.Resources)
	for r := range least {
		if len(p.Classes) > 0 {
			least[r] = p.Classes[0].Need[r]
		}
		for i := range p.Classes {
			least[r] = min(least[r], p.Classes[i].Need[r])
		}
	}
	return least
}

// findStrict returns the groups that some class owns in its last variant, which has given up all preferences.
func findStrict(p *problem.Problem) bits.Set {
	out := bits.Make(len(p.Groups))
	for i := range p.Classes {
		if v := p.Classes[i].Variants; len(v) > 0 {
			for _, g := range v[len(v)-1].Owns {
				out.Add(g)
			}
		}
	}
	return out
}

// counts reports whether group g counts the pods of a variant, given that its selector matches them. Pods read as Uncounted are left out
// of groups that are only a preference, because they need no domain of them.
func (f *facts) counts(v *problem.Variant, g int) bool {
	return !v.Uncounted || f.strict.Has(g) || f.p.Groups[g].Required
}

// match returns what a variant leaves of a template.
func (f *facts) match(v *problem.Variant, t problem.TemplateID) *problem.Match {
	return &f.p.Labels.OnTemplate[v.Reqs][t]
}

// tolerates reports whether pods of a variant may be on nodes of a template, as far as taints go.
func (f *facts) tolerates(v *problem.Variant, t problem.TemplateID) bool {
	return f.p.Labels.TolTmpl[v.Tol].Has(int(t))
}

// keyOf returns how new nodes of a template get their domain of a key.
func (f *facts) keyOf(key int, t problem.TemplateID) *problem.KeyOf { return &f.p.Keys[key].Tmpl[t] }
