// Package worth says what a core and a byte are worth on a market: the prices under which no machine on offer holds
// more worth than it costs, and a demand is worth most. A fleet for that demand costs at least its worth,
// whatever machines are bought.
//
//	max  w_cpu·D_cpu + w_mem·D_mem   subject to   w_cpu·R_cpu + w_mem·R_mem ≤ p   for each machine with room R at price p
//
// It is the dual of the volume LP of package pack for one group of pods, two resources and machines of which there
// are enough, which needs no simplex: with the share of the demand's worth that is CPU everything is given, and the
// value is concave in it. What needs groups, limits and stock asks package pack; who only has to order things asks
// here.
package worth

// Amounts are thousandths of a core and bytes.
type Amounts struct{ CPU, Memory float64 }

// Plus returns the sum.
func (a Amounts) Plus(b Amounts) Amounts { return Amounts{a.CPU + b.CPU, a.Memory + b.Memory} }

// A Machine can be bought, as often as anybody likes.
type Machine struct {
	Room  Amounts
	Price float64
}

// Prices are what one unit of each is worth, in the money of the machines.
type Prices struct{ CPU, Memory float64 }

// Of returns what amounts are worth. Products are rounded before they are added, so that every processor comes to the same.
func (p Prices) Of(a Amounts) float64 { return float64(p.CPU*a.CPU) + float64(p.Memory*a.Memory) }

// Find returns the prices under which the demand is worth most; zero where no machine is sold or nothing is asked
// for. Of two resources that are asked for neither gets less than a thousandth of the whole worth: at a price of
// nothing, things that differ in it could not be ordered.
func Find(machines []Machine, demand Amounts) Prices {
	if len(machines) == 0 || demand.CPU+demand.Memory == 0 {
		return Prices{}
	}
	at := func(share float64) (value float64, prices Prices) {
		// Under these the demand is worth 1.
		unscaled := Prices{share / max(demand.CPU, 1), (1 - share) / max(demand.Memory, 1)}
		for i, m := range machines {
			if most := m.Price / unscaled.Of(m.Room); i == 0 || most < value {
				value = most
			}
		}
		return value, Prices{unscaled.CPU * value, unscaled.Memory * value}
	}
	_, prices := at(bestShare(demand, func(share float64) float64 { value, _ := at(share); return value }))
	return prices
}

// bestShare returns the share of CPU at which a concave function is largest.
func bestShare(demand Amounts, value func(share float64) float64) float64 {
	switch {
	case demand.CPU == 0:
		return 0
	case demand.Memory == 0:
		return 1
	}
	lo, hi := 0.001, 0.999
	for range 40 { // a third less each time: 1e-7 is left
		left, right := lo+(hi-lo)/3, hi-(hi-lo)/3
		if value(left) < value(right) {
			lo = left
		} else {
			hi = right
		}
	}
	return (lo + hi) / 2
}
