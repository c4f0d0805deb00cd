// Package overlay corrects the instance types of a cloud by what NodeOverlays say: prices of offerings, and extended resources
// of types.
//
// All code reads catalogues after this correction, so that plans, launches and disruption agree. Overlays are judged
// together: two of equal weight that change the same price or resource contradict each other, and one of them is not
// applied at all. Which of them is in force does not depend on current prices or stock.
//
//	overlay.go  Judge decides which overlays are in force, and returns them as a Book of rules
//	changed.go  finds contradictions
//	change.go   arithmetic of one price change
//	apply.go    Book.Apply corrects the catalogue of a pool; Marks annotates claims
package overlay

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
	vocabulary "karpenter.sh/karpenter/api/label"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/core/label"
	"karpenter.sh/karpenter/internal/core/need"
)

// A Pool is a pool with the catalogue of its provider.
type Pool struct {
	Pool    *v1.NodePool
	Catalog *cloud.Catalog
}

// Same reports whether overlays have the same effect on two pools: catalogue and labels are the same.
func (p Pool) Same(other Pool, known *vocabulary.Vocabulary) bool {
	return p.Catalog == other.Catalog && (p.Pool == other.Pool || maps.Equal(labelsOf(p.Pool, known), labelsOf(other.Pool, known)))
}

// A Verdict is why an overlay is not in force. The zero value: it is in force.
type Verdict struct {
	Invalid  error              // its spec is wrong
	Conflict *v1alpha1.Conflict // another overlay of its weight changes the same price or resource
}

// A Book is the overlays that are in force. It never changes. A nil Book changes nothing.
type Book struct {
	rules []*rule // the heaviest first
	known *vocabulary.Vocabulary
}

// Equal reports whether two books contain the same versions of the same overlays. Changes of their status do not count.
func (b *Book) Equal(other *Book) bool {
	return slices.EqualFunc(b.rules, other.rules, func(x, y *rule) bool {
		return x.from.Name == y.from.Name && x.from.UID == y.from.UID && x.from.Generation == y.from.Generation
	})
}

// A rule is one overlay, ready to be applied.
type rule struct {
	from     *v1alpha1.NodeOverlay // never changes
	name     string
	weight   int32
	wants    []want
	change   *change // of the price; nil if there is none
	preview  bool    // it may give a price to offerings that have none; see newRule
	capacity corev1.ResourceList
}

// A want is one requirement.
type want struct {
	key string
	set label.Set
}

// Judge returns the overlays that are in force, and a verdict on each overlay, in the given order. Of overlays that contradict each other,
// the heavier one decides; of equal weight, the one with the name that is later in the alphabet is in force, as in earlier versions of
// Karpenter.
func Judge(overlays []*v1alpha1.NodeOverlay, pools []Pool, known *vocabulary.Vocabulary) (*Book, []Verdict) {
	verdicts := make([]Verdict, len(overlays))
	order := make([]int, 0, len(overlays))
	rules := make([]*rule, len(overlays))
	for i, o := range overlays {
		if rules[i], verdicts[i].Invalid = newRule(o, known); verdicts[i].Invalid == nil {
			order = append(order, i)
		}
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(rules[b].weight, rules[a].weight), strings.Compare(rules[b].name, rules[a].name))
	})
	book := &Book{known: known}
	for _, equal := range sameWeight(order, rules) {
		earlier := newChangeIndex(pools)
		for _, i := range equal {
			touched := book.touched(rules[i], pools)
			if verdicts[i].Conflict = earlier.conflict(rules[i], touched); verdicts[i].Conflict == nil {
				earlier.add(rules[i], touched)
				book.rules = append(book.rules, rules[i])
			}
		}
	}
	return book, verdicts
}

