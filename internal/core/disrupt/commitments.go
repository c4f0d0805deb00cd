package disrupt

import (
	corev1 "k8s.io/api/core/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/tariff"
)

// Where commitments cover machines, a node has no price of its own: its removal takes off the bill what the commitments do not cover
// anew. A step is judged by the bill before and after it. It has to save with all commitments, and also without those that end
// soon: no pod moves for them, and none is driven off them.

// before returns what the removal of the nodes of a part takes off the bill, at least.
func (s *search) before(p *part) cloud.NanoUSD {
	books, list := s.survey.w.Commitments, p.price()
	if books == nil {
		return list
	}
	gone := map[string]bool{}
	for _, c := range p.remove {
		gone[c.Name()] = true
	}
	least := list
	for _, book := range []*tariff.Book{books.Certain, books.All} {
		if book != nil {
			least = min(least, saved(book, gone, list))
		}
	}
	return max(least, 0)
}

// saved returns what the bill falls by when some nodes go, whose price at list is given.
func saved(book *tariff.Book, gone map[string]bool, list cloud.NanoUSD) cloud.NanoUSD {
	for name := range gone {
		if l, covered := book.Machines[name]; covered {
			list -= l.PerHour
		}
	}
	return list + cloud.NanoUSD(book.Reckon(book.Without(nil))-book.Reckon(book.Without(gone)))
}

// coveredWay returns how an opening is bought that commitments cover whole: as the type that was planned, for what it adds to the bill
// beside others of the step. Another type might not be covered.
func (s *search) coveredWay(step *Step, open []engine.Opening, i int) (way, bool) {
	books := s.survey.w.Commitments
	if books == nil || books.Certain == nil || open[i].Covered < 1 {
		return way{}, false
	}
	gone := map[string]bool{}
	for _, c := range step.Remove {
		gone[c.Name()] = true
	}
	fixed := books.Certain.Without(gone)
	for j := range i {
		if o := &open[j]; o.Covered > 0 {
			fixed = append(fixed, hourOf(books.Certain, o))
		}
	}
	g := s.pricesOf(open[i].Pool).types[open[i].Type]
	if g == nil {
		return way{}, false
	}
	o := &open[i]
	adds := cloud.NanoUSD(books.Certain.Adds(fixed, []tariff.Line{hourOf(books.Certain, o)}))
	return way{capacityType: v1.CapacityTypeOnDemand, zone: o.Zone,
		options: []option{{it: g.it, prices: []cloud.NanoUSD{adds}, risks: []cloud.NanoUSD{0}, worst: adds}}}, true
}

// hourOf returns an opening as a machine on the bill.
func hourOf(book *tariff.Book, o *engine.Opening) tariff.Line {
	return book.Hour(o.Type, map[string]string{corev1.LabelTopologyZone: o.Zone}, int64(o.Price))
}
