package budget

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
)

// noon is a Wednesday, in a zone that is not UTC, so that a mix-up of zones shows.
var noon = time.Date(2026, 7, 15, 14, 0, 0, 0, time.FixedZone("two hours east", 2*60*60))

func scheduled(nodes, schedule string, window time.Duration, reasons ...v1.DisruptionReason) v1.Budget {
	b := v1.Budget{Nodes: nodes, Schedule: &schedule, Duration: &metav1.Duration{Duration: window}}
	if len(reasons) > 0 {
		b.Reasons = reasons
	}
	return b
}

func TestAllowed(t *testing.T) {
	always := func(nodes string, reasons ...v1.DisruptionReason) v1.Budget {
		return v1.Budget{Nodes: nodes, Reasons: reasons}
	}
	for name, tc := range map[string]struct {
		budgets []v1.Budget
		reason  v1.DisruptionReason
		nodes   int
		want    int
		fails   bool
	}{
		"no budgets allow everything":                             {nil, v1.DisruptionReasonEmpty, 10, Unlimited, false},
		"ten percent of ten is one":                               {[]v1.Budget{always("10%")}, v1.DisruptionReasonEmpty, 10, 1, false},
		"ten percent of one rounds up to one":                     {[]v1.Budget{always("10%")}, v1.DisruptionReasonEmpty, 1, 1, false},
		"twenty percent of 19 rounds up to four":                  {[]v1.Budget{always("20%")}, v1.DisruptionReasonEmpty, 19, 4, false},
		"all of ten":                                              {[]v1.Budget{always("100%")}, v1.DisruptionReasonEmpty, 10, 10, false},
		"none":                                                    {[]v1.Budget{always("0")}, v1.DisruptionReasonEmpty, 10, 0, false},
		"none in percent":                                         {[]v1.Budget{always("0%")}, v1.DisruptionReasonEmpty, 10, 0, false},
		"a number is taken as it is":                              {[]v1.Budget{always("3")}, v1.DisruptionReasonEmpty, 10, 3, false},
		"the strictest wins":                                      {[]v1.Budget{always("5"), always("1")}, v1.DisruptionReasonEmpty, 19, 1, false},
		"a budget for another reason is not asked":                {[]v1.Budget{always("4", v1.DisruptionReasonDrifted), always("10")}, v1.DisruptionReasonEmpty, 100, 10, false},
		"a budget for this reason is":                             {[]v1.Budget{always("4", v1.DisruptionReasonDrifted), always("10")}, v1.DisruptionReasonDrifted, 100, 4, false},
		"an empty list of reasons matches none":                   {[]v1.Budget{{Nodes: "0", Reasons: []v1.DisruptionReason{}}}, v1.DisruptionReasonEmpty, 10, Unlimited, false},
		"a schedule that fires now is active":                     {[]v1.Budget{scheduled("0", "0 12 * * *", time.Hour)}, v1.DisruptionReasonEmpty, 10, 0, false},
		"schedules are in UTC":                                    {[]v1.Budget{scheduled("0", "0 14 * * *", time.Hour)}, v1.DisruptionReasonEmpty, 10, Unlimited, false},
		"in the middle of its window it is active":                {[]v1.Budget{scheduled("0", "30 11 * * *", time.Hour)}, v1.DisruptionReasonEmpty, 10, 0, false},
		"when the window is over it is not":                       {[]v1.Budget{scheduled("0", "0 11 * * *", time.Hour)}, v1.DisruptionReasonEmpty, 10, Unlimited, false},
		"windows longer than the recurrence never end":            {[]v1.Budget{scheduled("2", "@hourly", 90*time.Minute)}, v1.DisruptionReasonEmpty, 10, 2, false},
		"macros are read":                                         {[]v1.Budget{scheduled("2", "@daily", 13*time.Hour)}, v1.DisruptionReasonEmpty, 10, 2, false},
		"a schedule that never fires is never active":             {[]v1.Budget{scheduled("0", "0 0 31 2 *", time.Hour)}, v1.DisruptionReasonEmpty, 10, Unlimited, false},
		"a bad schedule allows nothing":                           {[]v1.Budget{scheduled("5", "@wrongly", time.Hour)}, v1.DisruptionReasonEmpty, 10, 0, true},
		"a bad budget for another reason allows nothing either":   {[]v1.Budget{scheduled("5", "@wrongly", time.Hour, v1.DisruptionReasonDrifted)}, v1.DisruptionReasonEmpty, 10, 0, true},
		"a bad number allows nothing":                             {[]v1.Budget{always("many")}, v1.DisruptionReasonEmpty, 10, 0, true},
		"the number of an inactive budget is not read":            {[]v1.Budget{scheduled("many", "0 3 * * *", time.Hour)}, v1.DisruptionReasonEmpty, 10, Unlimited, false},
		"more than a hundred percent allows nothing":              {[]v1.Budget{always("101%")}, v1.DisruptionReasonEmpty, 10, 0, true},
		"a schedule without a duration allows nothing":            {[]v1.Budget{{Nodes: "1", Schedule: new("@daily")}}, v1.DisruptionReasonEmpty, 10, 0, true},
		"a number that is larger than any pool is still a number": {[]v1.Budget{always("4000000000")}, v1.DisruptionReasonEmpty, 10, Unlimited, false},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Allowed(tc.budgets, tc.reason, tc.nodes, noon)
			if got != tc.want || (err != nil) != tc.fails {
				t.Errorf("Allowed = %d, %v; want %d, error %v", got, err, tc.want, tc.fails)
			}
		})
	}
}