// newRule reads an overlay, and returns what is wrong with it.
func newRule(o *v1alpha1.NodeOverlay, known *vocabulary.Vocabulary) (*rule, error) {
	if err := o.Validate(known); err != nil {
		return nil, err
	}
	change, err := changeOf(&o.Spec)
	if err != nil {
		return nil, err
	}
	r := &rule{from: o, name: o.Name, weight: o.Weight(), change: change, capacity: o.Spec.Capacity}
	for _, q := range o.Spec.Requirements {
		set := need.Set(&v1.NodeSelectorRequirementWithMinValues{Key: q.Key, Operator: q.Operator, Values: q.Values})
		r.wants = append(r.wants, want{known.Normalize(q.Key), set})
	}
	// A price for types that have none must be meant for them: a rule about whole families would switch on types that were not meant.
	r.preview = change != nil && change.absolute && len(o.Spec.Requirements) == 1 &&
		r.wants[0].key == corev1.LabelInstanceTypeStable && o.Spec.Requirements[0].Operator == corev1.NodeSelectorOpIn
	return r, nil
}

// sameWeight cuts an order into runs of equal weight.
func sameWeight(order []int, rules []*rule) [][]int {
	var runs [][]int
	for i, o := range order {
		if i == 0 || rules[order[i-1]].weight != rules[o].weight {
			runs = append(runs, nil)
		}
		runs[len(runs)-1] = append(runs[len(runs)-1], o)
	}
	return runs
}

// A place is an instance type in a pool.
type place struct{ pool, it int }

// touched returns the types that a rule selects in all pools, and which of their offerings.
func (b *Book) touched(r *rule, pools []Pool) map[place][]bool {
	out := map[place][]bool{}
	for p := range pools {
		labels := labelsOf(pools[p].Pool, b.known)
		for t, it := range pools[p].Catalog.Types {
			if offers := r.selects(it, labels); offers != nil {
				out[place{p, t}] = offers
			}
		}
	}
	return out
}

// labelsOf returns the labels that a pool gives all its nodes, under their present names.
func labelsOf(pool *v1.NodePool, known *vocabulary.Vocabulary) map[string]string {
	out := map[string]string{}
	for key, value := range pool.NodeLabels() {
		out[known.Normalize(key)] = value
	}
	if ref := pool.Spec.Template.Spec.NodeClassRef; ref != nil {
		out[v1.NodeClassLabelKey(ref.GroupKind())] = ref.Name
	}
	out[v1.NodePoolLabelKey] = pool.Name
	return out
}

// selects returns which of a type's offerings a rule selects, nil if it selects none. pool is the labels of the pool's nodes. If a node has
// no such label, only requirements that allow its absence are met.
func (r *rule) selects(it *cloud.InstanceType, pool map[string]string) []bool {
	for _, w := range r.wants {
		if !w.meetsSome(it, pool) {
			return nil
		}
	}
	var out []bool
	for i := range it.Offerings {
		if r.takes(it, i, pool) {
			if out == nil {
				out = make([]bool, len(it.Offerings))
			}
			out[i] = true
		}
	}
	return out
}

// meetsSome reports whether a node of the type may meet the requirement with some offering. It is a cheap test before takes.
func (w want) meetsSome(it *cloud.InstanceType, pool map[string]string) bool {
	if w.set.HasAbsent() {
		return true // some offering may lack the label
	}
	if values := it.Labels[w.key]; len(values) > 0 {
		return slices.ContainsFunc(values, w.set.Has)
	}
	value, ok := pool[w.key]
	return ok && w.set.Has(value)
}

// takes reports whether a rule selects one offering of a type. A label comes from the offering, else from the type, else from the pool.
func (r *rule) takes(it *cloud.InstanceType, offering int, pool map[string]string) bool {
	for _, w := range r.wants {
		if value, ok := it.Offerings[offering].Labels[w.key]; ok {
			if !w.set.Has(value) {
				return false
			}
			continue
		}
		values := it.Labels[w.key]
		switch value, ok := pool[w.key]; {
		case len(values) > 0 && decidedByOffering(it, w.key): // another offering has it, this one does not
			if !w.set.HasAbsent() {
				return false
			}
		case len(values) > 0:
			if !slices.ContainsFunc(values, w.set.Has) {
				return false
			}
		case ok:
			if !w.set.Has(value) {
				return false
			}
		case !w.set.HasAbsent():
			return false
		}
	}
	return true
}

// decidedByOffering reports whether some offering of the type has its own value of a label.
func decidedByOffering(it *cloud.InstanceType, key string) bool {
	return slices.ContainsFunc(it.Offerings, func(o cloud.Offering) bool { _, ok := o.Labels[key]; return ok })
}
