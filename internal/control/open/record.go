package open

import (
	"fmt"
	"slices"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/explain/sentence"
	"karpenter.sh/karpenter/internal/history/journal"
)

// mostOthers is how many of the types that were not the cheapest are written down.
const mostOthers = 3

// record says what was opened, for whom, and what came next in price.
func (s *Service) record(t *task) journal.Record {
	o, made := t.opening, madePods(t.opening)
	forWhom := sentence.Count(len(made), "pod")
	if spare := len(o.Pods) - len(made); spare > 0 {
		forWhom += fmt.Sprintf(" and spare room for %d", spare)
	}
	if ahead := t.created.Annotations[v1.OpenedAheadAnnotationKey]; ahead != "" {
		forWhom += ", " + ahead
	}
	if last := sentence.StartedWith(t.created); last != "" {
		forWhom += "; it " + last
	}
	r := journal.Record{
		Act: journal.Opened, Loop: "opener", Snapshot: t.confirmed, Reason: t.reason, PricePerHour: o.Price.Dollars(),
		Text:  fmt.Sprintf("planned as %s in %s (%s) for %s", o.Type, o.Zone, o.CapacityType, forWhom),
		About: make([]journal.Object, 2+len(made)),
		Chosen: []journal.Option{{Pool: o.Pool, Type: o.Type, Zone: o.Zone, CapacityType: o.CapacityType,
			Types: len(o.Types), PricePerHour: o.Price.Dollars()}},
		Others: others(o, t.machines),
	}
	r.About[0], r.About[1] = journal.Object{Kind: "NodeClaim", Name: t.created.Name}, journal.Object{Kind: "NodePool", Name: o.Pool}
	for i, p := range made {
		r.About[2+i] = journal.Object{Kind: "Pod", Namespace: p.Namespace, Name: p.Name}
	}
	return r
}

// others lists what the claim may become instead, at the lowest price at which each is to be had where the claim may go.
func others(o *engine.Opening, m machines) []journal.Option {
	var out []journal.Option
	for _, name := range o.Types {
		if len(out) == mostOthers {
			break
		}
		it := m[name]
		if it == nil || name == o.Type {
			continue
		}
		var best *cloud.Offering
		for i := range it.Offerings {
			f := &it.Offerings[i]
			if f.Available && slices.Contains(o.Zones, f.Zone()) && slices.Contains(o.CapacityTypes,
				f.CapacityType()) && (best == nil || f.Price < best.Price) {
				best = f
			}
		}
		if best != nil {
			out = append(out, journal.Option{Pool: o.Pool, Type: name, Zone: best.Zone(),
				CapacityType: best.CapacityType(), PricePerHour: best.Price.Dollars(), RuledOut: "Dearer"})
		}
	}
	return out
}
