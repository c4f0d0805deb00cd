package tariff

import (
	"cmp"
	"math/big"
	"math/bits"
	"slices"

	"karpenter.sh/karpenter/cloud"
)

// hour is the seconds of a clock hour.
const hour = 3600

// Linux is the platform whose Reserved Instances may be flexible in size.
const Linux = "Linux"

// A Line is the use of one kind of machine in one clock hour.
type Line struct {
	Key          string // breaks ties
	Account      string
	Region, Zone string
	Type         string
	OS           string // Linux, Windows …
	Dedicated    bool
	Spot         bool
	Seconds      int64 // machine-seconds
	PerHour      cloud.NanoUSD
}

// Kind is the kind of a commitment.
type Kind int

// The kinds, in the order in which AWS applies them.
const (
	ReservedInstance Kind = iota
	EC2InstanceSavingsPlan
	ComputeSavingsPlan
)

// A Commitment is active for the whole hour.
type Commitment struct {
	ID, Account string
	Kind        Kind
	Region      string // not of Compute Savings Plans
	Zone        string // of a zonal Reserved Instance
	Type        string // of a Reserved Instance
	Family      string // of an EC2 Instance Savings Plan
	OS          string // of a Reserved Instance
	Dedicated   bool   // likewise
	Machines    int64  // of a Reserved Instance
	// PerHour is what it costs in an hour: of a Savings Plan the dollars that can be used, of a Reserved Instance the price of one machine.
	PerHour cloud.NanoUSD
	// Rates are a Savings Plan's prices by instance type. A type without a rate is not covered.
	Rates map[string]cloud.NanoUSD
}

// Fee returns what the commitment costs in an hour, used or not.
func (c *Commitment) Fee() cloud.NanoUSD {
	if c.Kind == ReservedInstance {
		return c.PerHour * cloud.NanoUSD(c.Machines)
	}
	return c.PerHour
}

// The stages in which commitments are applied.
const (
	zonal         = iota // zonal Reserved Instances
	sized                // regional Reserved Instances of one size
	pooled               // regional Reserved Instances that cover all sizes of a family (flexible)
	instancePlans        // EC2 Instance Savings Plans
	computePlans         // Compute Savings Plans
	stages               // how many there are
)

// stage returns the stage in which the commitment is applied.
func (c *Commitment) stage() int {
	switch {
	case c.Kind == ComputeSavingsPlan:
		return computePlans
	case c.Kind == EC2InstanceSavingsPlan:
		return instancePlans
	case c.Zone != "":
		return zonal
	case c.OS != Linux || c.Dedicated || !flexible(c.Type):
		return sized
	}
	return pooled
}

// holds returns the units that the commitment holds for an hour: machine-seconds, machine-seconds times factor, or nano-dollars times
// seconds.
func (c *Commitment) holds() int64 {
	switch {
	case c.Kind != ReservedInstance:
		return int64(c.PerHour) * hour
	case c.stage() == pooled:
		return c.Machines * factor(c.Type) * hour
	}
	return c.Machines * hour
}

// takes returns the units that a second of the line takes of what the commitment holds; 0 if the commitment does not cover the line.
func (c *Commitment) takes(l *Line) int64 {
	if l.Spot || c.Region != "" && c.Region != l.Region {
		return 0
	}
	if c.Kind != ReservedInstance {
		rate := c.Rates[l.Type]
		if rate <= 0 || rate > l.PerHour || c.Kind == EC2InstanceSavingsPlan && c.Family != family(l.Type) {
			return 0
		}
		return int64(rate)
	}
	if c.OS != l.OS || c.Dedicated != l.Dedicated {
		return 0
	}
	switch {
	case c.stage() == pooled && family(c.Type) == family(l.Type):
		return factor(l.Type)
	case c.Type != l.Type || c.Zone != "" && c.Zone != l.Zone:
		return 0
	}
	return 1
}

// A Bill is what a clock hour costs.
type Bill struct {
	Total cloud.NanoUSD // fees, on-demand rest and spot
	Fees  cloud.NanoUSD // of all commitments
	List  cloud.NanoUSD // the on-demand price of what is covered
	// Used is the part of each commitment that covered something, from 0 to 1, in the order of the commitments.
	Used []float64
	// Covered is the part of each line that commitments cover, in the order of the lines.
	Covered []float64
}

