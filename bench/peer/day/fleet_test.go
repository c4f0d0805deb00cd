package day

import (
	"math"
	"strings"
	"testing"
	"time"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/aws/offline"
	"karpenter.sh/karpenter/internal/history/recording"
	"karpenter.sh/karpenter/internal/history/replay"
	"karpenter.sh/karpenter/internal/testing/benchload"
)

func offlineCatalog(t *testing.T) *cloud.Catalog {
	t.Helper()
	catalog, err := offline.Catalog(offline.Options{Region: benchload.Region, Zones: benchload.Zones()})
	if err != nil {
		t.Fatal(err)
	}
	return catalog
}

// A span is a pod that asks for some cores and two GiB for each, from a minute to a minute, 0 for the end.
type span struct {
	cores    int64
	from, to float64
}

// hour returns a recording of an hour.
func hour(t *testing.T, spans []span) *Trace {
	t.Helper()
	at := func(minutes float64) time.Duration { return time.Duration(math.Round(60*minutes)) * time.Second }
	var lives []recording.Life
	for i, s := range spans {
		l := life("app", i, 1000*s.cores, s.cores<<11, at(s.from), length)
		if s.to > 0 {
			l.To = midnight.Add(at(s.to))
		}
		lives = append(lives, l)
	}
	rec, err := recording.Of("some", lives, midnight.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	return &Trace{Recording: rec}
}

// An outcome is what a fleet has to come to: the seconds that are paid of machines of 4 and of 8 vCPU, the longest wait,
// evictions, and machines bought.
type outcome struct{ four, eight, wait, evictions, launched int }

func (want outcome) check(t *testing.T, got *replay.Result, category string) {
	t.Helper()
	bill := 0.0
	for size, paid := range map[string]int{"4": want.four, "8": want.eight} {
		kinds, err := Groups{[]string{category}, size}.kinds(offlineCatalog(t), false)
		if err != nil || len(kinds[0].zones) != 3 {
			t.Fatal(kinds, err)
		}
		bill += float64(paid) / 3600 * kinds[0].zones[0].Price.Dollars()
	}
	if math.Abs(got.Dollars-bill) > 0.00002 { // less than a second of a machine costs
		t.Errorf("the bill is $%.6f, want $%.6f", got.Dollars, bill)
	}
	if got.WaitSeconds.Max != want.wait || got.Evictions != want.evictions || got.Launched != want.launched || got.Unplaced != 0 {
		t.Errorf("waited %d s, %d evictions, %d machines, %d pods without a place; want %+v and none", got.WaitSeconds.Max,
			got.Evictions, got.Launched, got.Unplaced, want)
	}
}

// TestNodeGroups plays machines of 8 vCPU, each of which holds two pods of three cores. The first machine gets the
// first pods that it holds.
func TestNodeGroups(t *testing.T) {
	catalog := offlineCatalog(t)
	for name, tc := range map[string]struct {
		spans []span
		want  outcome
	}{
		"two machines for an hour":                       {[]span{{3, 0, 0}, {3, 0, 0}, {3, 0, 0}, {3, 0, 0}}, outcome{0, 7200, 0, 0, 2}},
		"a pod that comes at a scan waits for a machine": {[]span{{3, 0, 0}, {3, 0, 0}, {3, 30, 0}}, outcome{0, 3600 + 1800, 40, 0, 2}},
		"pods that wait for a machine buy no second one": {[]span{{3, 0, 0}, {3, 0, 0}, {3, 30, 0}, {3, 30.5, 0}}, outcome{0, 3600 + 1800, 40, 0, 2}},
		// The machine that was bought for it joins at 30:40, stays empty, and goes ten minutes and a stop later.
		"a pod that waits gets room that another leaves": {[]span{{3, 0, 0}, {3, 0, 30.2}, {3, 30, 0}}, outcome{0, 3600 + 670, 12, 0, 2}},
		"an empty machine goes after ten minutes":        {[]span{{3, 0, 0}, {3, 0, 0}, {3, 0, 30}, {3, 0, 30}}, outcome{0, 3600 + 2430, 0, 0, 2}},
		"one of two below half goes after ten minutes":   {[]span{{3, 0, 0}, {3, 0, 30}, {3, 0, 0}, {3, 0, 30}}, outcome{0, 3600 + 2430, 0, 1, 2}},
		"it stays when it is in use after nine": {[]span{{3, 0, 0}, {3, 0, 30}, {3, 0, 0}, {3, 0, 30}, {3, 39, 0}, {3, 39, 0}},
			outcome{0, 7200, 0, 0, 2}},
		"minutes in use begin the ten anew": {[]span{{3, 0, 0}, {3, 0, 30}, {3, 0, 0}, {3, 0, 30}, {3, 35, 38}, {3, 35, 38}},
			outcome{0, 3600 + 2910, 0, 1, 2}},
		// Its four pods of one core would fit on the other machines, one each.
		"one above half stays": {[]span{{6, 0, 0}, {1, 0, 30}, {6, 0, 0}, {1, 0, 30}, {6, 0, 0}, {1, 0, 30}, {6, 0, 0}, {1, 0, 30},
			{3, 0, 30}, {1, 0, 0}, {1, 0, 0}, {1, 0, 0}, {1, 0, 0}}, outcome{0, 5 * 3600, 0, 0, 5}},
		"nothing goes for ten minutes after a purchase": {[]span{{3, 0, 0}, {3, 0, 30}, {3, 0, 0}, {3, 0, 30}, {7, 35, 0}},
			outcome{0, 3600 + 2730 + 1500, 40, 1, 3}},
		"nothing goes whose pods have no place": {[]span{{3, 0, 0}, {3, 0, 30}, {5, 0, 0}}, outcome{0, 7200, 0, 0, 2}},
		// The pod of the first goes to the second, the emptier one, which goes with two pods when the first is gone.
		"one machine goes at a time that has pods": {[]span{{1, 0, 0}, {6, 0, 30}, {1, 0, 0}, {6, 0, 30}, {2, 0, 0}, {5, 0, 30}},
			outcome{0, 3600 + 2430 + 2460, 0, 3, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := PlayGroups(t.Context(), hour(t, tc.spans), catalog, Groups{[]string{"m"}, "8"}, false)
			if err != nil {
				t.Fatal(err)
			}
			tc.want.check(t, got, "m")
		})
	}
}

// TestKarpenter plays its controllers. A pod of three cores needs a machine of 4 vCPU, two of them one of 8.
func TestKarpenter(t *testing.T) {
	catalog := offlineCatalog(t)
	for name, tc := range map[string]struct {
		calm  Calm
		spans []span
		want  outcome
	}{
		"a machine for an hour":                                {Calms()[0], []span{{3, 0, 0}}, outcome{3599, 0, 0, 0, 1}},
		"a pod that comes waits for the batch and the machine": {Calms()[0], []span{{3, 0, 0}, {3, 30, 0}}, outcome{3599 + 1799, 0, 41, 0, 2}},
		"a batch waits for further pods":                       {Calms()[2], []span{{3, 0, 0}, {3, 1. / 60, 0}}, outcome{0, 3598, 41, 0, 1}},
		// It is empty at 30:12, found at 30:20, looked at again 15 s later, and costs for 30 s more.
		"an empty machine goes":                {Calms()[0], []span{{3, 0, 30.2}}, outcome{1864, 0, 0, 0, 1}},
		"an empty machine goes after its calm": {Calms()[1], []span{{3, 0, 30}}, outcome{2144, 0, 0, 0, 1}},
		// It was found empty at 35:00, and is not removed at 35:15, nor before five minutes from 35:12.
		"a pod that comes meanwhile saves it": {Calms()[1], []span{{3, 0, 30}, {3, 35.2, 35.25}}, outcome{2464, 0, 0, 0, 1}},
		// Found at 31:00 and bought at 31:15, the smaller machine is ready at 31:55, when the larger one is drained.
		"a machine is replaced by a smaller one": {Calms()[0], []span{{3, 0, 0}, {3, 0, 30.2}}, outcome{1725, 1944, 0, 1, 2}},
		// The larger machine has room at 31:20, but is being replaced. The pod takes the smaller one at 31:55, and the other pod a third.
		"nothing goes to a machine that is replaced": {Calms()[0], []span{{3, 0, 0}, {3, 0, 30.2}, {3, 31 + 1./3, 0}},
			outcome{1725 + 1719, 1944, 35, 1, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := PlayKarpenter(t.Context(), hour(t, tc.spans), catalog, tc.calm, false, time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			tc.want.check(t, got, "c")
		})
	}
}

func TestTable(t *testing.T) {
	text := table([]*replay.Result{{Variant: "ours", Dollars: 110, Bound: 100}, {Variant: "groups", Dollars: 200, Unplaced: 2}})
	for _, want := range []string{"The bound is $100.00.", "| ours | $110.00 |", "| 1.100 | – |", "| groups, 2 pods without a place | $200.00 |",
		"| 2.000 | **0.550** |"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
}

// TestSpotIsBoundByItsCheapestOffering: the catalogue for the bound has each offering as on demand.
func TestSpotIsBoundByItsCheapestOffering(t *testing.T) {
	catalog := offlineCatalog(t)
	it := asOnDemand(catalog).Types[0]
	for i := range it.Offerings {
		if o, was := &it.Offerings[i], &catalog.Types[0].Offerings[i]; o.CapacityType() != v1.CapacityTypeOnDemand || o.Price != was.Price {
			t.Errorf("offering %d: %v at %v", i, o.Labels, o.Price)
		}
	}
}
