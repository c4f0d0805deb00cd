package provision

import (
	"testing"

	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/reason"
)

func TestWordsOfRefusals(t *testing.T) {
	const missing = `pool "gpu" is not ready`
	full := []reason.Count{{Code: reason.TooLarge, Key: "cpu", Pool: "default"}}
	for name, tc := range map[string]struct {
		refused engine.Refused
		want    string
	}{
		"who has no place hears of pools that are left out": {engine.Refused{Reasons: full}, `pool "default": not enough cpu; pool "gpu" is not ready`},
		"so does who is left out himself":                   {told(nil, reason.LeftAside, "a bug"), `a bug; pool "gpu" is not ready`},
		"whoever asks for nonsense does not":                {engine.Refused{Reasons: []reason.Count{{Code: reason.Invalid, Key: "port"}}}, "the pod's port"},
		"nor does who waits for the trial of a pool":        {told(nil, reason.OnTrial, "another one is tried first"), "another one is tried first"},
		"nor who has a place where nobody binds it":         {told(nil, reason.Spurned, "ask its scheduler"), "ask its scheduler"},
	} {
		t.Run(name, func(t *testing.T) {
			tc.refused.Pod = &cluster.Pod{UID: "a"}
			bound := engine.Refused{Pod: &cluster.Pod{UID: "b", NodeName: "n"}, Reasons: full}
			a := &answer{&engine.Plan{Refused: []engine.Refused{bound, tc.refused}}, missing}
			got := a.words()
			if len(got) != 1 || got[tc.refused.Pod.UID] != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
