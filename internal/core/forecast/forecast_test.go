package forecast

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// monday is the day about which tests ask.
var monday = time.Date(2026, 7, 13, 0, 0, 0, 0, time.UTC)

var (
	web      = Workload{"shop", "Deployment", "web"}
	template = &corev1.PodTemplateSpec{}
)

// remembered is a History in which somebody looked all the time on the days before monday, and came says how many pods came at which times.
func remembered(days int, came func(day time.Time) map[time.Duration]int) *History {
	h := &History{}
	for n := days; n > 0; n-- {
		day := monday.AddDate(0, 0, -n)
		for slot := range slots {
			h.See(day.Add(time.Duration(slot) * Slot))
		}
		for at, pods := range came(day) {
			h.Add(day.Add(at), web, template, pods)
		}
	}
	return h
}

// at is what is expected within ten minutes, as text.
func (h *History) at(when time.Time) string {
	var out []string
	for _, e := range h.Expect(when, when.Add(10*time.Minute), 0.9) {
		out = append(out, fmt.Sprintf("%s %d of %s from %d of %d %s", e.At.Format("15:04"), e.Left, e.Class.Workload, e.Basis.Came, e.Basis.Of, e.Basis.Days))
	}
	return strings.Join(out, "; ")
}

func TestWhatIsExpected(t *testing.T) {
	const nine = 9 * time.Hour
	at := func(when time.Duration, pods int) map[time.Duration]int { return map[time.Duration]int{when: pods} }
	for name, tc := range map[string]struct {
		days int
		came func(day time.Time) map[time.Duration]int
		want string
	}{
		"every day at nine": {14, func(time.Time) map[time.Duration]int { return at(nine, 40) }, "09:00 40 of shop/web from 14 of 14 all"},
		"too few days":      {3, func(time.Time) map[time.Duration]int { return at(nine, 40) }, ""},
		"three days, and one on which that is tried": {4, func(time.Time) map[time.Duration]int { return at(nine, 40) }, "09:00 40 of shop/web from 4 of 4 all"},
		"on weekdays, but for one": {14, func(d time.Time) map[time.Duration]int {
			if d.Weekday()%6 == 0 || d.Day() == 8 {
				return nil
			}
			return at(nine, 40)
		}, "09:00 40 of shop/web from 9 of 10 weekday"},
		"on weekends": {21, func(d time.Time) map[time.Duration]int {
			if d.Weekday()%6 != 0 {
				return nil
			}
			return at(nine, 40)
		}, ""},
		"on Mondays": {28, func(d time.Time) map[time.Duration]int {
			if d.Weekday() != time.Monday {
				return nil
			}
			return at(nine, 40)
		}, "09:00 40 of shop/web from 4 of 4 Monday"},
		"one of fourteen days does not count": {14, func(d time.Time) map[time.Duration]int {
			if d.Day() == 1 {
				return at(nine, 400)
			}
			return at(nine, 40)
		}, "09:00 40 of shop/web from 14 of 14 all"},
		"five minutes later it is another time": {14, func(time.Time) map[time.Duration]int {
			return map[time.Duration]int{nine: 40, nine + 7*time.Minute: 5}
		}, "09:00 40 of shop/web from 14 of 14 all; 09:07 5 of shop/web from 14 of 14 all"},
		"a little before or after five past": {14, func(d time.Time) map[time.Duration]int {
			return at(nine+time.Duration(4+d.Day()%2)*time.Minute+30*time.Second, 40)
		}, "09:04 40 of shop/web from 7 of 14 all; 09:05 0 of shop/web from 7 of 14 all"},
	} {
		t.Run(name, func(t *testing.T) {
			h := remembered(tc.days, tc.came)
			h.See(monday)
			if got := h.at(monday.Add(nine)); got != tc.want {
				t.Errorf("expected is %q, want %q", got, tc.want)
			}
		})
	}
}

func TestOlderDaysCountLess(t *testing.T) {
	h := remembered(21, func(d time.Time) map[time.Duration]int {
		if d.Before(monday.AddDate(0, 0, -17)) { // a fifth of the days, and less than a tenth of the weight
			return map[time.Duration]int{9 * time.Hour: 40}
		}
		return map[time.Duration]int{9 * time.Hour: 10}
	})
	date, slot := dateOf(monday.Add(9 * time.Hour))
	if n := h.past(h.Classes[0], everyDay, date, slot, 1).quantilePods(0.9); n != 10 {
		t.Errorf("expected are %d", n)
	}
}

