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
	from, to int
}

// hour returns a recording of an hour.
func hour(t *testing.T, spans []span) *Trace {
	t.Helper()
	var lives []recording.Life
	for i, s := range spans {
		l := life("app", i, 1000*s.cores, s.cores<<11, time.Duration(s.from)*time.Minute, length)
		if s.to > 0 {
			l.To = midnight.Add(time.Duration(s.to) * time.Minute)
		}
		lives = append(lives, l)
	}
	rec, err := recording.Of("some", lives, midnight.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	return &Trace{Recording: rec}
}

// check compares a result; paid is machine-seconds at a price.
func check(t *testing.T, got *replay.Result, paid, price float64, wait, evictions, launched int) {
	t.Helper()
	if want := paid * price / 3600; math.Abs(got.Dollars-want) > 0.005 {
		t.Errorf("the bill is $%.4f, want $%.4f", got.Dollars, want)
	}
	if got.WaitSeconds.Max != wait || got.Evictions != evictions || got.Launched != launched || got.Unplaced != 0 {
		t.Errorf("waited %d s, %d evictions, %d machines, %d pods without a place; want %d, %d, %d and none", got.WaitSeconds.Max,
			got.Evictions, got.Launched, got.Unplaced, wait, evictions, launched)
	}
}

// TestNodeGroups plays machines of 8 vCPU, each of which holds two pods of three cores.
func TestNodeGroups(t *testing.T) {
	catalog, groups := offlineCatalog(t), Groups{[]string{"m"}, "8"}
	kinds, err := groups.kinds(catalog, false)
	if err != nil || len(kinds) != 1 || len(kinds[0].zones) != 3 {
		t.Fatalf("%d kinds, %v", len(kinds), err)
	}
	for name, tc := range map[string]struct {
		spans                     []span
		paid                      float64
		wait, evictions, launched int
	}{
		"two machines for an hour":                       {[]span{{3, 0, 0}, {3, 0, 0}, {3, 0, 0}, {3, 0, 0}}, 2 * 3600, 0, 0, 2},
		"a pod that comes at a scan waits for a machine": {[]span{{3, 0, 0}, {3, 0, 0}, {3, 30, 0}}, 3600 + 1800, 40, 0, 2},
		"an empty machine goes after ten minutes":        {[]span{{3, 0, 0}, {3, 0, 0}, {3, 0, 30}, {3, 0, 30}}, 3600 + 2430, 0, 0, 2},
		"one of two below half goes after ten minutes":   {[]span{{3, 0, 0}, {3, 0, 30}, {3, 0, 0}, {3, 0, 30}}, 3600 + 2430, 0, 1, 2},
		"it stays when it is in use after nine":          {[]span{{3, 0, 0}, {3, 0, 30}, {3, 0, 0}, {3, 0, 30}, {3, 39, 0}, {3, 39, 0}}, 7200, 0, 0, 2},
		"one above half stays":                           {[]span{{3, 0, 0}, {3, 0, 30}, {4, 0, 0}, {3, 0, 30}}, 3600 + 2430, 0, 1, 2},
		"nothing goes for ten minutes after a purchase":  {[]span{{3, 0, 0}, {3, 0, 30}, {3, 0, 0}, {3, 0, 30}, {7, 35, 0}}, 3600 + 2730 + 1500, 40, 1, 3},
		"nothing goes whose pods have no place":          {[]span{{3, 0, 0}, {3, 0, 30}, {5, 0, 0}}, 7200, 0, 0, 2},
		"one machine goes at a time that has pods":       {[]span{{1, 0, 0}, {6, 0, 30}, {1, 0, 0}, {6, 0, 30}, {2, 0, 0}, {5, 0, 30}}, 3600 + 2430 + 2460, 0, 3, 3},
		"pods that wait for a machine buy no second one": {[]span{{3, 0, 0}, {3, 0, 0}, {3, 30, 0}, {3, 30, 0}}, 3600 + 1800, 40, 0, 2},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := PlayGroups(t.Context(), hour(t, tc.spans), catalog, groups, false)
			if err != nil {
				t.Fatal(err)
			}
			check(t, got, tc.paid, kinds[0].zones[0].Price.Dollars(), tc.wait, tc.evictions, tc.launched)
		})
	}
}

// TestKarpenter plays its controllers. A pod of three cores needs a machine of 4 vCPU.
func TestKarpenter(t *testing.T) {
	catalog := offlineCatalog(t)
	four, err := Groups{[]string{"c"}, "4"}.kinds(catalog, false) // the cheapest
	if err != nil {
		t.Fatal(err)
	}
	price := four[0].zones[0].Price.Dollars()
	for name, tc := range map[string]struct {
		calm                      Calm
		spans                     []span
		paid                      float64
		wait, evictions, launched int
	}{
		"a machine for an hour":                                {Calms()[0], []span{{3, 0, 0}}, 3600 - 1, 0, 0, 1},
		"a pod that comes waits for the batch and the machine": {Calms()[0], []span{{3, 0, 0}, {3, 30, 0}}, 3600 - 1 + 1800 - 1, 41, 0, 2},
		// It is empty at 30 minutes, looked at again 15 s later, and costs for 30 s more.
		"an empty machine goes":                {Calms()[0], []span{{3, 0, 30}, {1, 59, 0}}, 1800 - 1 + 45, 41, 0, 2},
		"an empty machine goes after its calm": {Calms()[1], []span{{3, 0, 30}, {1, 59, 0}}, 2100 - 1 + 45, 41, 0, 2},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := PlayKarpenter(t.Context(), hour(t, tc.spans), catalog, tc.calm, false, time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			check(t, got, tc.paid, price, tc.wait, tc.evictions, tc.launched)
		})
	}
}

func TestTable(t *testing.T) {
	text := table([]*replay.Result{{Variant: "ours", Dollars: 110, Bound: 100}, {Variant: "groups", Dollars: 200, Unplaced: 2}})
	for _, want := range []string{"The bound is $100.00.", "| ours | $110.00 | 1.100 |", "| groups, 2 pods without a place | $200.00 | 2.000 |", "| **0.550** |"} {
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
