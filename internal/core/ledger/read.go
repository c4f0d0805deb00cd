package ledger

import (
	"maps"
	"slices"

	"karpenter.sh/karpenter/cloud"
)

// A Part is what one account pays of the bill of a machine.
type Part struct {
	Account *Account
	Cost    cloud.NanoUSD
}

// A Bill is what a machine cost in one clock hour, or the unused part of a commitment. Parts and Slices each add up to Paid. Parts are
// sorted by account.
type Bill struct {
	Hour               int64    // its first second, from 1970
	Machine            *Machine // empty for the unused part of a commitment
	Paid, List         cloud.NanoUSD
	Seconds, Estimated int64
	Slices             []Slice // the first one of a machine has no commitment
	Parts              []Part
}

// A Loss is what a cause cost the fleet in one clock hour.
type Loss struct {
	Hour  int64
	Cause string // as Meter.Missed got it: a savings.Cause, and after a space the workload or budget that holds nodes, if it is one
	Cost  cloud.NanoUSD
}

// nano returns an amount (nano-dollars an hour times seconds) in nano-dollars, rounded half up.
func nano(amount int64) int64 { return (amount + hour/2) / hour }

// Bills calls yield with the bill of each machine and hour from one second to another, both at whole hours: machines in the order in which
// they were first charged, and for each machine its hours in order. The unused parts of commitments come last.
func (b *Book) Bills(from, to int64, yield func(*Bill)) {
	c := b.coverings(from, to)
	b.each(from, to, func(machine int32, h int32, cells []cell, amounts []int64) {
		if machine != 0 {
			yield(c.bill(machine, h, cells, amounts))
		}
	})
	for _, bill := range c.unused {
		yield(bill)
	}
}

// Losses returns what causes cost the fleet (Meter.Missed), by hour.
func (b *Book) Losses(from, to int64) []Loss {
	var out []Loss
	b.each(from, to, func(_, h int32, cells []cell, amounts []int64) {
		for i, c := range cells {
			if a := &b.accounts[c.account]; a.Kind == missed {
				out = append(out, Loss{int64(h) * hour, a.Workload, cloud.NanoUSD(nano(amounts[i]))})
			}
		}
	})
	return out
}

// bill makes the bill of a machine in an hour from its cells there and their amounts.
func (c *coverings) bill(machine, h int32, cells []cell, amounts []int64) *Bill {
	b := c.book
	out := &Bill{Hour: int64(h) * hour, Machine: &b.machines[machine]}
	weights := make([]int64, 0, len(cells))
	var own, onDemand int64
	for i, c := range cells {
		switch a := &b.accounts[c.account]; {
		case a.Kind.shares():
			weights, out.Parts = append(weights, amounts[i]), append(out.Parts, Part{Account: a})
		case a.Kind == paid:
			own = amounts[i]
		case a.Kind == list:
			onDemand = amounts[i]
		case a.Kind == seconds:
			out.Seconds = amounts[i]
		case a.Kind == estimated:
			out.Estimated = amounts[i]
		}
	}
	out.Slices = c.slices(out.Machine, h, own, onDemand, out.Seconds)
	for _, s := range out.Slices {
		out.Paid, out.List = out.Paid+s.Paid, out.List+s.List
	}
	for i, part := range divide(int64(out.Paid), weights) {
		out.Parts[i].Cost = cloud.NanoUSD(part)
	}
	return out
}

// runs returns the amounts of every cell as runs. An open hour is a run of one hour.
func (b *Book) runs() map[cell][]run {
	out := maps.Clone(b.closed)
	for _, h := range slices.Sorted(maps.Keys(b.open)) {
		for c, amount := range b.open[h] {
			out[c] = append(out[c][:len(out[c]):len(out[c])], run{h, 1, amount})
		}
	}
	return out
}

// each calls yield with the cells of each machine and hour between two seconds, sorted by account, and their amounts.
func (b *Book) each(from, to int64, yield func(machine, h int32, cells []cell, amounts []int64)) {
	all := b.runs()
	cells := slices.SortedFunc(maps.Keys(all), func(c, d cell) int {
		if c.machine != d.machine {
			return c.compare(d)
		}
		return b.accounts[c.account].compare(&b.accounts[d.account])
	})
	for len(cells) > 0 {
		n := slices.IndexFunc(cells, func(c cell) bool { return c.machine != cells[0].machine })
		if n < 0 {
			n = len(cells)
		}
		first, last := int32(1<<31-1), int32(0)
		for _, c := range cells[:n] {
			runs := all[c]
			end := runs[len(runs)-1]
			first, last = min(first, runs[0].from), max(last, end.from+end.hours)
		}
		for h := max(first, int32(from/hour)); h < min(last, int32(to/hour)); h++ {
			var now []cell
			var amounts []int64
			for _, c := range cells[:n] {
				runs := all[c]
				for len(runs) > 0 && runs[0].from+runs[0].hours <= h {
					runs = runs[1:]
				}
				if all[c] = runs; len(runs) > 0 && runs[0].from <= h {
					now, amounts = append(now, c), append(amounts, runs[0].amount)
				}
			}
			if len(now) > 0 {
				yield(cells[0].machine, h, now, amounts)
			}
		}
		cells = cells[n:]
	}
}

// Split divides money among parts in proportion to what they cost, so that the shares add up to it. If the parts cost nothing, all shares
// are 0.
func Split(money cloud.NanoUSD, parts []Part) []cloud.NanoUSD {
	weights := make([]int64, len(parts))
	for i := range parts {
		weights[i] = int64(parts[i].Cost)
	}
	out := make([]cloud.NanoUSD, len(parts))
	for i, m := range divide(int64(money), weights) {
		out[i] = cloud.NanoUSD(m)
	}
	return out
}

// Spread charges the parts of idle room, the system and DaemonSets to the workloads of the machine instead, in proportion to what these
// cost. A bill without workloads does not change.
func (b *Bill) Spread() {
	own, rest := []Part{}, cloud.NanoUSD(0)
	for _, p := range b.Parts {
		if p.Account.Kind == Requested && p.Cost > 0 {
			own = append(own, p)
		} else {
			rest += p.Cost
		}
	}
	if len(own) == 0 {
		return
	}
	for i, more := range Split(rest, own) {
		own[i].Cost += more
	}
	b.Parts = own
}
