package tariff

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"karpenter.sh/karpenter/cloud"
)

// prices are illustrative: on demand, under an EC2 Instance Savings Plan, under a Compute Savings Plan, in dollars.
var prices = map[string][3]float64{
	"m5.large": {.096, .060, .070}, "m5.xlarge": {.192, .120, .140}, "m5.2xlarge": {.384, .240, .280},
	"c5.xlarge": {.170, 0, .120}, "r5.xlarge": {.252, 0, .170}, "m5.12xlarge": {2.304, 0, 0}, "g4dn.2xlarge": {.752, 0, 0},
}

// on returns the line of machines of a type that ran for the seconds.
func on(name string, seconds int64) Line {
	return Line{Key: name, Account: "A", Region: "r", Zone: "a", Type: name, OS: Linux, Seconds: seconds, PerHour: cloud.FromDollars(prices[name][0])}
}

func of(account, zone string, l Line) Line {
	l.Account, l.Zone = account, zone
	return l
}

func spot(dollars float64, l Line) Line {
	l.Spot, l.PerHour = true, cloud.FromDollars(dollars)
	return l
}

// plan returns a Savings Plan of account A with the rates of prices.
func plan(kind Kind, dollars float64) Commitment {
	c := Commitment{ID: "sp", Account: "A", Kind: kind, Rates: map[string]cloud.NanoUSD{}, PerHour: cloud.FromDollars(dollars)}
	if kind == EC2InstanceSavingsPlan {
		c.Region, c.Family = "r", "m5"
	}
	for name, p := range prices {
		c.Rates[name] = cloud.FromDollars(p[kind])
	}
	return c
}

// reserved returns a regional Reserved Instance of account A.
func reserved(name string, dollars float64) Commitment {
	return Commitment{ID: "ri", Account: "A", Kind: ReservedInstance, Region: "r", Type: name, OS: Linux, Machines: 1, PerHour: cloud.FromDollars(dollars)}
}

