package foresight

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

func TestAnObjectWhosePodsDoNotComeIsNotBelieved(t *testing.T) {
	trust, at, off := &Trust{}, now, 0
	// run plays one run of a CronJob of 10 pods, looked at before its time and after, and until it is no longer announced.
	run := func(left int) (believed bool, came, missed int) {
		t.Helper()
		a := Announcement{Kind: "CronJob", Namespace: "shop", Name: "report", At: at.Add(time.Minute), Pods: 10}
		all, _ := trust.Judge([]Announcement{a}, at)
		believed = len(all) == 1
		if a.Pods = left; left > 0 {
			trust.Judge([]Announcement{a}, at.Add(90*time.Second))
			at = at.Add(2 * time.Minute)
		} else {
			at = at.Add(70 * time.Second)
		}
		_, ended := trust.Judge(nil, at)
		if len(ended) == 1 && ended[0].Off {
			off++
		}
		if len(ended) != 1 {
			t.Fatalf("the end is told %d times", len(ended))
		}
		at = at.Add(time.Hour)
		if _, again := trust.Judge(nil, at); len(again) != 0 {
			t.Errorf("the end is told again")
		}
		return believed, ended[0].Came, ended[0].Missed
	}
	for i, tc := range []struct {
		left         int
		believed     bool
		came, missed int
	}{
		{10, true, 0, 10}, {10, true, 0, 10}, {5, true, 5, 5}, // half of them are enough
		{10, true, 0, 10}, {10, true, 0, 10}, {6, true, 4, 6}, // three times wrong
		{10, false, 0, 10}, {0, false, 10, 0}, {0, true, 10, 0}, // until pods come
	} {
		if believed, came, missed := run(tc.left); believed != tc.believed || came != tc.came || missed != tc.missed {
			t.Errorf("run %d: believed %v, %d came, %d did not; want %+v", i+1, believed, came, missed, tc)
		}
		if want := min(1, (i+1)/6); off != want {
			t.Errorf("after run %d it was said %d times that no machines are opened any more, want %d", i+1, off, want)
		}
	}
}

func TestWhatIsTakenBackBeforeItsTimeIsNoMiss(t *testing.T) {
	trust := &Trust{}
	trust.Judge([]Announcement{{Kind: "CronJob", Name: "report", At: now.Add(time.Minute), Pods: 10}}, now)
	if _, ended := trust.Judge(nil, now.Add(30*time.Second)); len(ended) != 0 || len(trust.records) != 0 {
		t.Errorf("ended are %v, remembered %v", ended, trust.records)
	}
}

func TestTheNextRunEndsTheOneBefore(t *testing.T) {
	trust := &Trust{}
	a := Announcement{Kind: "CronJob", Name: "report", At: now.Add(time.Minute), Pods: 10}
	for _, a.UID = range []types.UID{"old", "new"} { // it was deleted and created again
		trust.Judge([]Announcement{a}, now)
	}
	a.At = now.Add(2 * time.Minute)
	if _, ended := trust.Judge([]Announcement{a}, now.Add(2*time.Minute)); len(ended) != 1 || ended[0].Missed != 10 || ended[0].Object.UID != "new" {
		t.Errorf("ended are %v", ended)
	}
}

func TestAnAutoscalerThatIsStuckKeepsNoRoom(t *testing.T) {
	trust := &Trust{}
	a := Announcement{Kind: "HorizontalPodAutoscaler", Name: "web", Pods: 10}
	believed := func(after time.Duration, pods int) bool {
		a.Pods = pods
		all, _ := trust.Judge([]Announcement{a}, now.Add(after))
		return len(all) == 1
	}
	for _, step := range []struct {
		after time.Duration
		pods  int
		want  bool
	}{{0, 10, true}, {4 * time.Minute, 10, true}, {5 * time.Minute, 10, false}, {6 * time.Minute, 8, true}, {11 * time.Minute, 8, false}} {
		if got := believed(step.after, step.pods); got != step.want {
			t.Errorf("after %v with %d pods missing: believed %v", step.after, step.pods, got)
		}
	}
}
