package day

import (
	"strings"
	"testing"
	"time"

	"karpenter.sh/karpenter/internal/aws/offline"
	"karpenter.sh/karpenter/internal/benchload"
	"karpenter.sh/karpenter/internal/recording"
	"karpenter.sh/karpenter/internal/replay"
)

func TestADayIsTheSameForASeed(t *testing.T) {
	a, b := Lives(1), Lives(1)
	if len(a) != len(b) || len(a) < 1000 {
		t.Fatalf("%d and %d pods", len(a), len(b))
	}
	for i := range a {
		if a[i].Pod.Name != b[i].Pod.Name || !a[i].From.Equal(b[i].From) || !a[i].To.Equal(b[i].To) {
			t.Errorf("pod %d differs", i)
		}
		if !a[i].To.IsZero() && !a[i].To.After(a[i].From) || a[i].From.Before(midnight) || a[i].To.After(midnight.Add(length)) {
			t.Errorf("%s lives from %s to %s", a[i].Pod.Name, a[i].From, a[i].To)
		}
	}
}

// TestCalmCostsMoneyAndSparesPods plays a few pods of the day.
func TestCalmCostsMoneyAndSparesPods(t *testing.T) {
	catalog, err := offline.Catalog(offline.Options{Region: benchload.Region, Zones: benchload.Zones()})
	if err != nil {
		t.Fatal(err)
	}
	var some []recording.Life
	for _, l := range Lives(1) {
		if app := l.Pod.Labels["app"]; app < "service-01" {
			some = append(some, l)
		}
	}
	var all []*replay.Result
	for _, calm := range []Calm{Calms()[1], Calms()[len(Calms())-1]} {
		got, err := Play(t.Context(), some, catalog, calm)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, got)
	}
	if busy, never := all[0], all[1]; busy.Dollars >= never.Dollars || never.Evictions != 0 || busy.Bound <= 0 || busy.Dollars < busy.Bound {
		t.Errorf("$%.2f with %d evictions, $%.2f with %d when nothing is moved; bound $%.2f", busy.Dollars, busy.Evictions, never.Dollars, never.Evictions, busy.Bound)
	}
	if text := Report(all); !strings.Contains(text, "| 5m | $") || !strings.Contains(text, "| Never | $") {
		t.Errorf("report:\n%s", text)
	}
	if all[0].To.Sub(all[0].From) != 24*time.Hour {
		t.Errorf("the day has %s", all[0].To.Sub(all[0].From))
	}
}