// A pair is a commitment and a line that it can cover.
type pair struct {
	commitment, line int
	takes            int64
}

// Of returns the bill of an hour.
func Of(lines []Line, commitments []Commitment) Bill {
	b := newBiller(lines, commitments)
	b.run()
	return b.bill()
}

// A biller has what is left of lines and commitments while stages are applied.
type biller struct {
	lines       []Line
	commitments []Commitment
	seconds     []*big.Rat // by line: seconds that are not covered yet
	rest        []*big.Rat // by commitment: what is left of what it holds
	// note, if set, is called with the seconds of a line that a commitment covers.
	note func(p pair, seconds *big.Rat)
}

func newBiller(lines []Line, commitments []Commitment) *biller {
	b := &biller{lines: lines, commitments: commitments}
	for i := range lines {
		b.seconds = append(b.seconds, big.NewRat(lines[i].Seconds, 1))
	}
	for i := range commitments {
		b.rest = append(b.rest, big.NewRat(commitments[i].holds(), 1))
	}
	return b
}

// run applies all stages.
func (b *biller) run() {
	for stage := range stages {
		own, others := b.pairs(stage)
		b.apply(own)
		b.apply(others)
	}
}

// pairs returns the pairs of a stage in AWS's order: those in which commitment and line have the same account, and the others.
func (b *biller) pairs(stage int) (own, others []pair) {
	for c := range b.commitments {
		if b.commitments[c].stage() != stage {
			continue
		}
		for l := range b.lines {
			takes := b.commitments[c].takes(&b.lines[l])
			switch p := (pair{c, l, takes}); {
			case takes == 0:
			case b.commitments[c].Account == b.lines[l].Account:
				own = append(own, p)
			default:
				others = append(others, p)
			}
		}
	}
	for _, list := range [][]pair{own, others} {
		slices.SortStableFunc(list, func(x, y pair) int { return b.order(stage, x, y) })
	}
	return own, others
}

// order compares two pairs of one stage: pairs of plans by the percentage saved (highest first), then all by takes (the rate or the size,
// lowest first), then by the id of the commitment and the key of the line.
func (b *biller) order(stage int, x, y pair) int {
	first := 0
	if stage >= instancePlans { // the rate of x as a part of its price is below that of y
		xHigh, xLow := bits.Mul64(uint64(x.takes), uint64(b.lines[y.line].PerHour))
		yHigh, yLow := bits.Mul64(uint64(y.takes), uint64(b.lines[x.line].PerHour))
		first = cmp.Or(cmp.Compare(xHigh, yHigh), cmp.Compare(xLow, yLow))
	}
	return cmp.Or(first, cmp.Compare(x.takes, y.takes),
		cmp.Compare(b.commitments[x.commitment].ID, b.commitments[y.commitment].ID),
		cmp.Compare(b.lines[x.line].Key, b.lines[y.line].Key))
}

// apply covers the lines of the pairs, one pair after the other, as far as seconds and commitments last.
func (b *biller) apply(pairs []pair) {
	for _, p := range pairs {
		seconds, rest := b.seconds[p.line], b.rest[p.commitment]
		if seconds.Sign() == 0 || rest.Sign() == 0 {
			continue
		}
		takes := big.NewRat(p.takes, 1)
		whole, part := new(big.Rat).Mul(seconds, takes), new(big.Rat).Set(seconds)
		if whole.Cmp(rest) <= 0 {
			rest.Sub(rest, whole)
		} else {
			part.Quo(rest, takes)
			rest.SetInt64(0)
		}
		seconds.Sub(seconds, part)
		if b.note != nil {
			b.note(p, part)
		}
	}
}

// bill returns the bill after run.
func (b *biller) bill() Bill {
	out := Bill{}
	owed, list := new(big.Rat), new(big.Rat) // nano-dollars times seconds
	for i := range b.lines {
		l := &b.lines[i]
		owed.Add(owed, new(big.Rat).Mul(b.seconds[i], big.NewRat(int64(l.PerHour), 1)))
		list.Add(list, covered(l, b.seconds[i]))
		out.Covered = append(out.Covered, used(l.Seconds, b.seconds[i]))
	}
	for i := range b.commitments {
		c := &b.commitments[i]
		out.Fees += c.Fee()
		out.Used = append(out.Used, used(c.holds(), b.rest[i]))
	}
	out.List = rounded(list.Quo(list, big.NewRat(hour, 1)))
	out.Total = out.Fees + rounded(owed.Quo(owed, big.NewRat(hour, 1)))
	return out
}

