package engine

import (
	"fmt"
	"math/rand/v2"
	"testing"

	corev1 "k8s.io/api/core/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/core/repack"
	"karpenter.sh/karpenter/internal/core/solve"
	"karpenter.sh/karpenter/internal/core/tariff"
)

var inZone = map[string]string{corev1.LabelTopologyZone: "a"}

// A covered is a small world with commitments: pods of two sizes, six types, and up to three commitments.
type covered struct {
	types  []string
	cpu    map[string]int64
	price  map[string]cloud.NanoUSD
	in     Question
	sizes  [2]int64
	counts [2]int
	book   *tariff.Book
}

// coveredWorld returns the world of a seed. Some machines run already, and spot is sold in every other world.
func coveredWorld(seed uint64) *covered {
	r := rand.New(rand.NewPCG(seed, 56))
	w := &covered{cpu: map[string]int64{}, price: map[string]cloud.NanoUSD{}, book: &tariff.Book{Region: "r", Machines: map[string]tariff.Line{}}}
	catalog := &cloud.Catalog{}
	types := dice{rand.New(rand.NewPCG(seed, 57))}
	spot := seed%2 == 0
	for _, family := range []string{"m5", "c5"} {
		base := 40 + r.Int64N(30)
		for _, size := range []struct {
			name string
			cpu  int64
		}{{"large", 2000}, {"xlarge", 4000}, {"2xlarge", 8000}} {
			name := family + "." + size.name
			w.types = append(w.types, name)
			w.cpu[name], w.price[name] = size.cpu, cloud.NanoUSD(base*size.cpu*(90+r.Int64N(20)))*10
			it := types.instanceType(0)
			it.Name, it.Capacity = name, quantities(size.cpu, 64<<10, 100)
			it.Labels = map[string][]string{corev1.LabelInstanceTypeStable: {name}, corev1.LabelArchStable: {"amd64"}, corev1.LabelOSStable: {"linux"},
				corev1.LabelTopologyZone: {"a"}, v1.CapacityTypeLabelKey: {"on-demand", "spot"}}
			it.Offerings = []cloud.Offering{offering(v1.CapacityTypeOnDemand, w.price[name])}
			if spot {
				it.Offerings = append(it.Offerings, offering(v1.CapacityTypeSpot, w.price[name]*cloud.NanoUSD(30+r.Int64N(50))/100))
			}
			catalog.Types = append(catalog.Types, it)
		}
	}
	w.sizes = [2]int64{400 + 100*r.Int64N(8), 1000 + 100*r.Int64N(20)}
	w.counts = [2]int{r.IntN(7), 1 + r.IntN(6)}
	w.in = types.small(w.counts[0]+w.counts[1], 1, func(i int, p *corev1.Pod) {
		k := 0
		if i >= w.counts[0] {
			k = 1
		}
		p.Spec.Containers[0].Resources.Requests = quantities(w.sizes[k], 64, 0)
		delete(p.Spec.Containers[0].Resources.Requests, corev1.ResourcePods)
	})
	w.in.Pools[0].Catalog = catalog
	for i := range 1 + r.IntN(3) {
		c := tariff.Commitment{ID: fmt.Sprint(i), OS: tariff.Linux, Region: "r"}
		switch r.IntN(4) {
		case 0:
			c.Type, c.Machines = w.types[r.IntN(6)], 1+r.Int64N(2)
		case 1:
			c.Type, c.Machines, c.Zone = w.types[r.IntN(6)], 1, "a"
		case 2:
			c.Kind, c.Family = tariff.EC2InstanceSavingsPlan, []string{"m5", "c5"}[r.IntN(2)]
		default:
			c.Kind, c.Region = tariff.ComputeSavingsPlan, ""
		}
		if c.Kind != tariff.ReservedInstance {
			c.PerHour, c.Rates = cloud.FromDollars(r.Float64()/2), map[string]cloud.NanoUSD{}
			for _, name := range w.types {
				if r.IntN(6) > 0 {
					c.Rates[name] = w.price[name] * cloud.NanoUSD(40+r.Int64N(50)) / 100
				}
			}
		}
		w.book.Commitments = append(w.book.Commitments, c)
	}
	for i := range r.IntN(3) {
		name := w.types[r.IntN(6)]
		w.book.Machines[fmt.Sprintf("node-%d", i)] = w.book.Hour(name, inZone, int64(w.price[name]))
	}
	return w
}

