// Package limits keeps how much each pool may still open. What is taken from a pool is never more than it has, because a
// new node takes its capacity before it opens.
package limits

import "karpenter.sh/karpenter/internal/core/quantity"

// Unlimited is the amount of a resource that the pool does not limit.
const Unlimited = quantity.Max

// A Pool is what one pool may still open.
type Pool struct {
	Limited bool         // false: nothing limits it, and the other fields are not used
	Left    quantity.Vec // per resource; Unlimited without a limit
	Nodes   int64        // how many more nodes; Unlimited without a limit
}

// An Axis is what a limit is about: the number of nodes, or a resource.
type Axis struct {
	Nodes    bool
	Resource int // its column
}

// Fits reports whether a node with this capacity may be opened. A pool that is overdrawn in a resource takes no node at all, whatever its
// capacity.
func (p *Pool) Fits(capacity quantity.Vec) bool {
	_, short := p.Short(capacity)
	return !short
}

// Short returns the first axis on which the pool has too little for a node with this capacity; false if it has enough.
func (p *Pool) Short(capacity quantity.Vec) (Axis, bool) {
	if !p.Limited {
		return Axis{}, false
	}
	if p.Nodes < 1 {
		return Axis{Nodes: true}, true
	}
	for i, left := range p.Left {
		if left != Unlimited && (left < 0 || i < len(capacity) && capacity[i] > left) {
			return Axis{Resource: i}, true
		}
	}
	return Axis{}, false
}

// Take takes a node's capacity from what is left.
func (p *Pool) Take(capacity quantity.Vec) { p.change(capacity, -1) }

// Give gives a node's capacity back.
func (p *Pool) Give(capacity quantity.Vec) { p.change(capacity, 1) }

// change adds a node and its capacity to what is left (sign 1), or takes them off (sign −1).
func (p *Pool) change(capacity quantity.Vec, sign int64) {
	if !p.Limited {
		return
	}
	if p.Nodes != Unlimited {
		p.Nodes += sign
	}
	for i, left := range p.Left {
		if left != Unlimited && i < len(capacity) {
			p.Left[i] = left + sign*capacity[i]
		}
	}
}

// Clone returns a copy.
func (p Pool) Clone() Pool {
	p.Left = append(quantity.Vec(nil), p.Left...)
	return p
}