// at is a time in UTC of a week that begins on Monday, 13 July 2026.
func at(t *testing.T, text string) time.Time {
	t.Helper()
	now, err := time.Parse(time.DateTime, text)
	if err != nil {
		t.Fatal(err)
	}
	return now
}

func TestActive(t *testing.T) {
	for name, tc := range map[string]struct {
		schedule string
		window   time.Duration
		now      string
		want     bool
	}{
		"a second before its window it is not active":   {"0 9 * * *", time.Hour, "2026-07-15 08:59:59", false},
		"it is from the first second on":                {"0 9 * * *", time.Hour, "2026-07-15 09:00:00", true},
		"and up to the last":                            {"0 9 * * *", time.Hour, "2026-07-15 09:59:59", true},
		"but not a second longer":                       {"0 9 * * *", time.Hour, "2026-07-15 10:00:00", false},
		"names of days make a range":                    {"0 9 * * MON-FRI", time.Hour, "2026-07-17 09:30:00", true},
		"that ends with its last day":                   {"0 9 * * MON-FRI", time.Hour, "2026-07-18 09:30:00", false},
		"names of months too, in any case":              {"0 9 * jul *", time.Hour, "2026-07-15 09:30:00", true},
		"of other months not":                           {"0 9 * aug *", time.Hour, "2026-07-15 09:30:00", false},
		"a range of hours fires in each":                {"0 9-17 * * 1-5", 30 * time.Minute, "2026-07-15 17:10:00", true},
		"and in none after it":                          {"0 9-17 * * 1-5", 30 * time.Minute, "2026-07-15 18:10:00", false},
		"nor in the other half of an hour":              {"0 9-17 * * 1-5", 30 * time.Minute, "2026-07-15 12:40:00", false},
		"a list of hours fires in those":                {"0 9,13,17 * * *", time.Hour, "2026-07-15 13:00:00", true},
		"and not between them":                          {"0 9,13,17 * * *", time.Hour, "2026-07-15 12:00:00", false},
		"all week but for Sunday night: Sunday evening": {"0 4 * * mon", 162 * time.Hour, "2026-07-19 21:59:59", true},
		"all week but for Sunday night: Sunday night":   {"0 4 * * mon", 162 * time.Hour, "2026-07-19 22:00:00", false},
		"all week but for Sunday night: its last hour":  {"0 4 * * mon", 162 * time.Hour, "2026-07-20 03:59:59", false},
		"all week but for Sunday night: Monday":         {"0 4 * * mon", 162 * time.Hour, "2026-07-20 04:00:00", true},
	} {
		t.Run(name, func(t *testing.T) {
			b := scheduled("0", tc.schedule, tc.window)
			if got, err := active(&b, at(t, tc.now)); got != tc.want || err != nil {
				t.Errorf("active = %v, %v; want %v", got, err, tc.want)
			}
		})
	}
}

func FuzzAllowed(f *testing.F) {
	f.Add("10%", "0 3 * * 1-5", int64(time.Hour), 12)
	f.Add("-1", "@yearly", int64(-5), -3)
	f.Fuzz(func(t *testing.T, nodes, schedule string, window int64, count int) {
		got, err := Allowed([]v1.Budget{scheduled(nodes, schedule, time.Duration(window))}, v1.DisruptionReasonEmpty, count, noon)
		if err != nil && got != 0 {
			t.Errorf("Allowed = %d with error %v, want 0", got, err)
		}
	})
}
