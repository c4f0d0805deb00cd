package provision

import (
	"testing"

	"karpenter.sh/karpenter/internal/core/reason"
)

func TestFirstReason(t *testing.T) {
	for name, tc := range map[string]struct {
		why  []reason.Count
		want string
	}{
		"nothing is known":                    {nil, ""},
		"a pool goes before nodes":            {[]reason.Count{{Code: reason.Taint, Candidates: 2}, {Code: reason.LabelMismatch, Pool: "a", Candidates: 9}}, "LabelMismatch"},
		"the pod itself goes before nodes":    {[]reason.Count{{Code: reason.Taint, Candidates: 2}, {Code: reason.NoPools}}, "NoPools"},
		"nodes, where there is nothing else":  {[]reason.Count{{Code: reason.TooLarge, Key: "cpu", Candidates: 2}}, "DoesNotFit"},
		"a limit goes before what is too big": {[]reason.Count{{Code: reason.TooLarge, Pool: "a", Candidates: 2}, {Code: reason.Limit, Pool: "b"}}, "PoolLimit"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := firstReason(tc.why); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}
