package verify

import (
	"errors"
	"fmt"
)

// Check returns an error that says why a fleet, with left items of each class left out, is no answer to the problem, or nil.
func Check(p *Problem, fleet []Pattern, left []int) error {
	placed := make([]int, len(p.Classes))
	nodes := make([]int, len(p.Cells))
	for i, pat := range fleet {
		if err := checkPattern(p, pat); err != nil {
			return fmt.Errorf("pattern %d: %w", i, err)
		}
		nodes[pat.Cell] += pat.Nodes
		for _, it := range pat.Items {
			placed[it.Class] += it.Count * pat.Nodes
		}
	}
	for k, c := range p.Classes {
		if placed[k]+left[k] != c.Count || left[k] < 0 {
			return fmt.Errorf("class %d: %d placed and %d left of %d", k, placed[k], left[k], c.Count)
		}
	}
	for c, n := range nodes {
		if s := p.Cells[c].Stock; s > 0 && n > s {
			return fmt.Errorf("cell %d: %d nodes of %d in stock", c, n, s)
		}
	}
	for l, lim := range p.Limits {
		var sum int64
		for c, n := range nodes {
			sum = addTimes(sum, lim.Use[c], n)
		}
		if sum > lim.Max {
			return fmt.Errorf("limit %d: %d of %d", l, sum, lim.Max)
		}
	}
	return nil
}

// checkPattern checks one node of a pattern: its classes may use the cell, fit, keep their limits per node, and have no conflict.
func checkPattern(p *Problem, pat Pattern) error {
	if pat.Cell < 0 || pat.Cell >= len(p.Cells) || pat.Nodes < 1 {
		return errors.New("no such cell or no nodes")
	}
	cell := p.Cells[pat.Cell]
	use := make([]int64, len(cell.Room))
	on := make(map[int]int)
	for _, it := range pat.Items {
		c := p.Classes[it.Class]
		on[it.Class] += it.Count
		if it.Count < 1 {
			return fmt.Errorf("class %d: count %d", it.Class, it.Count)
		}
		if c.Cells != nil && !c.Cells.Has(pat.Cell) {
			return fmt.Errorf("class %d may not use cell %d", it.Class, pat.Cell)
		}
		if c.PerNode > 0 && on[it.Class] > c.PerNode {
			return fmt.Errorf("class %d: %d on one node", it.Class, on[it.Class])
		}
		for d, n := range c.Need {
			use[d] = addTimes(use[d], n, it.Count)
		}
	}
	for d := range use {
		if use[d] > cell.Room[d] {
			return fmt.Errorf("dimension %d: %d needed, cell %d has %d", d, use[d], pat.Cell, cell.Room[d])
		}
	}
	for _, x := range p.Conflicts {
		if x[0] != x[1] && on[x[0]] > 0 && on[x[1]] > 0 {
			return fmt.Errorf("classes %d and %d share a node", x[0], x[1])
		}
	}
	return nil
}

// most is the highest sum: more than any room.
const most = int64(1) << 62

// addTimes returns sum + x*n, at most most.
func addTimes(sum, x int64, n int) int64 {
	return plusTimes(sum, x, int64(n))
}
