// Package label says what Karpenter knows about each node label: one table per API group, and the vocabulary that several
// tables make together.
//
// The tables have one home, next to the constants of their group; the lists of allowed keys in the CRDs and the
// reference pages are generated from them.
package label

import (
	"maps"
	"slices"
	"strings"
)

// A Label is what is known about one label key.
type Label struct {
	Key string
	Doc string // one sentence for the reference page
	// WellKnown labels are on every node that has something to say under them, so a pod may ask for a label that no pool names.
	WellKnown bool
	// Requirable labels may be used in the requirements and labels of pools although their domain is restricted.
	// WellKnown labels always may.
	Requirable bool
	// Restricted labels may not be asked for at all.
	Restricted bool
	// Owned labels are set by Karpenter for each pool or claim, so a pool may not set or require them.
	Owned bool
	// Numeric labels hold whole numbers, so that Gt, Lt, Gte and Lte make sense.
	Numeric bool
	// Simulated labels are true of every node at the end of its start; they are never asked of the cloud.
	Simulated bool
	// Reservation labels describe the capacity reservation that a machine runs in, which may end while the machine runs on.
	Reservation bool
	// Values that are known; nil if there is no telling.
	Values []string
	// Closed says that a pool which allows none but unknown values is refused.
	Closed bool
	// Aliases are older keys with the same meaning.
	Aliases []string
}

// A Table is what one API group knows about labels.
type Table struct {
	// RestrictedDomains are the domains, with all below them, that nothing else may make up labels in.
	RestrictedDomains []string
	Labels            []Label
}

// A Vocabulary is several tables together. It never changes.
type Vocabulary struct {
	labels  map[string]Label
	alias   map[string]string
	domains []string
}

// NewVocabulary joins tables. Where two of them describe a key, the later one adds to what the earlier one says.
func NewVocabulary(tables ...Table) *Vocabulary {
	v := &Vocabulary{labels: map[string]Label{}, alias: map[string]string{}}
	for _, t := range tables {
		v.domains = append(v.domains, t.RestrictedDomains...)
		for _, l := range t.Labels {
			v.labels[l.Key] = join(v.labels[l.Key], l)
			for _, alias := range l.Aliases {
				v.alias[alias] = l.Key
			}
		}
	}
	slices.Sort(v.domains)
	v.domains = slices.Compact(v.domains)
	return v
}

func join(a, b Label) Label {
	if a.Doc == "" {
		a.Doc = b.Doc
	}
	if len(a.Values) == 0 {
		a.Values = b.Values
	}
	a.Key = b.Key
	a.WellKnown = a.WellKnown || b.WellKnown
	a.Requirable = a.Requirable || b.Requirable
	a.Restricted = a.Restricted || b.Restricted
	a.Owned = a.Owned || b.Owned
	a.Numeric = a.Numeric || b.Numeric
	a.Simulated = a.Simulated || b.Simulated
	a.Reservation = a.Reservation || b.Reservation
	a.Closed = a.Closed || b.Closed
	a.Aliases = slices.Concat(a.Aliases, b.Aliases)
	return a
}

// Normalize returns the key that is used for key's meaning today: most keys are their own.
func (v *Vocabulary) Normalize(key string) string {
	if today, ok := v.alias[key]; ok {
		return today
	}
	return key
}

// Label returns what is known about a key, after normalisation.
func (v *Vocabulary) Label(key string) (Label, bool) {
	l, ok := v.labels[v.Normalize(key)]
	return l, ok
}

// WellKnown reports whether every node that has something to say under key carries it.
func (v *Vocabulary) WellKnown(key string) bool {
	l, _ := v.Label(key)
	return l.WellKnown
}

// Owned reports whether Karpenter sets the label for each pool or claim.
func (v *Vocabulary) Owned(key string) bool {
	l, _ := v.Label(key)
	return l.Owned
}

// Numeric reports whether the label is known to hold whole numbers.
func (v *Vocabulary) Numeric(key string) bool {
	l, _ := v.Label(key)
	return l.Numeric
}

// Reservation reports whether the label describes a capacity reservation.
func (v *Vocabulary) Reservation(key string) bool {
	l, _ := v.Label(key)
	return l.Reservation
}

// Values returns all values that a closed label may have, nil for other labels. The caller may keep it.
func (v *Vocabulary) Values(key string) []string {
	l, _ := v.Label(key)
	if !l.Closed {
		return nil
	}
	return slices.Clone(l.Values)
}

// Restricted reports whether pods and pools may not ask for the label: it is restricted itself, or in a restricted domain and
// not known there. Unlike the CRDs, which compare texts, it knows what a sub-domain is.
func (v *Vocabulary) Restricted(key string) bool {
	key = v.Normalize(key)
	if l, ok := v.labels[key]; ok && (l.Restricted || l.WellKnown || l.Requirable) {
		return l.Restricted
	}
	return v.RestrictedDomain(key) != ""
}

// RestrictedDomain returns the restricted domain that a key is in, "" if it is in none.
func (v *Vocabulary) RestrictedDomain(key string) string {
	domain, _, _ := strings.Cut(key, "/")
	for _, restricted := range v.domains {
		if domain == restricted || strings.HasSuffix(domain, "."+restricted) {
			return restricted
		}
	}
	return ""
}

// Labels returns all known labels by key, sorted.
func (v *Vocabulary) Labels() []Label {
	labels := make([]Label, 0, len(v.labels))
	for _, key := range slices.Sorted(maps.Keys(v.labels)) {
		labels = append(labels, v.labels[key])
	}
	return labels
}
