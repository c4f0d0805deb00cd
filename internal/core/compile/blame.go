package compile

import (
	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/label"
)

// blame names the requirements of a pool that leave it without instance types: a requirement that no type meets, else two that no type
// meets together. Both are "" if only three or more together exclude all types, or if nothing can be bought at all. Requirements on
// labels that the catalogue does not mention exclude no type.
func (t *template) blame() (key, with string) {
	if !t.sells() {
		return "", ""
	}
	var reqs label.Reqs
	for _, q := range t.reqs {
		if t.catalog.shape.Mentions(q.Key) {
			reqs = append(reqs, q)
		}
	}
	for _, q := range reqs {
		if !t.sells(q) {
			return q.Key, ""
		}
	}
	for i, q := range reqs {
		for _, r := range reqs[:i] {
			if !t.sells(q, r) {
				return r.Key, q.Key
			}
		}
	}
	return "", ""
}

// sells reports whether the catalogue has a type that meets requirements and can be bought under them.
func (t *template) sells(reqs ...label.Req) bool {
	cat := t.catalog.shape
	shapes, offers := bits.Full(cat.Len()), bits.Full(len(cat.Offers))
	for _, q := range reqs {
		cat.Shapes(q.Key, q.Set, shapes)
		cat.Admit(q.Key, q.Set, offers)
	}
	for s := range shapes.All() {
		if cat.Sold[s].Meets(offers) {
			return true
		}
	}
	return false
}