func TestBillOfAnHour(t *testing.T) {
	zoneRI := reserved("m5.xlarge", .12)
	zoneRI.Account, zoneRI.Zone = "C", "a"
	two := func(name string, perHour, u1, u2 float64) Commitment {
		return Commitment{ID: name, Account: "A", Kind: ComputeSavingsPlan, PerHour: cloud.FromDollars(perHour),
			Rates: map[string]cloud.NanoUSD{"u1": cloud.FromDollars(u1), "u2": cloud.FromDollars(u2)}}
	}
	at := func(name string) Line { l := on(name, hour); l.PerHour = cloud.FromDollars(1); return l }
	compute := func(d float64) []Commitment { return []Commitment{plan(ComputeSavingsPlan, d)} }
	for name, tc := range map[string]struct {
		commitments []Commitment
		lines       []Line
		cents       float64
	}{
		"the highest percentage first": {compute(.5), []Line{on("c5.xlarge", 2*hour), on("r5.xlarge", 2*hour)}, 61.3333},
		"of equal percentages the lower rate": {[]Commitment{plan(EC2InstanceSavingsPlan, .1)},
			[]Line{on("m5.xlarge", hour), on("m5.large", hour)}, 22.8},
		"instance plans before compute plans": {[]Commitment{plan(ComputeSavingsPlan, .2), plan(EC2InstanceSavingsPlan, .12)},
			[]Line{on("m5.large", hour), on("m5.xlarge", hour), on("c5.xlarge", hour)}, 32},
		"a zonal RI of another account before a regional one": {[]Commitment{reserved("m5.xlarge", .12), zoneRI},
			[]Line{on("m5.xlarge", hour), of("B", "b", on("m5.xlarge", hour))}, 24},
		"a regional RI covers small sizes first": {[]Commitment{reserved("m5.2xlarge", .24)},
			[]Line{on("m5.xlarge", 2*hour), on("m5.large", 2*hour)}, 43.2},
		"a regional RI covers half of a larger size": {[]Commitment{reserved("m5.large", .06)}, []Line{on("m5.xlarge", hour)}, 15.6},
		"four quarters of an hour are one hour":      {[]Commitment{reserved("m5.xlarge", .12)}, []Line{on("m5.xlarge", 4*900)}, 12},
		"what one hour leaves is lost":               {[]Commitment{reserved("m5.xlarge", .12)}, []Line{on("m5.xlarge", hour+hour/2)}, 21.6},
		"spot is not covered":                        {compute(.14), []Line{spot(.07, on("m5.xlarge", hour))}, 21},
		"on demand in a plan with room":              {compute(.14), []Line{on("m5.xlarge", hour)}, 14},
		"the owner's account first": {compute(.12), []Line{on("m5.xlarge", hour), of("B", "a", on("r5.xlarge", hour))},
			39.9429},
		"metal counts as its machines, accelerators are not flexible": {
			[]Commitment{reserved("m5.metal", 2.88), reserved("g4dn.xlarge", .33)},
			[]Line{on("m5.12xlarge", 2*hour), on("g4dn.2xlarge", hour)}, 396.2},
		"AWS's order is not the cheapest":   {[]Commitment{two("a", .5, .5, .51), two("b", .52, .52, .9)}, []Line{at("u1"), at("u2")}, 144.2222},
		"nothing runs":                      {compute(.14), nil, 14},
		"no commitment":                     {nil, []Line{on("m5.large", hour/2)}, 4.8},
		"a rate of the price itself covers": {[]Commitment{two("a", .5, 1, 2)}, []Line{at("u1")}, 100},
		"another region":                    {[]Commitment{reserved("m5.large", .06)}, []Line{edited(func(l *Line) { l.Region = "s" })}, 15.6},
		"dedicated tenancy":                 {[]Commitment{reserved("m5.large", .06)}, []Line{edited(func(l *Line) { l.Dedicated = true })}, 15.6},
		"another platform":                  {[]Commitment{reserved("m5.large", .06)}, []Line{edited(func(l *Line) { l.OS = "Windows" })}, 15.6},
		"RIs for Windows are of one size": {[]Commitment{windows(reserved("m5.xlarge", .12))},
			[]Line{edited(func(l *Line) { l.OS = "Windows" })}, 21.6},
		"a rate above the price is none": {[]Commitment{two("a", .5, 1.01, 2)}, []Line{at("u1")}, 150},
	} {
		t.Run(name, func(t *testing.T) {
			got := Of(tc.lines, tc.commitments).Total.Dollars() * 100
			if math.Abs(got-tc.cents) > .5e-4 {
				t.Errorf("%.4f cents, want %.4f", got, tc.cents)
			}
		})
	}
}

