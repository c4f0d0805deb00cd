package ledger

import (
	"cmp"
	"maps"
	"reflect"
	"slices"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/commitment"
	"karpenter.sh/karpenter/internal/core/tariff"
)

// Terms are the commitments that the cluster pays from a second on, until the next terms.
type Terms struct {
	From        int64               `json:"from"`
	Commitments []tariff.Commitment `json:"commitments,omitempty"`
	Others      []tariff.Line       `json:"others,omitempty"` // an hour of the on-demand machines of the cluster that are in no book
}

// TermsOf returns the terms of a cluster at a second.
func TermsOf(books *commitment.Books, snap *cluster.Snapshot, at int64) Terms {
	t := Terms{From: at}
	if books == nil || books.All == nil {
		return t
	}
	charged := map[string]bool{}
	for n := range snap.Nodes() {
		charged[n.Name] = n.Claim != nil
	}
	t.Commitments, t.Others = books.All.Commitments, books.All.Without(charged)
	return t
}

// Commit notes terms. The last terms of a clock hour count for the whole hour; the first terms of a book count from their second on.
func (b *Book) Commit(t Terms) {
	last := len(b.terms) - 1
	switch {
	case last < 0 && len(t.Commitments) == 0:
		return
	case last < 0:
	case reflect.DeepEqual(b.terms[last].Commitments, t.Commitments) && slices.Equal(b.terms[last].Others, t.Others):
		return
	default:
		t.From = max(t.From/hour, int64(b.since)) * hour
		if b.terms[last].From >= t.From {
			t.From = b.terms[last].From
			b.terms = b.terms[:last]
		}
	}
	b.terms = append(slices.Clip(b.terms), t)
}

// termsOf returns the terms of an hour, nil if there are none, and for how many seconds of the hour they count: not before the first terms,
// and not after the book ends.
func (b *Book) termsOf(h int32) (*Terms, int64) {
	begin, end := int64(h)*hour, int64(h+1)*hour
	for i := range slices.Backward(b.terms) {
		if b.terms[i].From < end {
			return &b.terms[i], max(0, min(end, b.until)-max(begin, b.terms[0].From))
		}
	}
	return nil, 0
}

// stored returns the terms as a file has them: with the rates of the instance types that the book or Others have, and no other rates.
func (b *Book) stored() []Terms {
	out := slices.Clone(b.terms)
	for i := range out {
		types := map[string]bool{}
		for _, m := range b.machines {
			types[m.Type] = true
		}
		for _, l := range out[i].Others {
			types[l.Type] = true
		}
		out[i].Commitments = slices.Clone(out[i].Commitments)
		for j := range out[i].Commitments {
			c := &out[i].Commitments[j]
			c.Rates = maps.Clone(c.Rates)
			maps.DeleteFunc(c.Rates, func(name string, _ cloud.NanoUSD) bool { return !types[name] })
		}
	}
	return out
}

// A Slice is the part of a bill that one commitment pays, or that is paid at the price of the machine.
type Slice struct {
	Commitment *tariff.Commitment // nil for the price of the machine
	Paid, List cloud.NanoUSD
	Seconds    float64 // of the machine
	Quantity   float64 // of the commitment, in the unit of tariff.Commitment.Quantity
}

// A way is machines of one type, place and price in one hour. Commitments cover them as one line.
type way struct {
	hour int32
	line tariff.Line // with 0 seconds
}

// A covering is what commitments cover of the machines of one way.
type covering struct {
	whole int64 // machine-seconds of the way
	done  int64 // the part of these that slices has given out
	uses  []tariff.Use
}

// A coverings has what commitments cover in some hours.
type coverings struct {
	book   *Book
	of     map[way]*covering
	sums   map[int32][]int64 // by hour and commitment: the cost that slices has given out
	unused []*Bill
}

// wayOf returns the way of a machine in an hour, from what it cost and its seconds there; false if commitments cannot cover it.
func wayOf(m *Machine, h int32, paid, seconds int64) (way, bool) {
	if seconds == 0 || m.CapacityType != v1.CapacityTypeOnDemand {
		return way{}, false
	}
	return way{h, tariff.Line{Region: m.Region, Zone: m.Zone, Type: m.Type, OS: tariff.Linux, PerHour: cloud.NanoUSD(paid / seconds)}}, true
}

