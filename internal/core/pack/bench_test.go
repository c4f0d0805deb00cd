package pack

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"karpenter.sh/karpenter/internal/core/pack/verify"
	"karpenter.sh/karpenter/internal/core/work"
)

// firstFit is the baseline: items by CPU, the largest first, each on the first node that still has a machine for everything on it;
// the cheapest machine is chosen when all is placed. If small is set, large machines are not used.
func firstFit(p *Problem, small bool) (price int64, nodes int) {
	type node struct {
		use   []int64
		on    map[int]int
		cells []int // machines that can hold what is there
	}
	var order []int
	for k, c := range p.Classes {
		for range c.Count {
			order = append(order, k)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int {
		x, y := p.Classes[a].Need, p.Classes[b].Need
		return cmp.Or(cmp.Compare(y[0], x[0]), cmp.Compare(y[1], x[1]))
	})
	var every []int
	for i, c := range p.Cells {
		if !small || c.Over == 0 {
			every = append(every, i)
		}
	}
	slices.SortStableFunc(every, func(a, b int) int { return cmp.Compare(p.Cells[a].Price, p.Cells[b].Price) })
	kept := every[:0:0] // a dearer machine without more room is never the cheapest
	for _, i := range every {
		if !slices.ContainsFunc(kept, func(j int) bool { return fits(p.Cells[i].Room, p.Cells[j].Room) }) {
			kept = append(kept, i)
		}
	}
	every = kept
	put := func(n *node, k int) bool {
		class := &p.Classes[k]
		if class.PerNode > 0 && n.on[k] >= class.PerNode {
			return false
		}
		for d, u := range class.Need {
			n.use[d] += u
		}
		holds := func(i int) bool {
			return fits(n.use, p.Cells[i].Room) && (class.Cells == nil || class.Cells.Has(i))
		}
		if !slices.ContainsFunc(n.cells, holds) {
			for d, u := range class.Need {
				n.use[d] -= u
			}
			return false
		}
		kept := make([]int, 0, len(n.cells))
		for _, i := range n.cells {
			if holds(i) {
				kept = append(kept, i)
			}
		}
		n.cells = kept
		n.on[k]++
		return true
	}
	var open []*node
	for _, k := range order {
		if slices.ContainsFunc(open, func(n *node) bool { return put(n, k) }) {
			continue
		}
		n := &node{use: make([]int64, len(p.Classes[k].Need)), on: make(map[int]int), cells: every}
		if put(n, k) {
			open = append(open, n)
		}
	}
	for _, n := range open {
		price += p.Cells[n.cells[0]].Price
	}
	return price, len(open)
}

// rows are the workloads with their settings: how long we may think, and whether the fast path is meant.
var rows = []struct {
	name string
	ms   int
	fast bool
}{
	{"few3", 300, false},
	{"few2skew", 300, false},
	{"few2complement", 300, false},
	{"few5", 300, false},
	{"many5000", 300, false},
	{"many5000", 1000, false},
	{"classes20", 50, true},
	{"classes20", 250, false},
	{"zonespread", 300, false},
	{"hostanti", 300, false},
	{"diverse5000", 100, true},
}

func BenchmarkSolve(b *testing.B) {
	for _, row := range rows {
		for _, spot := range []bool{false, true} {
			kind := "on-demand"
			if spot {
				kind = "spot"
			}
			b.Run(fmt.Sprintf("%s/%s/%dms", row.name, kind, row.ms), func(b *testing.B) {
				p := problem(b, row.name, spot)
				p.Cells = slices.Clip(p.Cells)
				var r *Result
				b.ReportAllocs()
				for b.Loop() {
					r = Solve(p, timed(row.ms, row.fast))
				}
				report(b, p, r)
			})
		}
	}
}

func timed(ms int, fast bool) Options {
	end := time.Now().Add(time.Duration(ms) * time.Millisecond)
	return Options{Gain: gain, Fast: fast, CloseMillionths: 1000, Meter: work.NewMeter(0, func() bool { return time.Now().After(end) })}
}

func report(b *testing.B, p *Problem, r *Result) {
	if err := verify.Check(p, r.Fleet, r.Left); err != nil {
		b.Fatal(err)
	}
	if err := verify.Verify(p, r.Certificate); err != nil {
		b.Fatal(err)
	}
	nodes := 0
	for _, f := range r.Fleet {
		nodes += f.Nodes
	}
	any, _ := firstFit(p, false)
	capped, _ := firstFit(p, true)
	b.ReportMetric(float64(nodes), "nodes")
	b.ReportMetric(float64(r.Price)/1e9, "$/h")
	b.ReportMetric(float64(r.VolumeBound)/1e9, "volume-$/h")
	b.ReportMetric(float64(r.ConfigBound)/1e9, "config-$/h")
	b.ReportMetric(100*r.Gap(), "gap-%")
	b.ReportMetric(float64(any)/1e9, "firstfit-$/h")
	b.ReportMetric(float64(capped)/1e9, "firstfit64-$/h")
}

// What the bars promise about prices must hold without a clock, too: by work.
func TestPricesStayWithinTheBarsOfTheBound(t *testing.T) {
	for _, row := range []struct {
		name             string
		onDemand, spot   float64 // price / bound
		most             work.Units
		volume, volumeSp float64 // price / volume bound; 0: not asked
	}{
		{"few3", 1.005, 1.01, work.Second / 5, 0, 0},
		{"few2skew", 1.005, 1.01, work.Second / 5, 0, 0},
		{"few2complement", 1.005, 1.01, work.Second / 5, 0, 0},
		{"few5", 1.005, 1.01, work.Second / 5, 0, 0},
		{"zonespread", 1.03, 1.03, work.Second / 5, 0, 0},
		{"hostanti", 1.03, 1.03, work.Second / 5, 0, 0},
		{"classes20", 1.01, 1.02, work.Second / 5, 0, 0},
		{"many5000", 1.002, 1.002, work.Second / 2, 1.005, 1.051},
	} {
		for _, spot := range []bool{false, true} {
			p := problem(t, row.name, spot)
			r := Solve(p, Options{Gain: gain, Most: row.most})
			if err := verify.Check(p, r.Fleet, r.Left); err != nil {
				t.Fatal(err)
			}
			if err := verify.Verify(p, r.Certificate); err != nil {
				t.Errorf("%s spot=%v: %v", row.name, spot, err)
			}
			bar, volume := row.onDemand, row.volume
			if spot {
				bar, volume = row.spot, row.volumeSp
			}
			if 1+r.Gap() > bar {
				t.Errorf("%s spot=%v: %.4f of the bound, want at most %.3f", row.name, spot, 1+r.Gap(), bar)
			}
			if got := float64(r.Price) / float64(r.VolumeBound); volume > 0 && got > volume {
				t.Errorf("%s spot=%v: %.4f of the volume bound, want at most %.3f", row.name, spot, got, volume)
			}
			any, _ := firstFit(p, false)
			if float64(r.Price) > 0.75*float64(any) {
				t.Errorf("%s spot=%v: %d is not 25 %% below first fit's %d", row.name, spot, r.Price, any)
			}
			if capped, _ := firstFit(p, true); r.Price >= capped {
				t.Errorf("%s spot=%v: %d is not below capped first fit's %d", row.name, spot, r.Price, capped)
			}
		}
	}
}