func TestPodsThatCameAreNotExpectedAgain(t *testing.T) {
	h := remembered(14, func(time.Time) map[time.Duration]int { return map[time.Duration]int{9 * time.Hour: 40} })
	nine := monday.Add(9 * time.Hour)
	for _, left := range []int{10, 0} {
		h.Add(nine, web, template, 30)
		if all := h.Expect(nine, nine, 0.9); all[0].Left != left {
			t.Errorf("%d are left, want %d", all[0].Left, left)
		}
	}
}

// Pods that always came in the third and fourth minute are expected until the end of the fourth.
func TestPodsAreExpectedInTheMinutesInWhichTheyCame(t *testing.T) {
	h := remembered(14, func(time.Time) map[time.Duration]int {
		return map[time.Duration]int{9*time.Hour + 2*time.Minute: 10, 9*time.Hour + 3*time.Minute: 10}
	})
	for now, want := range map[time.Duration]int{0: 20, 3*time.Minute + 59*time.Second: 20, 4 * time.Minute: 0} {
		at := monday.Add(9*time.Hour + now)
		if e := h.Expect(at, at, 0.9)[0]; e.Left != want || e.At.Minute() != 2 {
			t.Errorf("%v after nine %d are left that come at %v, want %d", now, e.Left, e.At, want)
		}
	}
}

// Three hours of a day in which nobody looked say nothing about the pods of these hours.
func TestTimesAtWhichNobodyLookedDoNotCount(t *testing.T) {
	h := remembered(14, func(d time.Time) map[time.Duration]int {
		if d.Before(monday.AddDate(0, 0, -7)) {
			return nil
		}
		return map[time.Duration]int{9 * time.Hour: 40}
	})
	if got := h.at(monday.Add(9 * time.Hour)); !strings.HasSuffix(got, "7 of 14 all") {
		t.Fatalf("expected is %q", got)
	}
	for _, d := range h.Days[:7] {
		for slot := 8 * 12; slot < 11*12; slot++ {
			d.Seen[slot/8] &^= 1 << (slot % 8)
		}
	}
	if got := h.at(monday.Add(9 * time.Hour)); !strings.HasSuffix(got, "7 of 7 all") {
		t.Errorf("expected is %q", got)
	}
}

func TestPodsThatComeByChanceAreNotExpected(t *testing.T) {
	for _, rate := range []float64{0.05, 0.3, 2, 10} { // in five minutes
		for seed := range uint64(5) {
			random := rand.New(rand.NewPCG(seed, 1))
			h := remembered(14, func(time.Time) map[time.Duration]int {
				out := map[time.Duration]int{}
				for at := 0.0; at < float64(slots); at += random.ExpFloat64() / rate {
					out[time.Duration(at)*Slot]++
				}
				return out
			})
			for at := monday; at.Before(monday.AddDate(0, 0, 1)); at = at.Add(Slot) {
				for _, e := range h.Expect(at, at, 0.9) {
					t.Fatalf("seed %d: at %v %d pods are expected from %v, of which %.2f come in five minutes", seed, at, e.Pods, e.Basis, rate)
				}
			}
		}
	}
}

func TestOnlyTheLargestClassesAreRemembered(t *testing.T) {
	h := &History{}
	h.See(monday)
	for n := range 100 {
		h.Add(monday, Workload{"shop", "Deployment", fmt.Sprint("app-", n)}, template, 1+n*37%100)
	}
	if len(h.Classes) != mostClasses {
		t.Fatalf("%d classes are remembered", len(h.Classes))
	}
	for _, c := range h.Classes {
		if c.weight(h.Days[0].Date) < 40 {
			t.Errorf("%v is remembered, of which %v pods came", c.Workload, c.weight(h.Days[0].Date))
		}
	}
	large := template.DeepCopy()
	large.Labels = map[string]string{"a": strings.Repeat("x", mostTemplate)}
	if h.Add(monday, web, large, 1000); h.class(web) != nil {
		t.Error("a class with a large template is remembered")
	}
	for slot := range slots {
		h.Add(monday.Add(time.Duration(slot)*Slot), web, template, 1000+slot)
	}
	if came := h.class(web).Came[h.Days[0].Date]; len(came) != mostSlots || came.at(slots-1) == 0 || came.at(3) != 0 {
		t.Errorf("%d times are remembered of one day", len(came))
	}
}

func TestWhatIsOldIsForgotten(t *testing.T) {
	h := remembered(3, func(time.Time) map[time.Duration]int { return map[time.Duration]int{time.Hour: 1} })
	if h.See(monday.AddDate(0, 0, mostDays-2)); len(h.Days) != 2 || len(h.Classes) != 1 {
		t.Errorf("%d days and %d classes are remembered", len(h.Days), len(h.Classes))
	}
	if h.See(monday.AddDate(0, 0, mostDays-1)); len(h.Days) != 2 || len(h.Classes) != 0 {
		t.Errorf("%d days and %d classes are remembered", len(h.Days), len(h.Classes))
	}
}