// The worked scenarios of AWS's user guide of Savings Plans, in two of its editions: machines beside use of Fargate and Lambda, which here are
// lines of types of their own. Reserved Instances cost nothing, as there.
func TestWorkedScenariosOfAWS(t *testing.T) {
	line := func(name string, of int64, dollars float64) Line {
		return Line{Account: "A", Region: "us-east-1", Type: name, OS: Linux, Seconds: of * hour, PerHour: cloud.FromDollars(dollars)}
	}
	windows := func(l Line) Line { l.OS, l.Dedicated = "Windows", true; return l }
	newer := []Line{line("r5.4xlarge", 4, 1), windows(line("m5.24xlarge", 1, 10)), line("fargate-vcpu", 400, .04), line("fargate-gb", 1600, .004),
		line("lambda-duration", 1, 22.5), line("lambda-requests", 1, .2)}
	older := []Line{line("c5.9xlarge", 1, 4), windows(line("c5.24xlarge", 1, 10)), line("fargate-vcpu", 10, 1.5), line("fargate-gb", 5, 2)}
	compute := func(dollars float64) Commitment {
		c := Commitment{ID: "compute", Account: "A", Kind: ComputeSavingsPlan, PerHour: cloud.FromDollars(dollars), Rates: map[string]cloud.NanoUSD{}}
		for name, rate := range map[string]float64{"r5.4xlarge": .7, "m5.24xlarge": 8.2, "fargate-vcpu": .03, "fargate-gb": .003,
			"lambda-duration": 19.125, "lambda-requests": .2} {
			c.Rates[name] = cloud.FromDollars(rate)
		}
		return c
	}
	family := Commitment{ID: "r5", Account: "A", Kind: EC2InstanceSavingsPlan, Region: "us-east-1", Family: "r5", PerHour: cloud.FromDollars(3),
		Rates: map[string]cloud.NanoUSD{"r5.4xlarge": cloud.FromDollars(.6)}}
	old := compute(25)
	old.Rates = map[string]cloud.NanoUSD{"c5.9xlarge": cloud.FromDollars(2), "c5.24xlarge": cloud.FromDollars(8),
		"fargate-vcpu": cloud.FromDollars(1), "fargate-gb": cloud.FromDollars(1)}
	reserved := Commitment{ID: "ri", Account: "A", Kind: ReservedInstance, Region: "us-east-1", Type: "r5.4xlarge", OS: Linux, Machines: 2}
	for name, tc := range map[string]struct {
		lines       []Line
		commitments []Commitment
		onDemand    string // beside the fees
		used        []string
	}{
		"no plan":                          {newer, nil, "59.10", nil},
		"a plan for all usage":             {newer, []Commitment{compute(50)}, "0.00", []string{"47.13"}},
		"a plan for some usage":            {newer, []Commitment{compute(2)}, "56.24", []string{"2.00"}},
		"Reserved Instances before a plan": {newer, []Commitment{compute(18.2), reserved}, "32.70", []string{"18.20", "0.00"}},
		"a plan of a family before a plan": {newer, []Commitment{compute(16.8), family}, "32.70", []string{"16.80", "2.40"}},
		"an older edition":                 {older, []Commitment{old}, "0.00", []string{"25.00"}},
	} {
		t.Run(name, func(t *testing.T) {
			bill := Of(tc.lines, tc.commitments)
			if got := fmt.Sprintf("%.2f", (bill.Total - bill.Fees).Dollars()); got != tc.onDemand {
				t.Errorf("on demand %s, want %s", got, tc.onDemand)
			}
			for i, want := range tc.used {
				if got := fmt.Sprintf("%.2f", math.Round(bill.Used[i]*tc.commitments[i].Fee().Dollars()*1e6)/1e6+1e-9); got != want {
					t.Errorf("%s is used for %s, want %s", tc.commitments[i].ID, got, want)
				}
			}
			if len(tc.commitments) > 1 && tc.commitments[1].ID == "ri" && bill.Used[1] != 1 {
				t.Errorf("the Reserved Instances are used for %v", bill.Used[1])
			}
		})
	}
}

// edited returns an hour of m5.large that differs in something.
func edited(edit func(*Line)) Line {
	l := on("m5.large", hour)
	edit(&l)
	return l
}

func windows(c Commitment) Commitment {
	c.OS = "Windows"
	return c
}

func TestATotalIsRoundedOnceToTheEven(t *testing.T) {
	for price, want := range map[cloud.NanoUSD]cloud.NanoUSD{1: 0, 3: 2, 5: 2, 7: 4} {
		if got := Of([]Line{{Seconds: hour / 2, PerHour: price}}, nil).Total; got != want {
			t.Errorf("half of %d is billed %d, want %d", price, got, want)
		}
	}
	halves := []Line{{Seconds: hour / 2, PerHour: 1}, {Seconds: hour / 2, PerHour: 1}}
	if got := Of(halves, nil).Total; got != 1 {
		t.Errorf("two halves of 1 are billed %d", got)
	}
}

func TestReachIsRoundedUp(t *testing.T) {
	c := Commitment{Kind: ComputeSavingsPlan, PerHour: 1, Rates: map[string]cloud.NanoUSD{"a": 2}}
	for price, want := range map[cloud.NanoUSD]cloud.NanoUSD{2: 1, 3: 2, 4: 2} {
		if got := Reach([]Line{{Type: "a", PerHour: price}}, []Commitment{c}); got != want {
			t.Errorf("at a price of %d the plan reaches %d, want %d", price, got, want)
		}
	}
}

