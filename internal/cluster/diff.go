package cluster

import "iter"

// diff yields, in key order, the rows that differ between two views of one table: the old row and the new row. One of them is zero if the
// row was added or removed. Pages that both views share are skipped by one comparison.
func diff[K any, V comparable](was, is *view[K, V]) iter.Seq2[V, V] {
	return func(yield func(V, V) bool) {
		var none V
		a, b := cursor[V]{pages: was.pages}, cursor[V]{pages: is.pages}
		for {
			if a.skipShared(&b) {
				continue
			}
			x, okX := a.row()
			y, okY := b.row()
			order := 0
			switch {
			case !okX && !okY:
				return
			case !okX:
				order = 1
			case !okY:
				order = -1
			default:
				order = is.order.cmp(is.order.key(x), is.order.key(y))
			}
			ok := true
			switch {
			case order < 0:
				ok = yield(x, none)
				a.next()
			case order > 0:
				ok = yield(none, y)
				b.next()
			default:
				if x != y {
					ok = yield(x, y)
				}
				a.next()
				b.next()
			}
			if !ok {
				return
			}
		}
	}
}

// cursor walks over the rows of some pages.
type cursor[V any] struct {
	pages []*page[V]
	at    int
}

// row returns the present row, ok false after the last one.
func (c *cursor[V]) row() (row V, ok bool) {
	if len(c.pages) == 0 {
		return row, false
	}
	return c.pages[0].rows[c.at], true
}

func (c *cursor[V]) next() {
	if c.at++; c.at == len(c.pages[0].rows) {
		c.pages, c.at = c.pages[1:], 0
	}
}

// skipShared moves both cursors past a page that both are at the start of, and reports whether it did.
func (c *cursor[V]) skipShared(other *cursor[V]) bool {
	if len(c.pages) == 0 || len(other.pages) == 0 || c.at != 0 || other.at != 0 || c.pages[0] != other.pages[0] {
		return false
	}
	c.pages, other.pages = c.pages[1:], other.pages[1:]
	return true
}

// PodChanges yields the pods that differ from an earlier snapshot of the same store: its old row, its new row, nil for a pod
// that was not or is no longer there. Without an earlier snapshot every pod is new.
func (s *Snapshot) PodChanges(since *Snapshot) iter.Seq2[*Pod, *Pod] {
	if since == nil {
		return diff(&view[PodKey, *Pod]{}, &s.pods.view)
	}
	return diff(&since.pods.view, &s.pods.view)
}

// NodeChanges yields the node rows that differ from an earlier snapshot, in the manner of PodChanges. A Node that joins
// its claim is a row that ends and another that begins or changes.
func (s *Snapshot) NodeChanges(since *Snapshot) iter.Seq2[*Node, *Node] {
	if since == nil {
		return diff(&view[rowKey, *Node]{}, &s.nodes.view)
	}
	return diff(&since.nodes.view, &s.nodes.view)
}
