package main

import (
	"slices"
	"testing"

	"karpenter.sh/karpenter/bench/peer/day"
	"karpenter.sh/karpenter/bench/peer/endtoend"
)

// A run that nobody gave a wish has to end within half an hour, so it has the ends and the middle of each list; a full one has everything.
func TestWhatIsMeasured(t *testing.T) {
	names := func(w wish) (out []string) {
		for _, r := range rows() {
			if w.wants(r.name, r.large) {
				out = append(out, r.name)
			}
		}
		for _, s := range endtoend.Scenarios() {
			if w.wants(s.Name, s.Large) {
				out = append(out, s.Name)
			}
		}
		for _, c := range day.Calms() {
			if w.wants("day "+c.Name, c.Large) {
				out = append(out, "day "+c.Name)
			}
		}
		return out
	}
	usual, full := names(wish{}), names(wish{full: true})
	for name, always := range map[string]bool{
		"diverse 100": true, "diverse 500": true, "diverse 1000": false, "diverse 2000": false, "diverse 5000": true, "diverse 20000": false,
		"few3, spot": true, "few5, spot": false, "few2skew, on-demand, up to 64 vCPU": true,
		"1,000 pods of one shape": true, "500 + 500 pods: 65 % fewer": true, "500 + 500 pods: 30 % fewer": false,
		"day 0s": true, "day 30m": false, "day Never": true,
	} {
		if got := slices.Contains(usual, name); got != always {
			t.Errorf("%q is measured by default: %v, want %v", name, got, always)
		}
		if !slices.Contains(full, name) {
			t.Errorf("%q is not part of a full run", name)
		}
	}
}
