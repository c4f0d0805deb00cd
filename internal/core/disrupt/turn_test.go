package disrupt

import (
	"testing"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
)

// TestWhatWaitsForItsTurnPaysTheFullToll has a fleet that is far from its target, where moves cost next to nothing: but only of steps that begin at once.
func TestWhatWaitsForItsTurnPaysTheFullToll(t *testing.T) {
	for name, tc := range map[string]struct {
		waiting int
		part    float64 // of the full toll that the step brings in
		want    bool
	}{
		"it begins at once":                {0, 0.5, true},
		"it waits":                         {2, 0.5, false},
		"it waits, and is worth its moves": {2, 1.01, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(shape("m", 4, 16, 0.2, 0.1)).pool("default", func(p *v1.NodePool) { p.Spec.Disruption.Budgets = []v1.Budget{{Nodes: "2"}} })
			for _, node := range []string{"a", "b", "c"} {
				f.node(node, "default", "m", v1.CapacityTypeOnDemand).pods(node, "web", 4, "100m", "1Gi")
			}
			w := f.world()
			w.Promised, w.Ahead = map[string]int{"default": tc.waiting}, true
			s := surveyOf(w).search()
			settings := DefaultSettings()
			c := &choice{
				survey: s.survey, whatIf: s.whatIf, search: s, goal: target{before: 1000, after: 1}, gone: map[string]bool{}, promised: map[string]bool{},
				toll: toll{settings: settings, perPod: 1, rates: rates{arrivals: settings.ArrivalsPerHour}},
			}
			step := &Step{Reason: v1.DisruptionReasonUnderutilized, Remove: s.survey.candidates()[:1]}
			step.Own = cloud.NanoUSD(tc.part*c.toll.at(0)*step.moves()*1e9) - step.Saves()
			if got := c.take(step); got != tc.want {
				t.Errorf("taken: %t, want %t; it brings in $%.3f, and the full toll is $%.3f", got, tc.want, step.Gains().Dollars(), c.toll.at(0)*step.moves())
			}
		})
	}
}
