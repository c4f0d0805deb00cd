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
