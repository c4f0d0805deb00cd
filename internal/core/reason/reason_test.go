package reason

import "testing"

func TestRender(t *testing.T) {
	for name, tc := range map[string]struct {
		why  []Count
		want string
	}{
		"nothing is known":               {nil, "no reason is known"},
		"what is wrong with the pod":     {[]Count{{Code: VolumeInvalid, Key: "data", Detail: "does not exist"}}, "volume claim data does not exist"},
		"existing nodes are added up":    {[]Count{{Code: Taint, Candidates: 2}, {Code: TooLarge, Key: "cpu", Candidates: 1}}, "3 existing nodes: 2 has a taint that is not tolerated, 1 not enough cpu"},
		"pools come last, by name":       {[]Count{{Code: Limit, Key: "cpu", Pool: "b"}, {Code: TooLarge, Key: "memory", Pool: "a", Candidates: 4}}, `pool "a": 4 types not enough memory; pool "b": the limit cpu of the pool is reached`},
		"a code without key still reads": {[]Count{{Code: Limit, Pool: "a"}}, `pool "a": the limit of the pool is reached`},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Render(tc.why); got != tc.want {
				t.Errorf("got  %q\nwant %q", got, tc.want)
			}
		})
	}
}

func TestEveryCodeHasANameAndAPhrase(t *testing.T) {
	for c := Code(1); c < numCodes; c++ {
		if c.Name() == "" || phrases[c] == "" {
			t.Errorf("code %d: name %q, phrase %q", c, c.Name(), phrases[c])
		}
	}
}
