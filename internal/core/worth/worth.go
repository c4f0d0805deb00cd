// Package worth finds what a unit of CPU and a byte of memory are worth, given the machines that are sold: the prices at which the room of
// no machine is worth more than the machine costs, and at which a demand is worth most. Any fleet for this demand costs at least that much.
//
//	max  w_cpu·D_cpu + w_mem·D_mem   subject to   w_cpu·R_cpu + w_mem·R_mem ≤ p   for each machine with room R at price p
//
// This is the dual of the volume LP of package pack for one group of pods, two resources and unlimited stock. It needs no simplex: the
// share of CPU in the demand's worth decides both prices, and the worth is a concave function of this share. Use it to put things in order;
// use package pack if groups, limits or stock matter.
package worth

// Amounts are thousandths of a core, and bytes.
type Amounts struct{ CPU, Memory float64 }

// Plus returns the sum.
func (a Amounts) Plus(b Amounts) Amounts { return Amounts{a.CPU + b.CPU, a.Memory + b.Memory} }

// A Machine is a machine that can be bought in any number.
type Machine struct {
	Room  Amounts
	Price float64
}

// Prices are the worth of one unit of each amount, in the currency of Machine.Price.
type Prices struct{ CPU, Memory float64 }

// Of returns what amounts are worth. Products are rounded before they are added, so that every processor gets the same result.
func (p Prices) Of(a Amounts) float64 { return float64(p.CPU*a.CPU) + float64(p.Memory*a.Memory) }

// Find returns the prices at which the demand is worth most; 0 without machines or demand. If both resources are demanded, each gets at
// least a thousandth of the whole worth: with a price of 0, things that differ only in that resource could not be put in order.
func Find(machines []Machine, demand Amounts) Prices {
	if len(machines) == 0 || demand.CPU+demand.Memory == 0 {
		return Prices{}
	}
	at := func(share float64) (value float64, prices Prices) { // with this share of CPU: the highest worth of the demand, and its prices
		unscaled := Prices{share / max(demand.CPU, 1), (1 - share) / max(demand.Memory, 1)} // with these the demand is worth 1
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

// bestShare returns the share of CPU at which the concave function value is largest.
func bestShare(demand Amounts, value func(share float64) float64) float64 {
	switch {
	case demand.CPU == 0:
		return 0
	case demand.Memory == 0:
		return 1
	}
	lo, hi := 0.001, 0.999
	for range 40 { // ternary search: each turn leaves two thirds of the range, in the end 1e-7
		left, right := lo+(hi-lo)/3, hi-(hi-lo)/3
		if value(left) < value(right) {
			lo = left
		} else {
			hi = right
		}
	}
	return (lo + hi) / 2
}
