package pack

import (
	"cmp"
	"slices"

	"karpenter.sh/karpenter/internal/core/work"
)

// A tree answers which of many classes is worth most among those that fit into given room. It is a k-d tree over needs; every node
// knows the highest worth and the least need of the classes below that still have items.
//
// The exchange asks "the most precious item that fits into these four numbers" for every item on a node. With thousands of classes, going
// through all of them for each would be slower than everything else. A node of the tree stands for all classes below it: if even the least
// need of them in some dimension does not fit, or if even the highest worth is not above the best one so far, none of them has to be
// looked at. Which half is visited first does not change the answer, only how soon the other one can be passed over.
type tree struct {
	p     *part
	worth []float64
	order []int // classes, leaf by leaf
	place []int // per class: its position in order
	leafs int   // power of two
	high  []float64
	low   []int64 // node*dims
	gone  []bool  // per class
	start []int   // per leaf: its first position; one more at the end
	steps work.Steps
}

const leafSize = 8

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

// divide sorts positions lo to hi along dimension d, halves them, and goes on with the next dimension. Dimensions in which all
// needs are equal divide nothing and are passed over.
//
// Halves of equal size, one dimension after the other, keep classes together that are alike in all dimensions: then
// a subtree that does not fit is left out as a whole. A dimension in which all classes need the same (most often a
// dimension that only few pods ask for) tells nothing apart, and a level spent on it would be a level wasted.
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

// keep brings back exactly the classes with items.
func (t *tree) keep(rem []int) {
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

func (t *tree) sumNode(node int) {
	dims := t.p.dims
	t.high[node] = max(t.high[2*node], t.high[2*node+1])
	for d := range dims {
		t.low[node*dims+d] = min(t.low[2*node*dims+d], t.low[(2*node+1)*dims+d])
	}
}

// remove takes class k out.
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

// highest returns the class worth most, and more than low, that fits into room and that ok admits; −1 if there is none.
func (t *tree) highest(room []int64, low float64, ok func(int) bool) int {
	best := -1
	t.visit(1, room, &low, &best, ok)
	return best
}

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
