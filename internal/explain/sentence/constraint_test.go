package sentence

import (
	"slices"
	"testing"

	"karpenter.sh/karpenter/internal/core/reason"
)

func TestExplanation(t *testing.T) {
	for name, tc := range map[string]struct {
		why  []reason.Count
		want string
	}{
		"nothing is known":               {nil, "no reason is known"},
		"what is wrong with the pod":     {[]reason.Count{{Code: reason.VolumeInvalid, Key: "data", Flaw: reason.Missing}}, "volume claim data does not exist"},
		"a flaw has a name":              {[]reason.Count{{Code: reason.VolumeInvalid, Key: "data", Flaw: reason.InUseByAnother, Detail: "web-1"}}, "volume claim data may be used by one pod at a time, and that is web-1"},
		"a flaw of the pod":              {[]reason.Count{{Code: reason.Invalid, Flaw: reason.SelectorValue, Detail: "team"}}, "the pod's node selector wants a value of label team that no label can have"},
		"a flaw with two names":          {[]reason.Count{{Code: reason.Invalid, Flaw: reason.Operator, Key: "zone", Detail: "In"}}, "the pod's zone operator In does not go with its values"},
		"names are not read":             {[]reason.Count{{Code: reason.VolumeInvalid, Key: "a%", Flaw: reason.ClassMissing, Detail: "%"}}, "volume claim a% names storage class %, which does not exist"},
		"one requirement":                {[]reason.Count{{Code: reason.NoTypes, Key: "zone", Pool: "a"}}, `pool "a": the pool's requirements leave no instance type (zone)`},
		"two requirements together":      {[]reason.Count{{Code: reason.NoTypes, Key: "arch", Detail: "zone", Pool: "a"}}, `pool "a": the pool's requirements leave no instance type (arch and zone)`},
		"a flaw of a resource claim":     {[]reason.Count{{Code: reason.DeviceInvalid, Key: "gpu", Flaw: reason.DeviceClassMissing, Detail: "other"}}, `resource claim gpu names device class "other", which does not exist`},
		"of one without a name":          {[]reason.Count{{Code: reason.DeviceInvalid, Flaw: reason.NotListed}}, "resource claim is used by a container and not listed by the pod"},
		"existing nodes are added up":    {[]reason.Count{{Code: reason.Taint, Candidates: 2}, {Code: reason.TooLarge, Key: "cpu", Candidates: 1}}, "3 existing nodes: 2 have a taint that is not tolerated, 1 not enough cpu"},
		"what is assumed":                {[]reason.Count{{Code: reason.TooLarge, Key: "assumed-cpu", Pool: "a", Candidates: 2}}, `pool "a": 2 types not enough cpu, where a container without a request counts as 100m`},
		"pools come last, by name":       {[]reason.Count{{Code: reason.Limit, Key: "cpu", Pool: "b"}, {Code: reason.TooLarge, Key: "memory", Pool: "a", Candidates: 4}}, `pool "a": 4 types not enough memory; pool "b": the limit cpu of the pool is reached`},
		"one has, several have":          {[]reason.Count{{Code: reason.LabelMismatch, Key: "zone", Pool: "a", Candidates: 1}, {Code: reason.LabelMismatch, Key: "zone", Pool: "b", Candidates: 2}}, `pool "a": 1 type does not match the required label zone; pool "b": 2 types do not match the required label zone`},
		"an older name of a label":       {[]reason.Count{{Code: reason.LabelUnknown, Key: "karpenter.sh/provisioner-name", Pool: "a"}}, `pool "a": label karpenter.sh/provisioner-name is not defined by the pool and not well-known; its name today is karpenter.sh/nodepool, or a pool stands in by the annotation compatibility.karpenter.sh/provisioner-name`},
		"no number before a whole":       {[]reason.Count{{Code: reason.NoShape, Pool: "a", Candidates: 9}}, `pool "a": no instance type meets all constraints at once`},
		"a code without key still reads": {[]reason.Count{{Code: reason.Limit, Pool: "a"}}, `pool "a": the limit of the pool is reached`},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Explanation(tc.why); got != tc.want {
				t.Errorf("got  %q\nwant %q", got, tc.want)
			}
		})
	}
}

func TestEveryCodeOfAConstraintHasWords(t *testing.T) {
	for f := reason.NoFlaw + 1; f.Name() != ""; f++ {
		if flaws[f] == "" {
			t.Errorf("%s has no words", f.Name())
		}
	}
	inDetail := []reason.Code{reason.LeftAside, reason.OnTrial, reason.Spurned}
	for c := reason.Code(1); c.Name() != "Unknown"; c++ {
		if (constraints[c] == "") != slices.Contains(inDetail, c) {
			t.Errorf("%s: %q", c.Name(), constraints[c])
		}
		if got := Explanation([]reason.Count{{Code: c, Detail: "so it is"}}); got == "so it is" != slices.Contains(inDetail, c) {
			t.Errorf("%s: %q", c.Name(), got)
		}
	}
}
