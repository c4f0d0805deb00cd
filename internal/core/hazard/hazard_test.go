package hazard

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func near(a, b float64) bool { return math.Abs(a-b) <= 0.001*max(math.Abs(a), math.Abs(b)) }

func TestRate(t *testing.T) {
	const prior = 0.001 // once in a thousand hours
	for name, tc := range map[string]struct {
		record func() Record
		after  time.Duration
		want   float64
	}{
		"nothing was seen":               {func() Record { return Record{} }, 0, prior},
		"one interruption":               {func() Record { return Record{}.Interrupted(noon) }, 0, 0.0015},
		"as many hours as the prior has": {func() Record { return Record{}.Ran(noon, Weight) }, 0, prior / 2},
		"hours that are none":            {func() Record { return Record{}.Ran(noon, -5) }, 0, prior},
		"what is old counts half":        {func() Record { return Record{}.Interrupted(noon) }, HalfLife, 0.00125},
		"and in the end nothing":         {func() Record { return Record{}.Interrupted(noon).Ran(noon, Weight) }, 100 * HalfLife, prior},
		"a failed launch":                {func() Record { return Record{}.Failed(noon) }, 0, 0.001125},
		"failed launches of one hour": {func() Record {
			r := Record{}
			for i := range 20 {
				r = r.Failed(noon.Add(time.Duration(i) * 3 * time.Minute))
			}
			return r
		}, 0, 0.001125},
		"a clock that goes back adds no weight": {func() Record { return Record{}.Interrupted(noon).After(noon.Add(-time.Hour)) }, 0, 0.0015},
	} {
		r := tc.record()
		if got := r.After(r.At.Add(tc.after)).Rate(prior); !near(got, tc.want) {
			t.Errorf("%s: rate %v, want %v", name, got, tc.want)
		}
	}
}

// What rests does not flicker: it begins with a failure and ends an hour after a single one.
func TestRests(t *testing.T) {
	r := Record{}
	if r.After(noon).Rests {
		t.Fatal("an offering rests of which nothing was seen")
	}
	changes := 0
	for i, before := 0, false; i < 6*60; i++ { // minutes
		now := noon.Add(time.Duration(i) * time.Minute)
		if r = r.After(now); i == 10 || i == 60 {
			r = r.Failed(now)
		}
		if r.Rests != before {
			before = r.Rests
			changes++
		}
		switch {
		case i < 10 && r.Rests, i >= 10 && i <= 60+59 && !r.Rests, i > 60+75 && r.Rests:
			t.Errorf("minute %d: rests is %v", i, r.Rests)
		}
	}
	if changes != 2 {
		t.Errorf("it began and ceased to rest %d times, want twice", changes)
	}
	if !r.After(noon.Add(10000 * time.Hour)).Empty() {
		t.Error("nothing is left of the evidence, and the record is not empty")
	}
}

func TestBands(t *testing.T) {
	for band, part := range Bands {
		if got := 1 - math.Exp(-OfBand(band)*month.Hours()); !near(got, part) {
			t.Errorf("band %d: %v is taken back in a month, want %v", band, got, part)
		}
	}
	if OfBand(-1) != OfBand(0) || OfBand(9) != OfBand(4) {
		t.Error("bands that there are not are no error")
	}
}

func TestNano(t *testing.T) {
	for rate, want := range map[float64]float64{0: 0, 1: 1e9, 5: 1e9, 0.01: 1e7, 3e-5: 3e4} {
		if got := float64(Nano(rate)); math.Abs(got-want) > 0.021*want {
			t.Errorf("Nano(%v) = %v, want about %v", rate, got, want)
		}
	}
	if Nano(0.0100) != Nano(0.0101) || Nano(0.010) == Nano(0.012) {
		t.Error("small changes change something, or large ones nothing")
	}
}

// TestCalibration draws interruptions of machines in 200 offerings whose rates are known for eight weeks: the log-loss of what is predicted
// for each machine-day, by the estimate and by one rate for all. There is no public series of interruptions to do so with.
func TestCalibration(t *testing.T) {
	for name, tc := range map[string]struct {
		off   float64 // by what factor an offering's rate may differ from its band
		wrong bool    // bands are of other offerings
		want  float64 // at most this part of the loss of one rate for all
	}{
		"bands that are right":            {off: 1, want: 0.96},
		"offerings differ in their bands": {off: 8, want: 0.89},
		"bands that are wrong":            {off: 8, wrong: true, want: 0.92},
	} {
		rng := rand.New(rand.NewPCG(1, 2))
		const offerings, days = 200, 56
		prior, truth, records := make([]float64, offerings), make([]float64, offerings), make([]Record, offerings)
		for i := range truth {
			band := rng.IntN(len(Bands))
			truth[i] = 10 * OfBand(band) * math.Exp((2*rng.Float64()-1)*math.Log(tc.off)) // of a cluster that is busy
			if tc.wrong {
				band = rng.IntN(len(Bands))
			}
			prior[i] = 10 * OfBand(band)
		}
		all, loss, equal, events, hours := 0.0, 0.0, 0.0, 0.0, 0.0
		for _, rate := range prior {
			all += rate / offerings
		}
		for day := range days {
			now := noon.AddDate(0, 0, day)
			for i := range truth {
				records[i] = records[i].After(now)
				p, q := daily(records[i].Rate(prior[i])), daily((all*Weight+events)/(Weight+hours))
				for range 4 { // machines
					if taken := rng.Float64() < daily(truth[i]); taken {
						loss, equal = loss-math.Log(p), equal-math.Log(q)
						records[i] = records[i].Interrupted(now)
						events++
					} else {
						loss, equal = loss-math.Log1p(-p), equal-math.Log1p(-q)
					}
					records[i] = records[i].Ran(now, 24)
					hours += 24
				}
			}
		}
		t.Logf("%s: log-loss %.4f a machine-day, of one rate for all %.4f", name, loss/(4*offerings*days), equal/(4*offerings*days))
		if loss > tc.want*equal {
			t.Errorf("%s: the loss is %.3f of that of one rate for all, want at most %.2f", name, loss/equal, tc.want)
		}
	}
}

func daily(rate float64) float64 { return -math.Expm1(-24 * rate) }
