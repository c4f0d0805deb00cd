package repack

import (
	"testing"

	"karpenter.sh/karpenter/internal/core/bits"
	"karpenter.sh/karpenter/internal/core/pack"
	"karpenter.sh/karpenter/internal/core/problem"
	"karpenter.sh/karpenter/internal/core/quantity"
	"karpenter.sh/karpenter/internal/core/shape"
)

// A machine is a cell of a test: the shapes of each template are an ordinary one and an exotic one.
type machine struct {
	tmpl   problem.TemplateID
	exotic bool
	room   int64
	over   int
}

// questionAbout asks about items that need so much room each, and may be on all machines that have it.
func questionAbout(machines []machine, needs ...int64) *question {
	p := &problem.Problem{Resources: 1}
	for range 2 {
		p.Templates = append(p.Templates, problem.Template{Catalog: &shape.Catalog{Exotic: bits.Of(2, 1)}})
	}
	q := &question{p: p, exact: true}
	for i, need := range needs {
		p.Classes = append(p.Classes, problem.Class{Need: quantity.Vec{need}})
		q.items = append(q.items, item{class: problem.ClassID(i), count: 1})
		q.kindOf = append(q.kindOf, 0)
		q.problem.Classes = append(q.problem.Classes, pack.Class{Need: []int64{need}})
	}
	for _, m := range machines {
		c := cell{tmpl: m.tmpl, kinds: bits.Full(1)}
		if m.exotic {
			c.shape = 1
		}
		q.cells = append(q.cells, c)
		q.problem.Cells = append(q.problem.Cells, pack.Cell{Room: []int64{m.room}, Over: m.over})
	}
	return q
}

func TestOpenToItems(t *testing.T) {
	for name, tc := range map[string]struct {
		machines []machine
		needs    []int64
		want     [][]int // cells by item
		exact    bool
	}{
		"nobody needs an exotic machine":       {[]machine{{0, false, 8, 0}, {0, true, 9, 0}}, []int64{1, 8}, [][]int{{0}, {0}}, true},
		"who needs none may ride along":        {[]machine{{0, false, 8, 0}, {0, true, 9, 0}}, []int64{1, 9}, [][]int{{0, 1}, {1}}, true},
		"but only where somebody has to be":    {[]machine{{0, false, 8, 0}, {0, true, 9, 0}, {0, true, 7, 0}}, []int64{1, 9}, [][]int{{0, 1}, {1}}, true},
		"and not if its own are larger":        {[]machine{{0, false, 8, 1}, {0, true, 9, 0}}, []int64{1, 9}, [][]int{{0}, {1}}, false},
		"it may if the exotic one is as large": {[]machine{{0, false, 8, 1}, {0, true, 9, 1}}, []int64{1, 9}, [][]int{{0, 1}, {1}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			q := questionAbout(tc.machines, tc.needs...)
			q.openToItems()
			for i, want := range tc.want {
				if got := q.problem.Classes[i].Cells; !got.Equal(bits.Of(len(tc.machines), want...)) {
					t.Errorf("item %d may use %v, want %v", i, got, want)
				}
			}
			if q.exact != tc.exact {
				t.Errorf("exact = %v", q.exact)
			}
		})
	}
}

func TestEvenSizes(t *testing.T) {
	for name, tc := range map[string]struct {
		machines []machine
		want     bool
	}{
		"a large machine beside a small one":                  {[]machine{{0, false, 8, 0}, {0, false, 16, 2}}, true},
		"a template with large ones only":                     {[]machine{{0, false, 8, 0}, {1, false, 16, 2}}, false},
		"a template with large ones only as there are others": {[]machine{{0, false, 8, 2}, {1, false, 16, 2}}, true},
		"a template with large ones that are too small":       {[]machine{{0, false, 8, 0}, {1, false, 0, 2}}, true},
		"ordinary machines that are larger than exotic ones":  {[]machine{{0, false, 8, 1}, {0, true, 8, 0}}, false},
		"exotic machines that are larger than ordinary ones":  {[]machine{{0, false, 8, 0}, {0, true, 8, 1}}, true},
		"a template with exotic ones only":                    {[]machine{{0, false, 8, 0}, {1, true, 8, 1}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			q := questionAbout(tc.machines, 1)
			q.loose = true
			q.openToItems()
			if got := q.evenSizes(); got != tc.want {
				t.Errorf("evenSizes = %v", got)
			}
		})
	}
}
