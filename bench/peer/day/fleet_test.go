package day

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

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

// hours returns a recording of some hours with pods of 3 cores and 6 GiB, from and to some minutes; 0 minutes: to the end.
func hours(t *testing.T, n int, spans ...[2]int) *Trace {
	t.Helper()
	var lives []recording.Life
	for i, s := range spans {
		l := life("app", i, 3000, 6<<10, time.Duration(s[0])*time.Minute, length)
		if s[1] > 0 {
			l.To = midnight.Add(time.Duration(s[1]) * time.Minute)
		}
		lives = append(lives, l)
	}
	rec, err := recording.Of("some", lives, midnight.Add(time.Duration(n)*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	return &Trace{Recording: rec}
}

func same(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 0.005 {
		t.Errorf("%s is $%.4f, want $%.4f", what, got, want)
	}
}

var eight = Groups{[]string{"m"}, "8"}

func groupsOf(t *testing.T, trace *Trace, spot bool) (*replay.Result, kind) {
	t.Helper()
	catalog := offlineCatalog(t)
	kinds, err := eight.kinds(catalog, spot)
	if err != nil {
		t.Fatal(err)
	}
	got, err := PlayGroups(t.Context(), trace, catalog, eight, spot)
	if err != nil {
		t.Fatal(err)
	}
	return got, kinds[0]
}

// TestNodeGroups plays machines of 8 vCPU, of which each holds two of the pods.
func TestNodeGroups(t *testing.T) {
	for name, tc := range map[string]struct {
		hours     int
		spans     [][2]int
		paid      float64 // seconds of machines
		wait      int
		evictions int
	}{
		"four pods need two machines for an hour":                  {1, [][2]int{{0, 0}, {0, 0}, {0, 0}, {0, 0}}, 2 * 3600, 0, 0},
		"a pod that comes later waits for a scan and for the boot": {1, [][2]int{{0, 0}, {0, 0}, {30, 0}}, 3600 + 1800, 40, 0},
		// The second pair goes after 30 minutes; the machine has been empty for ten minutes at 40 and is stopped 30 s later.
		"an empty machine goes after ten minutes": {1, [][2]int{{0, 0}, {0, 0}, {0, 30}, {0, 30}}, 3600 + 2430, 0, 0},
		// One pod of each pair goes: both machines are half empty, and one of them is drained ten minutes later.
		"a machine that is half empty goes after ten minutes": {1, [][2]int{{0, 0}, {0, 0}, {0, 30}, {0, 30}}, 3600 + 2430, 0, 0},
		// A machine that was bought at 35 minutes defers it until 45.
		"nothing goes within ten minutes after a purchase": {1, [][2]int{{0, 0}, {0, 0}, {0, 30}, {0, 30}, {35, 0}, {35, 0}}, 2 * 3600, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			got, k := groupsOf(t, hours(t, tc.hours, tc.spans...), false)
			same(t, "the bill", got.Dollars, k.zones[0].Price.Dollars()*tc.paid/3600)
			if got.WaitSeconds.Max != tc.wait || got.Evictions != tc.evictions || got.Unplaced != 0 {
				t.Errorf("waited %d s, %d evictions, %d without a place", got.WaitSeconds.Max, got.Evictions, got.Unplaced)
			}
		})
	}
}

func TestWhatGroupsAre(t *testing.T) {
	catalog := offlineCatalog(t)
	for _, g := range AllGroups() {
		for _, spot := range []bool{false, true} {
			kinds, err := g.kinds(catalog, spot)
			for _, k := range kinds {
				fmt.Println(spot, k.it.Name, k.zones[0].Price.Dollars(), k.zones[1].Price.Dollars(), k.zones[2].Price.Dollars(), err)
			}
		}
	}
	for _, g := range AllGroups() {
		for _, spot := range []bool{false, true} {
			tr, _ := Generated(1)
			start := time.Now()
			r, err := PlayGroups(context.Background(), tr, catalog, g, spot)
			fmt.Println(spot, r.Variant, r.Dollars, r.Evictions, r.WaitSeconds, r.Launched, r.Unplaced, err, time.Since(start))
		}
	}
}

func TestKarpenterTiny(t *testing.T) {
	r, err := PlayKarpenter(t.Context(), hours(t, 1, [2]int{0, 0}, [2]int{0, 0}, [2]int{0, 30}, [2]int{0, 30}), offlineCatalog(t), Pool{}, Calms()[0], 30*time.Second)
	fmt.Println(r, err)
}
