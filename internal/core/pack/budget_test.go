package pack

import (
	"testing"

	"karpenter.sh/karpenter/internal/core/work"
)

// TestABudgetFollowsWhatIsAtStake spends a budget of which 1,000 units are granted in steps of ten, while price and bound change at
// some points. After least it looks at what is at stake about every 125 units.
func TestABudgetFollowsWhatIsAtStake(t *testing.T) {
	const dollar = 1_000_000_000
	type change struct {
		after        work.Units
		price, bound float64 // dollars
	}
	for name, tc := range map[string]struct {
		changes     []change
		least, most work.Units
		from, to    work.Units // where it ends
	}{
		"much at stake, but nothing changes":            {[]change{{0, 100, 90}}, 1000, 9000, 1000, 1150},
		"a little changes":                              {[]change{{0, 100, 90}, {900, 99.99, 90}}, 1000, 9000, 1000, 1150},
		"the fleet got cheaper late":                    {[]change{{0, 100, 90}, {900, 99, 90}}, 1000, 9000, 1800, 2150},
		"the bound got better late":                     {[]change{{0, 100, 90}, {900, 100, 91}}, 1000, 9000, 1800, 2150},
		"it got cheaper early":                          {[]change{{0, 100, 90}, {300, 99, 90}}, 1000, 9000, 1000, 1150},
		"it gets cheaper again and again":               {[]change{{0, 100, 90}, {900, 99, 90}, {1700, 98, 90}, {3200, 97, 90}}, 1000, 9000, 6400, 6900},
		"up to the most":                                {[]change{{0, 100, 90}, {900, 99, 90}, {1700, 98, 90}, {3200, 97, 90}}, 1000, 5000, 5000, 5020},
		"half a percent is not at stake":                {[]change{{0, 100, 90}, {900, 90.4, 90}}, 1000, 9000, 1000, 1150},
		"two cents are not at stake":                    {[]change{{0, 0.2, 0.1}, {900, 0.119, 0.1}}, 1000, 9000, 1000, 1150},
		"a first part is granted whatever is at stake":  {[]change{{0, 100, 99.9}}, 1000, 9000, 1000, 1150},
		"without a first part nobody looks at stakes":   {[]change{{0, 100, 99.9}}, 0, 9000, 9000, 9020},
		"before there is a fleet there is no telling":   {nil, 1000, 5000, 5000, 5020},
		"with neither there is no end but of the trial": {[]change{{0, 100, 99.9}}, 0, 0, 20_000, 20_000},
	} {
		t.Run(name, func(t *testing.T) {
			r := &run{p: &part{}}
			b := newBudget(Options{Least: tc.least, Most: tc.most})
			b.watch(&solution{runs: []*run{r}})
			for b.spent() < 20_000 {
				for _, c := range tc.changes {
					if b.spent() >= c.after {
						r.best, r.proofs = &fleet{price: int64(c.price * dollar)}, []proof{{value: c.bound * dollar}}
					}
				}
				if !b.spend() {
					break
				}
				b.charge(9)
			}
			if got := b.spent(); got < tc.from || got > tc.to+10 {
				t.Errorf("ended after %d units, want %d to %d", got, tc.from, tc.to)
			}
			if tc.to < 20_000 && b.spend() {
				t.Error("what ended goes on")
			}
		})
	}
}

func TestABudgetEndsWithItsMeter(t *testing.T) {
	b := newBudget(Options{Meter: work.NewMeter(500, nil)})
	for range 200 {
		b.spend()
		b.charge(9)
	}
	if b.trials < 45 || b.trials > 55 || !b.over {
		t.Errorf("%d trials of ten units within 500", b.trials)
	}
	sure := b.uncut()
	if first, second := sure.spend(), sure.spend(); !first || !second || sure.over {
		t.Error("work that has to be done is cut")
	}
	if first := newBudget(Options{Meter: b.meter}); !first.spend() || first.spend() {
		t.Error("the first trial, and it alone, is granted")
	}
}

// A search of which a dollar is at stake, and which is granted 250 of 1,000 units for it, comes nearer to the bound at some points.
func TestASearchGoesOnAsLongAsItGetsSomewhere(t *testing.T) {
	type gain struct {
		after work.Units
		apart float64 // of a dollar
	}
	for name, tc := range map[string]struct {
		least    work.Units
		gains    []gain
		from, to work.Units
	}{
		"nothing comes of it":                          {1000, nil, 250, 270},
		"less than a twentieth is nothing":             {1000, []gain{{100, 0.96}}, 250, 270},
		"small gains add up":                           {1000, []gain{{100, 0.97}, {200, 0.94}}, 400, 420},
		"what came early is no reason":                 {1000, []gain{{50, 0.5}}, 250, 270},
		"what came in the last half is":                {1000, []gain{{200, 0.9}, {390, 0.8}, {700, 0.7}}, 1400, 1420},
		"without a sure part it is granted any amount": {0, nil, 5000, 5000},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBudget(Options{Least: tc.least})
			p, apart := b.newPace(1e9), 1.0
			for b.spent() < 5000 {
				for _, g := range tc.gains {
					if b.spent() >= g.after {
						apart = g.apart
					}
				}
				if !p.onward(apart * 1e9) {
					break
				}
				b.charge(10)
			}
			if got := b.spent(); got < tc.from || got > tc.to {
				t.Errorf("ended after %d units, want %d to %d", got, tc.from, tc.to)
			}
		})
	}
}

func TestAnAttemptIsGrantedWhatIsAtStake(t *testing.T) {
	for name, tc := range map[string]struct {
		least, most, spent work.Units
		dollars            float64
		want               work.Units
	}{
		"a quarter of the sure part for a dollar": {1000, 9000, 0, 1, 250},
		"all of it for four":                      {1000, 9000, 0, 4, 1000},
		"and no more for forty":                   {1000, 9000, 0, 40, 1000},
		"never more than is left":                 {1000, 1200, 1100, 4, 100},
		"something when nothing is left":          {1000, 1200, 1300, 4, 1},
		"all that is left without a sure part":    {0, 9000, 1000, 0.01, 8000},
		"any amount without any limit":            {0, 0, 1000, 0.01, 0},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBudget(Options{Least: tc.least, Most: tc.most})
			b.charge(int(tc.spent))
			if got := b.granted(tc.dollars * 1e9).most; got != tc.want {
				t.Errorf("granted %d, want %d", got, tc.want)
			}
		})
	}
}
