package pack

import (
	"cmp"
	"slices"

	"karpenter.sh/karpenter/internal/core/work"
)

// A tree finds, among many classes, the most valuable class that fits into a given room. It is a k-d tree over needs; every node knows
// the highest worth, and the least need in each dimension, of the classes below it that still have items.
//
// filler.exchange asks this for every item on a node. With thousands of classes, a pass over all of them each time would take most of the
// work. A node of the tree is skipped if the least need below it does not fit in some dimension, or if the highest worth below it is not
// above the best one so far. The order of visits does not change the answer, only how many nodes are skipped.
type tree struct {
	p     *part
	worth []float64
	order []int     // classes, leaf by leaf
	place []int     // per class: its position in order
	leafs int       // number of leaves, a power of two
	high  []float64 // per node: the highest worth below it, -1 if no class there has items. Node 1 is the root, 2n and 2n+1 are below n
	low   []int64   // node*dims: the least need below it
	gone  []bool    // per class: it has no items left
	start []int     // per leaf: its first position in order; one more at the end
	steps work.Steps
}

// leafSize is the most classes of one leaf.
const leafSize = 8

// newTree builds the tree over all classes. setItems must be called before the first highest.
func newTree(p *part, worth []float64) *tree {
	t := &tree{p: p, worth: worth, order: make([]int, p.classes()), place: make([]int, p.classes()), gone: make([]bool, p.classes())}
	for k := range t.order {
		t.order[k] = k
	}
	t.leafs = 1
	for t.leafs*leafSize < p.classes() {
		t.leafs *= 2
	}
	t.high = make([]float64, 2*t.leafs)
	t.low = make([]int64, 2*t.leafs*p.dims)
	t.start = make([]int, t.leafs+1)
	t.start[t.leafs] = p.classes()
	t.divide(1, 0, p.classes(), 0)
	for i, k := range t.order {
		t.place[k] = i
	}
	return t
}

// divide builds the subtree of a node from positions lo to hi of t.order: it sorts them by their need in dimension d, halves them, and goes
// on with the next dimension. It skips dimensions in which all needs are equal, because these divide nothing.
//
// Halving one dimension after the other keeps classes together that are alike in all dimensions. So a subtree often fits or does not fit
// as a whole.
func (t *tree) divide(node, lo, hi, d int) {
	if node >= t.leafs {
		t.start[node-t.leafs] = lo
		return
	}
	part := t.order[lo:hi]
	for range t.p.dims {
		if len(part) > 0 && slices.ContainsFunc(part, func(k int) bool { return t.p.needs(k)[d] != t.p.needs(part[0])[d] }) {
			break
		}
		d = (d + 1) % t.p.dims
	}
	slices.SortFunc(part, func(a, b int) int {
		return cmp.Or(cmp.Compare(t.p.needs(a)[d], t.p.needs(b)[d]), cmp.Compare(a, b))
	})
	mid := (lo + hi) / 2
	t.divide(2*node, lo, mid, (d+1)%t.p.dims)
	t.divide(2*node+1, mid, hi, (d+1)%t.p.dims)
}

// setItems sets which classes have items (rem, per class), and computes high and low of all nodes anew.
func (t *tree) setItems(rem []int) {
	for k, n := range rem {
		t.gone[k] = n == 0
	}
	for leaf := range t.leafs {
		t.sumLeaf(leaf)
	}
	for node := t.leafs - 1; node > 0; node-- {
		t.sumNode(node)
	}
}

// sumLeaf computes high and low of a leaf from its classes that have items.
func (t *tree) sumLeaf(leaf int) {
	node, dims := t.leafs+leaf, t.p.dims
	t.high[node] = -1
	low := t.low[node*dims : (node+1)*dims]
	for d := range low {
		low[d] = 1 << 62
	}
	for _, k := range t.order[t.start[leaf]:t.start[leaf+1]] {
		if t.gone[k] {
			continue
		}
		t.high[node] = max(t.high[node], t.worth[k])
		for d, u := range t.p.needs(k) {
			low[d] = min(low[d], u)
		}
	}
}

// sumNode computes high and low of an inner node from the two nodes below it.
func (t *tree) sumNode(node int) {
	dims := t.p.dims
	t.high[node] = max(t.high[2*node], t.high[2*node+1])
	for d := range dims {
		t.low[node*dims+d] = min(t.low[2*node*dims+d], t.low[(2*node+1)*dims+d])
	}
}

// remove marks class k as without items, and updates the nodes above it.
func (t *tree) remove(k int) {
	t.gone[k] = true
	i, _ := slices.BinarySearchFunc(t.start, t.place[k], func(s, pos int) int {
		if s <= pos {
			return -1
		}
		return 1
	})
	leaf := i - 1
	t.sumLeaf(leaf)
	for node := (t.leafs + leaf) / 2; node > 0; node /= 2 {
		t.sumNode(node)
	}
}

// highest returns the class that is worth most, among the classes with items that are worth more than low, fit into room and for which ok
// returns true. It returns −1 if there is none.
func (t *tree) highest(room []int64, low float64, ok func(int) bool) int {
	best := -1
	t.visit(1, room, &low, &best, ok)
	return best
}

// visit searches below a node. It raises low to the worth of the best class so far, and sets best to that class.
func (t *tree) visit(node int, room []int64, low *float64, best *int, ok func(int) bool) {
	dims := t.p.dims
	t.steps += 8
	if t.high[node] <= *low || !fits(t.low[node*dims:node*dims+dims], room) {
		return
	}
	if node >= t.leafs {
		leaf := node - t.leafs
		t.steps += leafSize * 4
		for _, k := range t.order[t.start[leaf]:t.start[leaf+1]] {
			if !t.gone[k] && t.worth[k] > *low && fits(t.p.needs(k), room) && ok(k) {
				*low, *best = t.worth[k], k
			}
		}
		return
	}
	a, b := 2*node, 2*node+1
	if t.high[b] > t.high[a] {
		a, b = b, a
	}
	t.visit(a, room, low, best, ok)
	t.visit(b, room, low, best, ok)
}
