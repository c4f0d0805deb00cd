package tariff

import (
	"fmt"
	"maps"
	"math/big"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"karpenter.sh/karpenter/cloud"
)

// A Book is the commitments that plans count on, with the on-demand machines that use them already. A plan reads it and never changes it.
type Book struct {
	Commitments []Commitment
	Region      string
	Machines    map[string]Line // by node: the line of its machine for an hour
}

// Without returns the lines of all machines for an hour, without the nodes in gone. Equal machines are one line.
func (b *Book) Without(gone map[string]bool) []Line {
	var out []Line
	for _, name := range slices.Sorted(maps.Keys(b.Machines)) {
		if !gone[name] {
			out = append(out, b.Machines[name])
		}
	}
	return Together(out)
}

// A Cover is the part of a machine that a commitment covers.
type Cover struct {
	ID   string
	Part float64
}

// Covers returns the commitments that cover a node's machine. If a commitment covers some of several equal machines, it counts for each of
// them by the same part.
func (b *Book) Covers(node string) (out []Cover) {
	machine, known := b.Machines[node]
	if !known {
		return nil
	}
	lines := b.Without(nil)
	for _, u := range Uses(lines, b.Commitments, hour) {
		is := lines[u.Line]
		if is.Seconds = machine.Seconds; is == machine {
			out = append(out, Cover{b.Commitments[u.Commitment].ID, u.Seconds / float64(lines[u.Line].Seconds)})
		}
	}
	return out
}

// Rent returns by how much the bill falls when a machine goes.
func (b *Book) Rent(node string) cloud.NanoUSD {
	return Of(b.Without(nil), b.Commitments).Total - Of(b.Without(map[string]bool{node: true}), b.Commitments).Total
}

// Most of what a book may hold, so that no bill overflows.
const (
	mostMoney    = 1e15 // in nano-dollars an hour
	mostMachines = 1e6
)

// Check returns an error if amounts of a book that was read from a file are out of range.
func (b *Book) Check() error {
	for i := range b.Commitments {
		c := &b.Commitments[i]
		wrong := c.PerHour < 0 || c.PerHour > mostMoney || c.Machines < 0 || c.Machines > mostMachines ||
			c.Kind < ReservedInstance || c.Kind > ComputeSavingsPlan
		for _, rate := range c.Rates {
			wrong = wrong || rate < 0 || rate > mostMoney
		}
		if wrong {
			return fmt.Errorf("commitment %q: an amount is out of range", c.ID)
		}
	}
	for name, l := range b.Machines {
		if l.PerHour < 0 || l.PerHour > mostMoney || l.Seconds < 1 || l.Seconds > hour {
			return fmt.Errorf("machine %q: an amount is out of range", name)
		}
	}
	return nil
}

// Together merges lines that differ only in key and seconds. The keys are lost.
func Together(lines []Line) []Line {
	var out []Line
	at := map[Line]int{}
	for _, l := range lines {
		l.Key = ""
		kind := l
		kind.Seconds = 0
		if i, known := at[kind]; known {
			out[i].Seconds += l.Seconds
			continue
		}
		at[kind] = len(out)
		out = append(out, l)
	}
	return out
}

// Hour returns an on-demand machine of the book's region that runs for an hour, in the zone of some labels.
func (b *Book) Hour(instanceType string, labels map[string]string, price int64) Line {
	return Line{Region: b.Region, Zone: labels[corev1.LabelTopologyZone], Type: instanceType, OS: Linux, Seconds: hour,
		PerHour: cloud.NanoUSD(price)}
}

// In reports whether the commitment applies to the zone of some labels.
func (c *Commitment) In(labels map[string]string) bool {
	return c.Zone == "" || c.Zone == labels[corev1.LabelTopologyZone]
}

// ListShare: in decisions, a machine that commitments cover costs one part in ListShare of its list price. So the smaller of two covered
// machines is the cheaper one.
const ListShare = 1000

// Reckon returns what on-demand machines cost in decisions: their bill without fees, which are paid in any case, and one part in ListShare
// of the list price of what is covered, rounded up.
func (b *Book) Reckon(lines []Line) int64 {
	bill := Of(Together(lines), b.Commitments)
	return int64(bill.Total-bill.Fees) + (int64(bill.List)+ListShare-1)/ListShare
}

// Adds returns by how much the result of Reckon rises if lines are added to the fixed ones.
func (b *Book) Adds(fixed, lines []Line) int64 {
	return b.Reckon(slices.Concat(fixed, lines)) - b.Reckon(fixed)
}

// Takes returns the units that one machine of the line, for an hour, takes of what the commitment Holds; 0 if it does not cover the line.
func (c *Commitment) Takes(l *Line) int64 { return c.takes(l) }

// Holds returns the units that the commitment holds for an hour, counted in hours of machines and not in seconds (see Takes).
func (c *Commitment) Holds() int64 { return c.holds() / hour }

// Takers returns the lines that some commitment may cover.
func (b *Book) Takers(lines []Line) []Line {
	return slices.DeleteFunc(slices.Clone(lines), func(l Line) bool {
		return !slices.ContainsFunc(b.Commitments, func(c Commitment) bool { return c.takes(&l) > 0 })
	})
}

// covered returns the list price of the part of a line that is covered, in nano-dollars times seconds.
func covered(l *Line, left *big.Rat) *big.Rat {
	part := new(big.Rat).Sub(big.NewRat(l.Seconds, 1), left)
	return part.Mul(part, big.NewRat(int64(l.PerHour), 1))
}
