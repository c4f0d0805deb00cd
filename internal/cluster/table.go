package cluster

import (
	"iter"
	"slices"
	"sort"
)

// pageRows is the most rows that one page holds. When a row changes for the first time after a snapshot was published, its page is
// copied.
const pageRows = 64

// A page is a run of neighbouring rows in key order, never empty.
type page[V any] struct {
	epoch uint64 // when it was made; pages of older epochs belong to snapshots too, and must not be changed
	rows  []V
}

// A view is a sorted, immutable sequence of rows.
type view[K, V any] struct {
	pages []*page[V]
	len   int
	order *order[K, V]
}

// An order says how rows are sorted.
type order[K, V any] struct {
	key func(V) K
	cmp func(a, b K) int
}

// find returns where the row with this key is, or where it would have to be inserted.
func (v *view[K, V]) find(key K) (pageAt, rowAt int, found bool) {
	o := v.order
	p := sort.Search(len(v.pages), func(i int) bool {
		rows := v.pages[i].rows
		return o.cmp(o.key(rows[len(rows)-1]), key) >= 0
	})
	if p == len(v.pages) {
		if p == 0 {
			return 0, 0, false
		}
		return p - 1, len(v.pages[p-1].rows), false
	}
	rows := v.pages[p].rows
	r := sort.Search(len(rows), func(i int) bool { return o.cmp(o.key(rows[i]), key) >= 0 })
	return p, r, o.cmp(o.key(rows[r]), key) == 0
}

// get returns the row with this key, or the zero value.
func (v *view[K, V]) get(key K) (row V, ok bool) {
	p, r, ok := v.find(key)
	if ok {
		row = v.pages[p].rows[r]
	}
	return row, ok
}

// all yields every row in key order.
func (v *view[K, V]) all() iter.Seq[V] {
	return func(yield func(V) bool) {
		for _, p := range v.pages {
			for _, row := range p.rows {
				if !yield(row) {
					return
				}
			}
		}
	}
}

// from yields the rows that are not before key, in key order.
func (v *view[K, V]) from(key K) iter.Seq[V] {
	return func(yield func(V) bool) {
		p, r, _ := v.find(key)
		for ; p < len(v.pages); p, r = p+1, 0 {
			for _, row := range v.pages[p].rows[r:] {
				if !yield(row) {
					return
				}
			}
		}
	}
}

// An epoch counts the snapshots that were published. The tables of a draft share it.
type epoch struct{ n uint64 }

// A table is a view that one writer may change. Copies made in earlier epochs keep what they saw.
type table[K, V any] struct {
	view[K, V]
	now  *epoch
	list uint64 // the epoch in which the list of pages was made; a list of an older epoch belongs to snapshots too
}

func newTable[K, V any](now *epoch, key func(V) K, cmp func(a, b K) int) table[K, V] {
	return table[K, V]{view: view[K, V]{order: &order[K, V]{key: key, cmp: cmp}}, now: now, list: now.n}
}

// own copies the list of pages and page p, if they belong to snapshots too, so that they may be changed. It returns the page.
func (t *table[K, V]) own(p int) *page[V] {
	t.ownList()
	pg := t.pages[p]
	if pg.epoch != t.now.n {
		pg = &page[V]{epoch: t.now.n, rows: append(make([]V, 0, pageRows), pg.rows...)}
		t.pages[p] = pg
	}
	return pg
}

func (t *table[K, V]) ownList() {
	if t.list != t.now.n {
		t.pages, t.list = slices.Clone(t.pages), t.now.n
	}
}

// put inserts or replaces a row, and returns the row that it replaced, if there was one.
func (t *table[K, V]) put(row V) (old V, replaced bool) {
	if len(t.pages) == 0 {
		t.ownList()
		t.pages = append(t.pages, t.newPage(row))
		t.len++
		return old, false
	}
	p, r, found := t.find(t.order.key(row))
	if found {
		pg := t.own(p)
		old, pg.rows[r] = pg.rows[r], row
		return old, true
	}
	t.len++
	if len(t.pages[p].rows) == pageRows {
		if p == len(t.pages)-1 && r == pageRows { // rows that come in order fill their pages
			t.ownList()
			t.pages = append(t.pages, t.newPage(row))
			return old, false
		}
		p, r = t.split(p, r)
	}
	pg := t.own(p)
	pg.rows = slices.Insert(pg.rows, r, row)
	return old, false
}

func (t *table[K, V]) newPage(rows ...V) *page[V] {
	return &page[V]{epoch: t.now.n, rows: append(make([]V, 0, pageRows), rows...)}
}

// split divides a full page in two and returns where row r of it is now.
func (t *table[K, V]) split(p, r int) (int, int) {
	pg := t.own(p)
	const half = pageRows / 2
	t.pages = slices.Insert(t.pages, p+1, t.newPage(pg.rows[half:]...))
	clear(pg.rows[half:])
	pg.rows = pg.rows[:half]
	if r > half {
		return p + 1, r - half
	}
	return p, r
}

// delete removes the row with this key and returns it.
func (t *table[K, V]) delete(key K) (old V, ok bool) {
	p, r, ok := t.find(key)
	if !ok {
		return old, false
	}
	t.len--
	if len(t.pages[p].rows) == 1 {
		t.ownList()
		old = t.pages[p].rows[0]
		t.pages = slices.Delete(t.pages, p, p+1)
		return old, true
	}
	pg := t.own(p)
	old = pg.rows[r]
	pg.rows = slices.Delete(pg.rows, r, r+1)
	t.merge(p)
	return old, true
}

// merge joins page p with the one after it when both are nearly empty.
func (t *table[K, V]) merge(p int) {
	if p+1 >= len(t.pages) || len(t.pages[p].rows)+len(t.pages[p+1].rows) > pageRows/2 {
		return
	}
	pg := t.own(p)
	pg.rows = append(pg.rows, t.pages[p+1].rows...)
	t.pages = slices.Delete(t.pages, p+1, p+2)
}