// coverings works out what commitments cover in each hour between two seconds: it sums up machines by way, and bills hour by hour.
func (b *Book) coverings(from, to int64) *coverings {
	c := &coverings{book: b, of: map[way]*covering{}, sums: map[int32][]int64{}}
	if len(b.terms) == 0 {
		return c
	}
	b.each(from, to, func(machine, h int32, cells []cell, amounts []int64) {
		var of [2]int64
		for i, cell := range cells {
			switch b.accounts[cell.account].Kind {
			case paid:
				of[0] = amounts[i]
			case seconds:
				of[1] = amounts[i]
			}
		}
		if w, ok := wayOf(&b.machines[machine], h, of[0], of[1]); ok {
			if c.of[w] == nil {
				c.of[w] = &covering{}
			}
			c.of[w].whole += of[1]
		}
	})
	ways := map[int32][]way{}
	for w := range c.of {
		ways[w.hour] = append(ways[w.hour], w)
	}
	last := min(to, b.until+hour-1) / hour
	for h := max(from/hour, b.terms[0].From/hour, int64(b.first)); h < last; h++ {
		c.cover(int32(h), ways[int32(h)])
	}
	return c
}

// cover works out what commitments cover of the given ways and of other machines (Terms.Others) in an hour. It adds the unused part of each
// commitment to c.unused.
func (c *coverings) cover(h int32, ways []way) {
	terms, length := c.book.termsOf(h)
	if terms == nil || length == 0 {
		return
	}
	for _, l := range terms.Others {
		w := way{hour: h, line: l}
		w.line.Seconds = 0
		if c.of[w] == nil {
			c.of[w], ways = &covering{}, append(ways, w)
		}
		c.of[w].whole += l.Seconds * length / hour
	}
	slices.SortFunc(ways, func(v, w way) int {
		return cmp.Or(cmp.Compare(v.line.Type, w.line.Type), cmp.Compare(v.line.Zone, w.line.Zone),
			cmp.Compare(v.line.Region, w.line.Region), cmp.Compare(v.line.PerHour, w.line.PerHour))
	})
	lines := make([]tariff.Line, len(ways))
	for i, w := range ways {
		lines[i] = w.line
		lines[i].Seconds = c.of[w].whole
	}
	used := make([]Slice, len(terms.Commitments))
	sums := make([]int64, len(used))
	for _, u := range tariff.Uses(lines, terms.Commitments, length) {
		of := c.of[ways[u.Line]]
		of.uses = append(of.uses, u)
		sums[u.Commitment] += u.Cost
		used[u.Commitment].Quantity += u.Quantity
	}
	c.sums[h] = make([]int64, len(used))
	for i := range used {
		s, of := &used[i], &terms.Commitments[i]
		s.Commitment, s.Quantity = of, of.Quantity()*float64(length)/hour-s.Quantity
		s.Paid = cloud.NanoUSD(nano(int64(of.Fee())*length) - nano(sums[i]))
		if s.Paid > 0 {
			c.unused = append(c.unused, &Bill{Hour: int64(h) * hour, Machine: &c.book.machines[0], Paid: s.Paid, Slices: []Slice{*s},
				Parts: []Part{{&Account{Kind: Unused, Workload: of.ID}, s.Paid}}})
		}
	}
}

// slices returns the slices of a machine's bill in an hour: the first one is the part at the machine's own price, the others are by
// commitment. It must be called once for each machine and hour, in turn: it gives out the covering of the way bit by bit, so that the
// slices of a commitment add up to its cost, to the nano-dollar.
func (c *coverings) slices(m *Machine, h int32, paid, list, seconds int64) []Slice {
	own := Slice{Seconds: float64(seconds)}
	out := []Slice{own}
	of := (*covering)(nil)
	if w, ok := wayOf(m, h, paid, seconds); ok {
		of = c.of[w]
	}
	if of != nil && len(of.uses) > 0 {
		terms, _ := c.book.termsOf(h)
		part := func(whole int64) int64 {
			return portion(whole, of.done+seconds, of.whole) - portion(whole, of.done, of.whole)
		}
		for _, u := range of.uses {
			sum := &c.sums[h][u.Commitment]
			cost, instead := part(u.Cost), min(paid, part(u.List))
			share := float64(seconds) / float64(of.whole)
			s := Slice{Commitment: &terms.Commitments[u.Commitment], Paid: cloud.NanoUSD(nano(*sum+cost) - nano(*sum)),
				List: cloud.NanoUSD(nano(instead)), Seconds: u.Seconds * share, Quantity: u.Quantity * share}
			*sum += cost
			paid, list = paid-instead, list-instead
			out[0].Seconds -= s.Seconds
			out = append(out, s)
		}
		of.done += seconds
	}
	out[0].Paid, out[0].List = cloud.NanoUSD(nano(paid)), cloud.NanoUSD(nano(max(0, list)))
	return out
}
