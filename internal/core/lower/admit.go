package lower

import (
	"cmp"
	"slices"

	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/reason"
	"karpenter.sh/karpenter/internal/core/work"
)

// What pods ask for is multiplied with what others ask for: a selector is asked about every label set, a term about every pool. Few
// pods, written for it, could keep everybody waiting. So what the terms of waiting pods cost is counted before they are spelled out, and
// when it is more than one plan may take, namespaces share what there is. The rest is refused for now and comes first next time.

const (
	// defaultTerms is how much work terms may cause before places are looked for.
	defaultTerms = work.Second * 3 / 4
	// turnWork is how much of it namespaces take in turn.
	turnWork = work.Second / 1000

	variantWork = 4500 // of one way to read a pod, and more for each pool
	poolWork    = 1200
	termWork    = 5000 // of a constraint over pods
	askWork     = 60   // of asking a selector about a label set
	matchWork   = 25   // of a label set that it selects
)

// fewTerms is up to how many terms of node affinity a pod counts as plain, if it has no constraints over other pods.
const fewTerms = 16

// plain pods are always planned for.
func (c *cohort) plain() bool {
	i := c.info
	return len(i.hard)+len(i.soft)+len(i.near)+len(i.apart)+len(i.nearSoft)+len(i.apartSoft)+len(c.extra) == 0 &&
		len(i.terms)+len(i.preferred) <= fewTerms
}

// admit leaves out cohorts whose terms are more work than one plan may take.
func (b *builder) admit() {
	queues := map[string][]*cohort{}
	for _, c := range b.cohorts {
		if !c.plain() {
			ns := c.info.class.Namespace
			queues[ns] = append(queues[ns], c)
		}
	}
	for _, q := range queues {
		b.queue(q)
	}
	out := b.shareOut(queues)
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

// postpone leaves a pod for another plan.
func (b *builder) postpone(p *cluster.Pod) {
	if b.postponed == nil {
		b.postponed = map[cluster.PodKey]bool{}
	}
	b.postponed[p.PodKey] = true
	if !b.hasPlace(p) {
		b.refuse(p, []reason.Count{{Code: reason.Postponed}})
	}
}

// shareOut lets namespaces take turns and returns the cohorts for which no work is left. The first of each turn always gets some.
func (b *builder) shareOut(queues map[string][]*cohort) map[*cohort]bool {
	names := sortedKeys(queues)
	spent := map[string]work.Units{}
	out := map[*cohort]bool{}
	most := cmp.Or(b.in.Work, defaultTerms)
	for round := work.Units(1); len(names) > 0; round++ {
		for _, ns := range names {
			for len(queues[ns]) > 0 && spent[ns] < round*turnWork {
				c := queues[ns][0]
				queues[ns] = queues[ns][1:]
				if b.spent >= most || b.in.Ended != nil && b.in.Ended() {
					out[c] = true
					continue
				}
				cost := b.costOf(c)
				spent[ns] += cost
				b.spent += cost
			}
		}
		names = slices.DeleteFunc(names, func(ns string) bool { return len(queues[ns]) == 0 })
	}
	return out
}

// queue puts cohorts whose pods were left out most often first, and those whose pods all have a place last.
func (b *builder) queue(list []*cohort) {
	type rank struct{ leftOut, placed int }
	ranks := make(map[*cohort]rank, len(list))
	for _, c := range list {
		r := rank{placed: 1}
		for _, p := range c.pods {
			r.leftOut = max(r.leftOut, b.in.LeftOut[p.PodKey])
			if !b.hasPlace(p) {
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

// costOf is what the terms of a cohort cost. Those of a class are spelled out once.
func (b *builder) costOf(c *cohort) work.Units {
	i, ns := c.info, c.info.class.Namespace
	var cost work.Units
	if !b.counted[i] {
		b.counted[i] = true
		levels := 1 + len(i.preferred) + len(i.soft) + len(i.nearSoft) + len(i.apartSoft)
		ways := min(levels*len(i.terms)*max(1, len(c.volumes.alternatives)), mostVariants)
		cost += work.Units(ways) * (variantWork + poolWork*work.Units(len(b.templates)))
	}
	own := []string{ns}
	for _, list := range [][]spreadTerm{i.hard, i.soft, c.extra} {
		for k := range list {
			s := list[k].fixed
			if s == nil {
				known := list[k].selectorFor(c.labels.Map)
				s = &known
			}
			cost += b.costOfSelector(s, own)
		}
	}
	for _, list := range [][]podTerm{i.near, i.apart, i.nearSoft, i.apartSoft} {
		for k := range list {
			t := &list[k]
			s := t.selectorFor(c.labels.Map)
			if t.every || t.among != nil {
				cost += b.costOfSelector(&s, sortedKeys(b.labels.sets))
			} else {
				cost += b.costOfSelector(&s, t.namespaces)
			}
		}
	}
	return cost
}

// costOfSelector asks a selector of one term, in the namespaces that it is about, and says what that cost. What it selects is
// remembered for when its group asks.
func (b *builder) costOfSelector(s *selector, namespaces []string) work.Units {
	cost := work.Units(termWork)
	for _, ns := range namespaces {
		cost += work.Units(len(b.labels.selected(ns, s))) * matchWork
		if running := b.w.labels.sets[ns]; s.key == "" {
			cost += work.Units(len(running)) * askWork
		}
	}
	cost += work.Units(b.labels.steps) * askWork
	b.labels.steps = 0
	return cost
}