// A Use is what a commitment covers of a line. Money is in nano-dollars an hour times seconds, rounded down.
type Use struct {
	Commitment, Line int
	Seconds          float64 // machine-seconds
	Quantity         float64 // in the unit of Commitment.Quantity
	List             int64   // what the seconds cost on demand
	Cost             int64   // their part of the fee
}

// Uses returns what commitments cover of lines in length seconds of an hour. The fee of a commitment for these seconds, less the costs of
// its uses, is its unused part.
func Uses(lines []Line, commitments []Commitment, length int64) []Use {
	var out []Use
	b := newBiller(lines, commitments)
	for _, rest := range b.rest {
		rest.Mul(rest, big.NewRat(length, hour))
	}
	b.note = func(p pair, seconds *big.Rat) {
		c := &commitments[p.commitment]
		u := Use{Commitment: p.commitment, Line: p.line}
		u.Seconds, _ = seconds.Float64()
		of := new(big.Rat).Mul(seconds, big.NewRat(p.takes, c.holds())) // of what it holds in an hour
		part, _ := of.Float64()
		u.Quantity = part * c.Quantity()
		u.Cost = floor(of.Mul(of, new(big.Rat).SetInt64(int64(c.Fee())*hour)))
		u.List = floor(of.Mul(seconds, big.NewRat(int64(lines[p.line].PerHour), 1)))
		out = append(out, u)
	}
	b.run()
	return out
}

// Quantity returns the size of the commitment, in a unit for people: dollars an hour of a Savings Plan, machines of a Reserved Instance, or
// normalized units of a flexible one, where a small machine is one unit.
func (c *Commitment) Quantity() float64 {
	switch {
	case c.Kind != ReservedInstance:
		return c.PerHour.Dollars()
	case c.Flexible():
		return float64(c.Machines*factor(c.Type)) / float64(smallFactors["small"])
	}
	return float64(c.Machines)
}

// Flexible reports whether a Reserved Instance covers other sizes of its family.
func (c *Commitment) Flexible() bool { return c.stage() == pooled }

// floor returns a number that is not negative, rounded down.
func floor(r *big.Rat) int64 { return new(big.Int).Quo(r.Num(), r.Denom()).Int64() }

// used returns which part of a whole was used, given what is left; 0 if the whole is 0.
func used(whole int64, left *big.Rat) float64 {
	if whole == 0 {
		return 0
	}
	part, _ := new(big.Rat).Quo(left, big.NewRat(whole, 1)).Float64()
	return 1 - part
}

// rounded returns the nearest integer; if two are equally near, the even one.
func rounded(r *big.Rat) cloud.NanoUSD {
	whole, rest := new(big.Int).QuoRem(r.Num(), r.Denom(), new(big.Int))
	up := new(big.Int).Lsh(rest, 1).Cmp(r.Denom())
	if up > 0 || up == 0 && whole.Bit(0) == 1 {
		whole.Add(whole, big.NewInt(1))
	}
	return cloud.NanoUSD(whole.Int64())
}

// Reach returns an upper bound on the price of on-demand machines that commitments can cover in an hour, in any order: each commitment
// covers only what is worth most per unit. The market has a line for each way to buy on demand.
func Reach(market []Line, commitments []Commitment) cloud.NanoUSD {
	sum := new(big.Rat)
	for c := range commitments {
		most := new(big.Rat)
		for l := range market {
			takes := commitments[c].takes(&market[l])
			if takes == 0 {
				continue
			}
			if worth := big.NewRat(int64(market[l].PerHour), takes); worth.Cmp(most) > 0 {
				most = worth
			}
		}
		sum.Add(sum, most.Mul(most, big.NewRat(commitments[c].holds(), hour)))
	}
	up := new(big.Int).Add(sum.Num(), sum.Denom()) // rounds up: (num + denom - 1) / denom
	return cloud.NanoUSD(up.Quo(up.Sub(up, big.NewInt(1)), sum.Denom()).Int64())
}
