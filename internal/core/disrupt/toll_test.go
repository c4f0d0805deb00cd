package disrupt

import (
	"math"
	"testing"
)

// TestTheFormulaOfTheToll has pods that cost a dollar an hour.
func TestTheFormulaOfTheToll(t *testing.T) {
	for name, tc := range map[string]struct {
		arrivals, moved float64
		first           float64 // the distance at the first look
		distance        float64
		want            float64
		steady          float64
	}{
		"near its target in a restless cluster":               {0.02, 0, 0, 0, 1, 0},
		"more arrivals make no difference":                    {0.5, 0, 0, 0, 1, 0},
		"half as many halve it":                               {0.01, 0, 0, 0, 0.5, 0},
		"none in a cluster that stands still":                 {0, 0, 0, 0, 0, 0},
		"as far off as the slack":                             {0.02, 0, 0.06, 0.06, 1, 0},
		"half as far again":                                   {0.02, 0, 0.09, 0.09, 0.5, 0},
		"twice as far":                                        {0.02, 0, 0.12, 0.12, 0, 0},
		"nearer than its target, by mistake":                  {0.02, 0, 0, -1, 1, 0},
		"moves are hardly felt at half of what may be moved":  {0, 0.15, 0, 0, 0.25, 0},
		"and end nearly every move at twice that":             {0, 0.6, 0, 0, 4, 0},
		"recovering, 5 % off, with a smaller slack":           {0.02, 0, 0.13, 0.05, 0.75, 0},
		"recovering, what was moved on the way is forgiven":   {0, 0.6, 0.13, 0.04, 1, 0},
		"far off, moves do not count for more than at target": {0, 0.6, 0.11, 0.11, 4 * (2 - 0.11/0.06), 0},
		"two in five pods come in an hour, however far off":   {0.4, 0, 0.5, 0.5, 1.6, 0.4},
		"all of them do, and a half empty node may go":        {1, 0, 0.5, 0.5, 2, 1},
		"a tenth of them does":                                {0.1, 0, 0.5, 0.5, 0.4, 0.1},
		"a tenth of them does, and the target is near":        {0.1, 0, 0, 0, 1, 0.1},
	} {
		t.Run(name, func(t *testing.T) {
			c := toll{settings: DefaultSettings(), perPod: 1, rates: rates{tc.arrivals, tc.steady, tc.moved}}
			c.updateRecovering(tc.first)
			if got := c.at(tc.distance); math.Abs(got-tc.want) > 1e-9 {
				t.Errorf("toll = %v, want %v", got, tc.want)
			}
		})
	}
}

func TestAFleetRecoversUntilItIsNear(t *testing.T) {
	c := toll{settings: DefaultSettings()}
	for _, step := range []struct {
		distance float64
		want     bool
	}{{0.11, false}, {0.121, true}, {0.05, true}, {0.0401, true}, {0.0399, false}, {0.11, false}} {
		if c.updateRecovering(step.distance); c.recovering != step.want {
			t.Errorf("at %v: recovering %v, want %v", step.distance, c.recovering, step.want)
		}
	}
}

// TestSettingsThatWouldBeNoNumber asks for a toll with nothing set, and with what cannot be meant.
func TestSettingsThatWouldBeNoNumber(t *testing.T) {
	for name, s := range map[string]Settings{
		"nothing is set": {Toll: 1}, "less than nothing": {Toll: 1, ArrivalsPerHour: -1, MovedPerDay: -1, SlackOfPrice: -1, Trials: -1},
		"no number": {Toll: 1, ArrivalsPerHour: math.NaN(), MovedPerDay: math.NaN(), SlackOfPrice: math.NaN()},
	} {
		t.Run(name, func(t *testing.T) {
			whole := s.complete()
			want := DefaultSettings()
			want.MinSaving, want.HoursPerMove, want.RestartSaving = 0, 0, 0 // are numbers
			if whole != want {
				t.Errorf("%+v, want %+v", whole, want)
			}
			if got := (&toll{settings: whole, perPod: 1}).at(0); got != 0 {
				t.Errorf("toll %v, want none where nobody comes and nothing was moved", got)
			}
		})
	}
	if set := (Settings{Toll: 2, ArrivalsPerHour: 3, MovedPerDay: 4, SlackOfPrice: 5, Trials: 6, MinSaving: 7, HoursPerMove: 8}); set.complete() != set {
		t.Errorf("%+v became %+v", set, set.complete())
	}
}
