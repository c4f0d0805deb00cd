package disrupt

import (
	corev1 "k8s.io/api/core/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/tariff"
)

// Where commitments cover machines, a node has no price of its own: when it goes, its commitment may cover another machine instead. So a
// step is judged by the bill before and after it. It has to save with all commitments (Books.All) and also without those that end soon
// (Books.Certain).

// leastSaved returns what the removal of the nodes of a part takes off the bill at least, by either of the books of commitments.
func (s *search) leastSaved(p *part) cloud.NanoUSD {
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

// saved returns by how much the bill falls when the nodes of gone go; list is the sum of their list prices. For the nodes that the book
// knows, the list price does not count: what counts is how the bill of all machines of the book changes.
func saved(book *tariff.Book, gone map[string]bool, list cloud.NanoUSD) cloud.NanoUSD {
	for name := range gone {
		if l, known := book.Machines[name]; known {
			list -= l.PerHour
		}
	}
	return list + cloud.NanoUSD(book.Reckon(book.Without(nil))-book.Reckon(book.Without(gone)))
}

// coveredWay returns the way to buy opening i of a step if commitments cover all of it, and whether they do. Only the planned type is
// bought, because another one might not be covered. Its price is what it adds to the bill of the machines that stay and the covered
// openings before it.
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

// hourOf returns the line of the bill for an hour of an opening.
func hourOf(book *tariff.Book, o *engine.Opening) tariff.Line {
	return book.Hour(o.Type, map[string]string{corev1.LabelTopologyZone: o.Zone}, int64(o.Price))
}
