package limits

import (
	"testing"

	"karpenter.sh/karpenter/internal/core/quantity"
)

func TestExceeded(t *testing.T) {
	for name, tc := range map[string]struct {
		pool Pool
		want int
	}{
		"a pool without limits takes anything":           {Pool{}, -2},
		"a machine within what is left":                  {Pool{Limited: true, Left: quantity.Vec{4, Unlimited}, Nodes: Unlimited}, -2},
		"a machine of exactly what is left":              {Pool{Limited: true, Left: quantity.Vec{2, 8}, Nodes: 1}, -2},
		"more than is left of the first resource":        {Pool{Limited: true, Left: quantity.Vec{1, Unlimited}, Nodes: Unlimited}, 0},
		"no node is left":                                {Pool{Limited: true, Left: quantity.Vec{9, 9}, Nodes: 0}, -1},
		"a resource that is overdrawn stops every node":  {Pool{Limited: true, Left: quantity.Vec{9, 9, -1}, Nodes: Unlimited}, 2},
		"a resource that machines do not have may be 0":  {Pool{Limited: true, Left: quantity.Vec{9, 9, 0}, Nodes: Unlimited}, -2},
		"an unlimited resource is never the one to stop": {Pool{Limited: true, Left: quantity.Vec{Unlimited, 7}, Nodes: Unlimited}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.pool.Exceeded(quantity.Vec{2, 8}); got != tc.want {
				t.Errorf("Exceeded = %d, want %d", got, tc.want)
			}
		})
	}
}

func TestTakeAndGive(t *testing.T) {
	p := Pool{Limited: true, Left: quantity.Vec{4, Unlimited}, Nodes: 2}
	q := p.Clone()
	p.Take(quantity.Vec{3, 5})
	if p.Left[0] != 1 || p.Left[1] != Unlimited || p.Nodes != 1 {
		t.Errorf("after taking: %+v", p)
	}
	p.Give(quantity.Vec{3, 5})
	if p.Left[0] != q.Left[0] || p.Nodes != q.Nodes {
		t.Errorf("after giving back: %+v", p)
	}
}
