package day

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"karpenter.sh/karpenter/internal/aws/offline"
	"karpenter.sh/karpenter/internal/history/recording"
	"karpenter.sh/karpenter/internal/history/replay"
	"karpenter.sh/karpenter/internal/testing/benchload"
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
	rec, err := recording.Of("some", some, midnight.Add(length))
	if err != nil {
		t.Fatal(err)
	}
	var all []*replay.Result
	for _, calm := range []Calm{Calms()[1], Calms()[len(Calms())-1]} {
		got, err := Play(t.Context(), &Trace{Recording: rec}, catalog, calm, false)
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

// TestATraceIsPlayed reads tables of pods, with names of columns of our own and with those of Alibaba's GPU cluster.
func TestATraceIsPlayed(t *testing.T) {
	catalog, err := offline.Catalog(offline.Options{Region: benchload.Region, Zones: benchload.Zones()})
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		text  string
		gpus  bool
		least float64 // dollars for the hour
		most  float64
	}{
		"pods with times of creation and deletion": {"name,created,deleted,cpu,memory\na,2026-06-01T10:00:00Z,2026-06-01T11:00:00Z,1500m,2Gi\n", false, 0.05, 0.2},
		"pods of a GPU cluster": {
			"name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n" +
				"openb-pod-0000,3000,8192,1,1000,,LS,Running,0,3600,0\n", true, 0.2, 2,
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "pods.csv")
			if err := os.WriteFile(path, []byte(tc.text), 0o644); err != nil {
				t.Fatal(err)
			}
			trace, err := Read(path)
			if err != nil || trace.GPUs != tc.gpus {
				t.Fatalf("GPUs %v, %v", trace.GPUs, err)
			}
			got, err := Play(t.Context(), trace, catalog, Calms()[0], false)
			if err != nil {
				t.Fatal(err)
			}
			if got.Dollars < tc.least || got.Dollars > tc.most || got.Bound <= 0 {
				t.Errorf("an hour costs $%.3f, at least $%.3f; want $%.2f to $%.2f", got.Dollars, got.Bound, tc.least, tc.most)
			}
		})
	}
	if _, err := Read(filepath.Join(t.TempDir(), "none.csv")); err == nil {
		t.Error("a trace that is not there is read")
	}
}