func offering(capacityType string, price cloud.NanoUSD) cloud.Offering {
	return cloud.Offering{Available: true, Price: price,
		Labels: map[string]string{corev1.LabelTopologyZone: "a", v1.CapacityTypeLabelKey: capacityType}}
}

func (w *covered) plan(t *testing.T, book *tariff.Book) *Plan {
	q, e := w.in, New()
	q.Commitments = book
	low := e.compile(q)
	if err := solve.Check(low.Problem, repack.Run(low.Problem)); err != nil {
		t.Error(err)
	}
	return New().Plan(q)
}

// decides is what decisions make of a fleet of on-demand machines: what it adds to the bill, and what nodes cost by themselves.
func (w *covered) decides(fleet []string) cloud.NanoUSD {
	var lines []tariff.Line
	own := cloud.NanoUSD(0)
	settings := Settings{}
	for _, name := range fleet {
		lines = append(lines, w.book.Hour(name, inZone, int64(w.price[name])))
		own += settings.OwnPrice(w.price[name])
	}
	return cloud.NanoUSD(w.book.Adds(w.book.Without(nil), lines)) + own
}

// underBook is what decisions make of a plan that was made without commitments.
func (w *covered) underBook(p *Plan) cloud.NanoUSD {
	cost := p.Cost
	var lines []tariff.Line
	for i := range p.Open {
		if o := &p.Open[i]; o.CapacityType == v1.CapacityTypeOnDemand {
			lines = append(lines, w.book.Hour(o.Type, inZone, int64(o.Price)))
			cost -= o.Price
		}
	}
	return cost + cloud.NanoUSD(w.book.Adds(w.book.Without(nil), lines))
}

// holds reports whether the pods fit on machines.
func (w *covered) holds(free []int64, left [2]int) bool {
	for k := 1; k >= 0; k-- {
		if left[k] == 0 {
			continue
		}
		left[k]--
		for i := range free {
			if free[i] >= w.sizes[k] {
				free[i] -= w.sizes[k]
				if w.holds(free, left) {
					return true
				}
				free[i] += w.sizes[k]
			}
		}
		return false
	}
	return true
}

// fleets calls f with each fleet of at most so many on-demand machines that holds all pods.
func (w *covered) fleets(most, from int, fleet []string, f func([]string)) {
	free := make([]int64, len(fleet))
	for i, name := range fleet {
		free[i] = w.cpu[name]
	}
	if w.holds(free, w.counts) {
		f(fleet)
	}
	for i := from; i < len(w.types) && len(fleet) < most; i++ {
		w.fleets(most, i, append(fleet[:len(fleet):len(fleet)], w.types[i]), f)
	}
}

func TestNoFleetIsCheaperThanProvenWithCommitments(t *testing.T) {
	covers, tight, cheaper, dearer := 0, 0, 0, 0
	for seed := range uint64(400) {
		w := coveredWorld(seed)
		blind, p := w.plan(t, nil), w.plan(t, w.book)
		if len(p.Refused) > 0 {
			t.Fatalf("seed %d: %d pods refused", seed, len(p.Refused))
		}
		bound := max(p.VolumeBound, p.ConfigBound)
		if w.underBook(blind) < p.Cost {
			dearer++
		}
		if bound > p.Cost {
			t.Errorf("seed %d: the bound %d is above the plan %d", seed, bound, p.Cost)
		}
		least := cloud.NanoUSD(1 << 60)
		w.fleets(4, 0, nil, func(fleet []string) {
			if cost := w.decides(fleet); cost < least {
				least = cost
				if cost < bound {
					t.Errorf("seed %d: %v costs %d, which is below the bound %d", seed, fleet, cost, bound)
				}
			}
		})
		if p.Cost < blind.Cost {
			covers++
		}
		if least < blind.Cost && p.Cost <= least+least/50 {
			cheaper++
		}
		if float64(p.Cost) <= 1.05*float64(bound) {
			tight++
		}
	}
	t.Logf("%d plans use commitments, %d are as cheap as the best fleet on demand, %d are within five percent of the bound, "+
		"%d are dearer than the plan without commitments", covers, cheaper, tight, dearer)
	if covers < 330 || cheaper < 250 || tight < 150 || dearer > 8 {
		t.Error("plans got worse")
	}
}
