package limits

import (
	"testing"

	"karpenter.sh/karpenter/internal/core/quantity"
)

func TestShort(t *testing.T) {
	short := func(a Axis) *Axis { return &a }
	for name, tc := range map[string]struct {
		pool Pool
		want *Axis // nil: it fits
	}{
		"a pool without limits takes anything":           {Pool{}, nil},
		"a machine within what is left":                  {Pool{Limited: true, Left: quantity.Vec{4, Unlimited}, Nodes: Unlimited}, nil},
		"a machine of exactly what is left":              {Pool{Limited: true, Left: quantity.Vec{2, 8}, Nodes: 1}, nil},
		"more than is left of the first resource":        {Pool{Limited: true, Left: quantity.Vec{1, Unlimited}, Nodes: Unlimited}, short(Axis{Resource: 0})},
		"no node is left":                                {Pool{Limited: true, Left: quantity.Vec{9, 9}, Nodes: 0}, short(Axis{Nodes: true})},
		"a resource that is overdrawn stops every node":  {Pool{Limited: true, Left: quantity.Vec{9, 9, -1}, Nodes: Unlimited}, short(Axis{Resource: 2})},
		"a resource that machines do not have may be 0":  {Pool{Limited: true, Left: quantity.Vec{9, 9, 0}, Nodes: Unlimited}, nil},
		"an unlimited resource is never the one to stop": {Pool{Limited: true, Left: quantity.Vec{Unlimited, 7}, Nodes: Unlimited}, short(Axis{Resource: 1})},
	} {
		t.Run(name, func(t *testing.T) {
			machine := quantity.Vec{2, 8}
			got, is := tc.pool.Short(machine)
			if is != (tc.want != nil) || is && got != *tc.want || tc.pool.Fits(machine) == is {
				t.Errorf("Short = %+v, %t, Fits = %t, want %+v", got, is, tc.pool.Fits(machine), tc.want)
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