func TestUseOfCommitments(t *testing.T) {
	bill := Of([]Line{on("m5.large", hour), on("m5.xlarge", hour), on("c5.xlarge", hour)},
		[]Commitment{plan(EC2InstanceSavingsPlan, .12), plan(ComputeSavingsPlan, .2)})
	if got := fmt.Sprintf("%.2f %.2f", bill.Used, bill.Covered); got != "[1.00 0.95] [1.00 1.00 1.00]" {
		t.Errorf("used and covered: %s", got)
	}
}

// Two equal machines share what covers one of them, and the bill does not fall when one of them goes that is covered anew.
func TestWhatCoversAMachine(t *testing.T) {
	p := plan(ComputeSavingsPlan, .07)
	p.Account = ""
	book := &Book{Region: "r", Commitments: []Commitment{p}, Machines: map[string]Line{}}
	price := int64(cloud.FromDollars(.096))
	book.Machines["a"], book.Machines["b"] = book.Hour("m5.large", nil, price), book.Hour("m5.large", nil, price)
	if got := book.Covers("a"); len(got) != 1 || got[0] != (Cover{"sp", .5}) {
		t.Errorf("a is covered by %v", got)
	}
	if got := book.Rent("a"); got != cloud.FromDollars(.096) {
		t.Errorf("without a the bill falls by %v", got.Dollars())
	}
	delete(book.Machines, "b")
	if got := book.Covers("a"); len(got) != 1 || got[0].Part != 1 || book.Rent("a") != 0 || book.Covers("b") != nil {
		t.Errorf("a alone is covered by %v, and costs %v", got, book.Rent("a"))
	}
}

