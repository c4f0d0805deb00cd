package ledger

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/core/tariff"
)

// price is what types cost on demand, in nano-dollars an hour.
var price = map[string]int64{"m5.large": 96_000_000, "m5.xlarge": 192_000_001, "c5.xlarge": 170_000_003, "r5.xlarge": 252_000_007}

func savingsPlan(id string, kind tariff.Kind, dollars float64, percent int64) tariff.Commitment {
	c := tariff.Commitment{ID: id, Kind: kind, PerHour: cloud.FromDollars(dollars), Rates: map[string]cloud.NanoUSD{"of no machine": 1}}
	if kind == tariff.EC2InstanceSavingsPlan {
		c.Region, c.Family = "r", "m5"
	}
	for name, p := range price {
		c.Rates[name] = cloud.NanoUSD(p * (100 - percent) / 100)
	}
	return c
}

// bookOf returns a book of some hours with random machines, and what they use, hour by hour.
func bookOf(random *rand.Rand, hours int) (*Book, [][]tariff.Line) {
	b, used := newBook(0), make([][]tariff.Line, hours)
	types := []string{"m5.large", "m5.xlarge", "c5.xlarge", "r5.xlarge"}
	for i := range 1 + random.IntN(8) {
		m := Machine{ProviderID: fmt.Sprint("i-", i), Type: types[random.IntN(4)], Region: "r", Zone: []string{"a", "b"}[random.IntN(2)],
			CapacityType: v1.CapacityTypeOnDemand}
		paid := price[m.Type]
		if random.IntN(4) == 0 {
			m.CapacityType, paid = v1.CapacityTypeSpot, paid/3
		}
		at := b.addMachine(m)
		for h := range hours {
			length := int64(1 + random.IntN(hour))
			if random.IntN(2) == 0 {
				length = hour
			}
			(&Tab{Quote: quote(paid, price[m.Type])}).chargeMoney(int64(h)*hour, at, length, false, b.add)
			b.add(int64(h)*hour, at, Account{Kind: Requested, Namespace: "shop"}, 600_000*length)
			b.add(int64(h)*hour, at, Account{Kind: Ready}, 400_000*length)
			used[h] = append(used[h], tariff.Line{Region: "r", Zone: m.Zone, Type: m.Type, OS: tariff.Linux, Seconds: length,
				PerHour: cloud.NanoUSD(paid), Spot: m.CapacityType == v1.CapacityTypeSpot})
		}
	}
	b.closeBefore(int64(hours) * hour)
	return b, used
}

// reread returns a book as it is read from its file.
func reread(t *testing.T, b *Book) *Book {
	t.Helper()
	out, err := b.File(b.until, nil).Book()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// In each hour the rows add up to AWS's bill, and what is paid for each commitment to its fee, used or not, to the nano-dollar.
func TestCommitmentsArePaidOnce(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 7))
		hours := 1 + random.IntN(3)
		b, used := bookOf(random, hours)
		commitments := []tariff.Commitment{savingsPlan("a", tariff.ComputeSavingsPlan, random.Float64()/2, 27),
			savingsPlan("b", tariff.EC2InstanceSavingsPlan, random.Float64()/4, 41),
			{ID: "c", Kind: tariff.ReservedInstance, Region: "r", Type: "m5.large", OS: tariff.Linux, Machines: 3, PerHour: 57_123_457},
			{ID: "d", Kind: tariff.ReservedInstance, Region: "r", Zone: "a", Type: "c5.xlarge", OS: tariff.Linux, Machines: 1, PerHour: 99_999_999}}
		commitments = commitments[:1+random.IntN(4)]
		b.Commit(Terms{Commitments: commitments})
		bills, fees := make([]cloud.NanoUSD, hours), make([]map[string]cloud.NanoUSD, hours)
		list := make([]cloud.NanoUSD, hours)
		for h := range fees {
			fees[h] = map[string]cloud.NanoUSD{}
		}
		reread(t, b).Bills(0, int64(hours)*hour, func(bill *Bill) {
			h, slices, parts := bill.Hour/hour, cloud.NanoUSD(0), cloud.NanoUSD(0)
			for _, s := range bill.Slices {
				if slices += s.Paid; s.Commitment != nil {
					fees[h][s.Commitment.ID] += s.Paid
				}
				if s.Paid < 0 || s.List < 0 || s.Seconds < -1e-6 || s.Quantity < -1e-9 {
					t.Fatalf("seed %d: %+v", seed, s)
				}
			}
			for _, p := range bill.Parts {
				parts += p.Cost
			}
			if slices != bill.Paid || parts != bill.Paid {
				t.Fatalf("seed %d: paid %d, slices %d, parts %d", seed, bill.Paid, slices, parts)
			}
			bills[h] += bill.Paid
			list[h] += bill.List
		})
		for h := range hours {
			want := tariff.Of(used[h], commitments)
			if off := bills[h] - want.Total; off > 10 || off < -10 {
				t.Fatalf("seed %d, hour %d: rows add up to %d, AWS bills %d", seed, h, bills[h], want.Total)
			}
			for i := range commitments {
				if c := &commitments[i]; fees[h][c.ID] != c.Fee() {
					t.Fatalf("seed %d, hour %d: %s is paid %d, its fee is %d", seed, h, c.ID, fees[h][c.ID], c.Fee())
				}
			}
		}
	}
}