func TestAHistoryIsReadAsItWasWritten(t *testing.T) {
	h := remembered(14, func(d time.Time) map[time.Duration]int {
		return map[time.Duration]int{0: 1, 9 * time.Hour: 40, 23*time.Hour + 59*time.Minute: 40_000 + d.Day()}
	})
	text, err := json.Marshal(h)
	if err != nil {
		t.Fatal(err)
	}
	again := &History{}
	if err := json.Unmarshal(text, again); err != nil || !again.Valid() {
		t.Fatal(err)
	}
	second, _ := json.Marshal(again)
	if string(second) != string(text) || again.at(monday.Add(9*time.Hour)) != h.at(monday.Add(9*time.Hour)) {
		t.Errorf("%s is read as %s", text, second)
	}
}

func TestATornHistoryIsNotUsed(t *testing.T) {
	for _, text := range []string{`{"days":[null]}`, `{"days":[{"date":1,"seen":"AA=="}]}`, `{"classes":[null]}`, `{"classes":[{"template":{}}]}`} {
		h := &History{}
		if err := json.Unmarshal([]byte(text), h); err == nil && h.Valid() {
			t.Errorf("%s is used", text)
		}
	}
}

func FuzzCounts(f *testing.F) {
	f.Add(`"AAFsKA"`)
	f.Add(`"////"`)
	f.Fuzz(func(t *testing.T, text string) {
		var c counts
		if err := json.Unmarshal([]byte(text), &c); err != nil {
			return
		}
		for _, n := range c {
			if int(n.slot) >= slots {
				t.Fatalf("%q has the slot %d", text, n.slot)
			}
		}
	})
}

func TestLearningThatDoesNotPayRests(t *testing.T) {
	now := monday
	b := Balance{Unused: 10, Saved: 1}
	if b.Day(now) || b.Unused >= 10 || b.Saved >= 1 {
		t.Errorf("what pays goes on, and counts less the next day: %+v", b)
	}
	b = Balance{Unused: 10.1, Saved: 1}
	if !b.Day(now) || b.Off != now.Add(Rest) {
		t.Errorf("what does not pay rests: %+v", b)
	}
	if b.Day(now.Add(Rest - time.Hour)); b.Off.IsZero() {
		t.Error("it rests for a week")
	}
	b.Usual = 20
	if b.Day(now.Add(Rest)); b != (Balance{Usual: 18}) {
		t.Errorf("it begins anew: %+v", b)
	}
}

func TestRoomMayCostAPartOfADaysBill(t *testing.T) {
	for name, tc := range map[string]struct {
		today Spending
		usual float64
		spent bool
	}{
		"nothing is known":                         {},
		"as much as is allowed of yesterday":       {today: Spending{Unused: 1}, usual: 100},
		"more than is allowed of yesterday":        {today: Spending{Unused: 1.1}, usual: 100, spent: true},
		"room that saved a tenth of its price":     {today: Spending{Unused: 2, Saved: 0.1}, usual: 100},
		"room that saved less":                     {today: Spending{Unused: 2, Saved: 0.09}, usual: 100, spent: true},
		"room that saved much":                     {today: Spending{Unused: 2.5, Saved: 10}, usual: 100},
		"more than is allowed of any day":          {today: Spending{Unused: 2.6, Saved: 10}, usual: 100, spent: true},
		"today's bill is larger than yesterday's":  {today: Spending{Bill: 200, Unused: 2}, usual: 100},
		"today's bill is smaller than yesterday's": {today: Spending{Bill: 10, Unused: 1}, usual: 100},
	} {
		if b := (Balance{Today: tc.today, Usual: tc.usual}); b.Spent() != tc.spent {
			t.Errorf("%s: %v", name, b.Spent())
		}
	}
	b := Balance{Usual: 100, Today: Spending{Bill: 20, Unused: 4}}
	if b.Day(monday); b.Usual != 90 || b.Spent() || b.Today != (Spending{}) {
		t.Errorf("the next day begins with nothing spent, and with most of the larger bill: %+v", b)
	}
	if b.Keep(0.95); !b.Spent() || b.Unused == 0 {
		t.Errorf("room that is kept counts: %+v", b)
	}
	if b.Save(0.01); b.Spent() || b.Saved != 0.01 {
		t.Errorf("pods that need not wait count: %+v", b)
	}
}