func TestABookOfAFileIsChecked(t *testing.T) {
	line := Line{Seconds: hour, PerHour: 1}
	for name, b := range map[string]Book{
		"a negative price":  {Commitments: []Commitment{{PerHour: -1}}},
		"too many machines": {Commitments: []Commitment{{Machines: 1e9}}},
		"no kind":           {Commitments: []Commitment{{Kind: 7}}},
		"a rate too high":   {Commitments: []Commitment{{Rates: map[string]cloud.NanoUSD{"a": 1e16}}}},
		"no seconds":        {Machines: map[string]Line{"a": {}}},
		"a price too high":  {Machines: map[string]Line{"a": {Seconds: 1, PerHour: 1e16}}},
	} {
		if b.Check() == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	if err := (&Book{Commitments: []Commitment{plan(ComputeSavingsPlan, 1)}, Machines: map[string]Line{"a": line}}).Check(); err != nil {
		t.Error(err)
	}
}

func TestFactor(t *testing.T) {
	for name, want := range map[string]int64{
		"t3.nano": 1, "t3.micro": 2, "m5.large": 16, "m5.12xlarge": 384, "u-6tb1.112xlarge": 3584, "m5.metal": 768, "i3.metal": 512,
		"m7i.metal-24xl": 768, "u-6tb1.metal": 3584, "m9z.metal": 0, "m5.huge": 0, "m5.0xlarge": 0, "m5": 0,
	} {
		if got := factor(name); got != want {
			t.Errorf("%s: %d quarters, want %d", name, got, want)
		}
	}
	for name, want := range map[string]bool{"m5.large": true, "g5.xlarge": false, "u7i-6tb.112xlarge": false, "inf2.xlarge": false, "hpc7a.96xlarge": false, "i4i.large": true} {
		if got := flexible(name); got != want {
			t.Errorf("%s is flexible: %v", name, got)
		}
	}
}

// randomHour returns machines and commitments that compete for each other.
func randomHour(r *rand.Rand) (lines []Line, commitments []Commitment) {
	names := []string{"m5.large", "m5.xlarge", "m5.2xlarge", "c5.xlarge", "r5.xlarge", "g4dn.2xlarge"}
	accounts, zones := []string{"A", "B"}, []string{"a", "b"}
	for i := range 1 + r.IntN(6) {
		l := of(accounts[r.IntN(2)], zones[r.IntN(2)], on(names[r.IntN(len(names))], 60+r.Int64N(3*hour)))
		l.Key = fmt.Sprint(i)
		if r.IntN(5) == 0 {
			l = spot(.03, l)
		}
		lines = append(lines, l)
	}
	for i := range 1 + r.IntN(3) {
		c := reserved(names[r.IntN(len(names))], .05)
		switch r.IntN(4) {
		case 0:
			c.Zone = zones[r.IntN(2)]
		case 1:
			c = plan(EC2InstanceSavingsPlan, float64(r.IntN(100))/200)
		case 2:
			c = plan(ComputeSavingsPlan, float64(r.IntN(100))/200)
			for _, name := range names {
				c.Rates[name] = cloud.NanoUSD(float64(cloud.FromDollars(prices[name][0])) * (.3 + .8*r.Float64()))
			}
		}
		c.ID, c.Account = fmt.Sprint(i), accounts[r.IntN(2)]
		commitments = append(commitments, c)
	}
	return lines, commitments
}

// secondBiller computes a bill in floating point by looking for the next pair to cover again and again. It shares no code with Of.
func secondBiller(lines []Line, commitments []Commitment) float64 {
	units := map[string]float64{"large": 4, "xlarge": 8, "2xlarge": 16}
	seconds, have, total := make([]float64, len(lines)), make([]float64, len(commitments)), 0.0
	for i, l := range lines {
		seconds[i] = float64(l.Seconds)
	}
	split := func(name string) (family, size string) {
		i := slices.Index([]byte(name), '.')
		return name[:i], name[i+1:]
	}
	for i, c := range commitments {
		_, size := split(c.Type + ".")
		have[i] = c.PerHour.Dollars() * 3600
		total += c.PerHour.Dollars()
		if c.Kind == ReservedInstance {
			have[i] = 3600
			if size = size[:len(size)-1]; c.Zone == "" && c.Type != "g4dn.2xlarge" {
				have[i] *= units[size]
			}
		}
	}
	for {
		best, bestLine, bestCommitment, use := []float64(nil), 0, 0, 0.0
		for i, l := range lines {
			for j, c := range commitments {
				if l.Spot || seconds[i] < 1e-9 || have[j] < 1e-12 {
					continue
				}
				lf, ls := split(l.Type)
				list, key, a := l.PerHour.Dollars(), []float64(nil), 0.0
				switch other := map[bool]float64{true: 0, false: 1}[c.Account == l.Account]; {
				case c.Kind == ReservedInstance && c.Zone != "":
					if a = 1; c.Type != l.Type || c.Zone != l.Zone {
						continue
					}
					key = []float64{0, other, 0, 0}
				case c.Kind == ReservedInstance && c.Type == "g4dn.2xlarge":
					if a = 1; c.Type != l.Type {
						continue
					}
					key = []float64{1, other, 0, 0}
				case c.Kind == ReservedInstance:
					if cf, _ := split(c.Type); cf != lf || lf == "g4dn" {
						continue
					}
					a = units[ls]
					key = []float64{2, other, a, 0}
				default:
					a = c.Rates[l.Type].Dollars()
					if a == 0 || a > list || c.Kind == EC2InstanceSavingsPlan && lf != c.Family {
						continue
					}
					key = []float64{float64(2 + c.Kind), other, math.Round(a/list*1e12) / 1e12, a}
				}
				key = append(key, float64(j), float64(i))
				if best == nil || slices.Compare(key, best) < 0 {
					best, bestLine, bestCommitment, use = key, i, j, a
				}
			}
		}
		if best == nil {
			break
		}
		covered := min(seconds[bestLine], have[bestCommitment]/use)
		seconds[bestLine] -= covered
		have[bestCommitment] -= covered * use
	}
	for i, l := range lines {
		total += seconds[i] / 3600 * l.PerHour.Dollars()
	}
	return total
}

func TestASecondBillerAgrees(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for n := range 10_000 {
		lines, commitments := randomHour(r)
		got, want := Of(lines, commitments).Total.Dollars(), secondBiller(lines, commitments)
		if math.Abs(got-want) > 1e-7 {
			t.Fatalf("hour %d: %.9f, the second biller has %.9f\n%+v\n%+v", n, got, want, lines, commitments)
		}
	}
}

// Bills are never below what any order could come to.
func TestReachBoundsEveryBill(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	tight := 0
	for n := range 10_000 {
		lines, commitments := randomHour(r)
		list := Of(lines, nil).Total
		bill, reach := Of(lines, commitments), Reach(lines, commitments)
		if bill.Total < bill.Fees+list-reach {
			t.Fatalf("hour %d: the bill %d is below %d + %d − %d", n, bill.Total, bill.Fees, list, reach)
		}
		if bill.Total <= bill.Fees+list-reach+2 && reach < list {
			tight++
		}
	}
	if tight < 500 {
		t.Errorf("the bound is reached in %d hours only", tight)
	}
}

// More of a commitment never raises what is paid beside the fees, and two halves cover what the whole covers.
func TestMoreCommitmentNeverCostsMore(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for n := range 5_000 {
		lines, commitments := randomHour(r)
		before := Of(lines, commitments)
		more := slices.Clone(commitments)
		more[0].Machines, more[0].PerHour = more[0].Machines*2, more[0].PerHour*2
		if more[0].Kind == ReservedInstance {
			more[0].PerHour /= 2
		}
		after := Of(lines, more)
		if after.Total-after.Fees > before.Total-before.Fees+1 {
			t.Fatalf("hour %d: more of %+v raises the rest from %d to %d", n, commitments[0], before.Total-before.Fees, after.Total-after.Fees)
		}
		twice := append(slices.Clone(commitments), commitments[0])
		if split := Of(lines, twice); split.Total != after.Total {
			t.Fatalf("hour %d: twice %+v is billed %d, double of it %d", n, commitments[0], split.Total, after.Total)
		}
	}
}

// The greedy order of one Compute Savings Plan is the cheapest of all ways to cover machines.
func TestOnePlanIsOptimal(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for n := range 2_000 {
		lines, _ := randomHour(r)
		c := plan(ComputeSavingsPlan, float64(r.IntN(100))/200)
		for i := range lines {
			lines[i].Account = "A"
		}
		best := math.Inf(1)
		var orders func(left []int, rest, owed float64)
		orders = func(left []int, rest, owed float64) {
			if len(left) == 0 {
				best = min(best, owed)
				return
			}
			for i, l := range left {
				others := slices.Delete(slices.Clone(left), i, i+1)
				hours, price, rate := float64(lines[l].Seconds)/3600, lines[l].PerHour.Dollars(), c.Rates[lines[l].Type].Dollars()
				covered := 0.0
				if !lines[l].Spot && rate > 0 {
					covered = min(hours, rest/rate)
				}
				orders(others, rest-covered*rate, owed+(hours-covered)*price)
			}
		}
		all := make([]int, len(lines))
		for i := range all {
			all[i] = i
		}
		orders(all, c.PerHour.Dollars(), c.PerHour.Dollars())
		if got := Of(lines, []Commitment{c}).Total.Dollars(); math.Abs(got-best) > 1e-7 {
			t.Fatalf("hour %d: %.9f, the cheapest order comes to %.9f", n, got, best)
		}
	}
}

func BenchmarkOf(b *testing.B) {
	r := rand.New(rand.NewPCG(9, 10))
	lines, commitments := randomHour(r)
	for len(lines) < 600 {
		l, _ := randomHour(r)
		lines = append(lines, l...)
	}
	for b.Loop() {
		Of(lines, commitments)
	}
}