// billed adds up bills by what they are paid with.
func billed(b *Book, to int64) map[string]cloud.NanoUSD {
	out := map[string]cloud.NanoUSD{}
	b.Bills(0, to, func(bill *Bill) {
		for _, s := range bill.Slices {
			key := "own"
			if s.Commitment != nil {
				key = s.Commitment.ID
			}
			if bill.Machine.ProviderID == "" {
				key = "unused " + key
			}
			if out[key] += s.Paid; out[key] == 0 {
				delete(out, key)
			}
		}
	})
	return out
}

// What is covered, by whom, and from when.
func TestTerms(t *testing.T) {
	reservedFrom := func(from int64) Terms {
		return Terms{From: from, Commitments: []tariff.Commitment{{ID: "ri", Kind: tariff.ReservedInstance, Region: "r", Type: "m5.large",
			OS: tariff.Linux, Machines: 1, PerHour: 60_000_000}}}
	}
	other := reservedFrom(0)
	other.Others = []tariff.Line{{Region: "r", Zone: "a", Type: "m5.large", OS: tariff.Linux, Seconds: hour, PerHour: 96_000_000}}
	for name, tc := range map[string]struct {
		terms []Terms
		until int64
		want  map[string]cloud.NanoUSD
	}{
		"without any":                                {nil, 2 * hour, map[string]cloud.NanoUSD{"own": 192_000_000}},
		"for all hours":                              {[]Terms{reservedFrom(0)}, 2 * hour, map[string]cloud.NanoUSD{"ri": 120_000_000}},
		"from the second hour on":                    {[]Terms{reservedFrom(hour)}, 2 * hour, map[string]cloud.NanoUSD{"own": 96_000_000, "ri": 60_000_000}},
		"the first ones begin in an hour":            {[]Terms{reservedFrom(hour + 1800)}, 2 * hour, map[string]cloud.NanoUSD{"own": 144_000_000, "ri": 30_000_000}},
		"the last ones of an hour count":             {[]Terms{reservedFrom(0), {From: 1800}}, 2 * hour, map[string]cloud.NanoUSD{"own": 192_000_000}},
		"later ones count for the whole hour":        {[]Terms{reservedFrom(0), {From: hour + 1800}}, 2 * hour, map[string]cloud.NanoUSD{"own": 96_000_000, "ri": 60_000_000}},
		"what is left when machines are gone":        {[]Terms{reservedFrom(0)}, 3 * hour, map[string]cloud.NanoUSD{"ri": 120_000_000, "unused ri": 60_000_000}},
		"an hour that is not over":                   {[]Terms{reservedFrom(0)}, 2*hour + 900, map[string]cloud.NanoUSD{"ri": 120_000_000, "unused ri": 15_000_000}},
		"machines outside of the ledger take theirs": {[]Terms{other}, 2 * hour, map[string]cloud.NanoUSD{"own": 96_000_000, "ri": 60_000_000}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBook(0)
			at := b.addMachine(Machine{ProviderID: "i", Type: "m5.large", Region: "r", Zone: "a", CapacityType: v1.CapacityTypeOnDemand})
			for h := range int64(2) {
				(&Tab{Quote: quote(96_000_000, 96_000_000)}).chargeMoney(h*hour, at, hour, false, b.add)
				b.add(h*hour, at, Account{Kind: Ready}, parts*hour)
			}
			for _, terms := range tc.terms {
				b.closeBefore(terms.From)
				b.Commit(terms)
			}
			b.closeBefore(tc.until)
			if diff := cmp.Diff(tc.want, billed(reread(t, b), 4*hour)); diff != "" {
				t.Error(diff)
			}
			next := b.continued()
			next.closeBefore(tc.until + hour)
			if got := billed(reread(t, next), tc.until+2*hour)["unused ri"]; (got > 0) != (len(tc.terms) > 0 && len(tc.terms[len(tc.terms)-1].Commitments) > 0 && tc.terms[0].Others == nil) {
				t.Errorf("the next book has %d", got)
			}
		})
	}
}

// A file keeps the rates of types that the book has, and no others.
func TestRatesOfOtherTypesAreNotKept(t *testing.T) {
	b, _ := bookOf(rand.New(rand.NewPCG(1, 1)), 1)
	b.Commit(Terms{Commitments: []tariff.Commitment{savingsPlan("a", tariff.ComputeSavingsPlan, 1, 27)}})
	for name := range b.File(hour, nil).Terms[0].Commitments[0].Rates {
		if price[name] == 0 {
			t.Errorf("the rate of %s is kept", name)
		}
	}
	if n := len(b.terms[0].Commitments[0].Rates); n != 5 {
		t.Errorf("the book in memory has %d rates", n)
	}
}
