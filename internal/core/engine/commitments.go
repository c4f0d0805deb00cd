package engine

import (
	"slices"

	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/tariff"
)

// settle adds to a plan what the commitments of its question do to the bill: how much the openings add to it, which part of each opening
// is covered, and how much of each commitment is used. Without commitments it does nothing.
func (b *raiser) settle(p *Plan, r *problem.Result) {
	book, fixed := b.Problem.Settings.Commitments, b.Problem.Settings.Fixed
	if book == nil {
		return
	}
	before := tariff.Of(fixed, book.Commitments)
	lines := slices.Clone(fixed)
	at := map[int]int{}
	p.Bill = &Bill{Adds: p.Price}
	for i := range r.Bins {
		if l, ok := b.Problem.Hour(&r.Bins[i]); ok {
			at[i] = len(lines)
			lines = append(lines, l)
			p.Bill.Adds -= l.PerHour
		}
	}
	after := tariff.Of(lines, book.Commitments)
	p.Bill.Adds += after.Total - before.Total
	for i := range p.Open {
		if line, ok := at[i]; ok {
			p.Open[i].Covered = after.Covered[line]
		}
	}
	for i := range book.Commitments {
		p.Bill.Used = append(p.Bill.Used, Use{ID: book.Commitments[i].ID, Before: before.Used[i], After: after.Used[i]})
	}
}
