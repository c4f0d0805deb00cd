package compile

import (
	"cmp"
	"slices"

	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/reason"
	"karpenter.sh/karpenter/internal/core/work"
)

// The work for a pod's terms depends on other objects too: a selector is evaluated for every label set, a term for every pool. A few
// hostile pods could delay every other pod. So the cost of terms is counted before they are written as variants and groups. If it exceeds
// the budget of one plan, namespaces take turns; the remaining pods are postponed and come first in the next plan.

const (
	// defaultTerms is how much work terms may cause before places are looked for.
	defaultTerms = work.Second * 3 / 4
	// turnWork is how much of it namespaces take in turn.
	turnWork = work.Second / 1000

	// What terms cost, in units of work.
	variantWork = 4500 // of one way to read a pod
	poolWork    = 1200 // more, for each template
	termWork    = 5000 // of a constraint over pods
	askWork     = 60   // of asking a selector about a label set
	matchWork   = 25   // of a label set that it selects
)

// A pod with at most fewTerms terms of node affinity is plain, if it has no constraints over other pods.
const fewTerms = 16

// plain reports whether the pods of a cohort cost so little that they are always planned.
func (c *cohort) plain() bool {
	i := c.info
	return len(i.hard)+len(i.soft)+len(i.near)+len(i.apart)+len(i.nearSoft)+len(i.apartSoft)+len(c.extra) == 0 &&
		len(i.terms)+len(i.preferred) <= fewTerms
}

// postponeCostly takes cohorts off the question if all terms together are more work than one plan may take, and postpones their pods.
// Plain cohorts stay. If it took any off, it numbers the label sets of the rest anew.
func (b *builder) postponeCostly() {
	queues := map[string][]*cohort{}
	for _, c := range b.cohorts {
		if !c.plain() {
			ns := c.info.class.Namespace
			queues[ns] = append(queues[ns], c)
		}
	}
	for _, q := range queues {
		b.in.sortQueue(q)
	}
	out := b.admission.shareOut(&b.in, queues, &termCosts{templates: len(b.templates), batch: b.topology.labels,
		running: b.w.labels, counted: map[*podInfo]bool{}})
	if len(out) == 0 {
		return
	}
	for _, c := range b.cohorts {
		if !out[c] {
			continue
		}
		for _, p := range c.pods {
			b.postpone(p)
		}
	}
	b.cohorts = slices.DeleteFunc(b.cohorts, func(c *cohort) bool { return out[c] })
	b.readLabels()
}

// postpone leaves a pod for a later plan. The pod counts as refused unless it has a place from an earlier plan, which it keeps.
func (b *builder) postpone(p *cluster.Pod) {
	if b.admission.postponed == nil {
		b.admission.postponed = map[cluster.PodKey]bool{}
	}
	b.admission.postponed[p.PodKey] = true
	if !b.hasPlace(p) {
		b.refuse(p, []reason.Count{{Code: reason.Postponed}})
	}
}

// shareOut spends the budget of work: in each round, each namespace may spend turnWork more on its cohorts, in the order of its queue. It
// returns the cohorts for which no work is left.
func (a *admission) shareOut(in *Input, queues map[string][]*cohort, costs *termCosts) map[*cohort]bool {
	names := sortedKeys(queues)
	spent := map[string]work.Units{}
	out := map[*cohort]bool{}
	most := cmp.Or(in.Work, defaultTerms)
	for round := work.Units(1); len(names) > 0; round++ {
		for _, ns := range names {
			for len(queues[ns]) > 0 && spent[ns] < round*turnWork {
				c := queues[ns][0]
				queues[ns] = queues[ns][1:]
				if a.spent >= most || in.Ended != nil && in.Ended() {
					out[c] = true
					continue
				}
				cost := costs.of(c)
				spent[ns] += cost
				a.spent += cost
			}
		}
		names = slices.DeleteFunc(names, func(ns string) bool { return len(queues[ns]) == 0 })
	}
	return out
}

// sortQueue sorts the cohorts of a namespace: the one with the pod that was left out most often comes first. Of equal ones, cohorts come
// last if all their pods have a place.
func (in *Input) sortQueue(list []*cohort) {
	type rank struct{ leftOut, placed int }
	ranks := make(map[*cohort]rank, len(list))
	for _, c := range list {
		r := rank{placed: 1}
		for _, p := range c.pods {
			r.leftOut = max(r.leftOut, in.LeftOut[p.PodKey])
			if in.Snap.PlaceOf(p) == nil {
				r.placed = 0
			}
		}
		ranks[c] = r
	}
	slices.SortStableFunc(list, func(x, y *cohort) int {
		return cmp.Or(cmp.Compare(ranks[y].leftOut, ranks[x].leftOut), cmp.Compare(ranks[x].placed, ranks[y].placed))
	})
}

// hasPlace reports whether an earlier plan has a place for a pod.
func (b *builder) hasPlace(p *cluster.Pod) bool { return b.in.Snap.PlaceOf(p) != nil }

// A termCosts computes what the terms of cohorts cost.
type termCosts struct {
	templates      int
	batch, running *labelIndex       // label sets of the waiting pods, and of the running ones
	counted        map[*podInfo]bool // pod classes with variants that are counted already
}

// of returns what the terms of a cohort cost. What all cohorts of a pod class share, its variants, is counted for the first of them only.
func (t *termCosts) of(c *cohort) work.Units {
	i, ns := c.info, c.info.class.Namespace
	var cost work.Units
	if !t.counted[i] {
		t.counted[i] = true
		levels := 1 + len(i.preferred) + len(i.soft) + len(i.nearSoft) + len(i.apartSoft)
		ways := min(levels*len(i.terms)*max(1, len(c.volumes.alternatives)), mostVariants)
		cost += work.Units(ways) * (variantWork + poolWork*work.Units(t.templates))
	}
	own := []string{ns}
	for _, list := range [][]spreadTerm{i.hard, i.soft, c.extra} {
		for k := range list {
			s := list[k].fixed
			if s == nil {
				known := list[k].selectorFor(c.labels.Map)
				s = &known
			}
			cost += t.ofSelector(s, own)
		}
	}
	for _, list := range [][]podTerm{i.near, i.apart, i.nearSoft, i.apartSoft} {
		for k := range list {
			term := &list[k]
			s := term.selectorFor(c.labels.Map)
			if term.every || term.among != nil {
				cost += t.ofSelector(&s, sortedKeys(t.batch.sets))
			} else {
				cost += t.ofSelector(&s, term.namespaces)
			}
		}
	}
	return cost
}

// ofSelector evaluates the selector of one term in its namespaces and returns the cost. The label index keeps the result for the group
// of that term.
func (t *termCosts) ofSelector(s *selector, namespaces []string) work.Units {
	cost := work.Units(termWork)
	for _, ns := range namespaces {
		cost += work.Units(len(t.batch.selected(ns, s))) * matchWork
		if running := t.running.sets[ns]; s.key == "" {
			cost += work.Units(len(running)) * askWork
		}
	}
	cost += work.Units(t.batch.steps) * askWork
	t.batch.steps = 0
	return cost
}
