package reason

import (
	"encoding/json"
	"testing"
)

func TestRender(t *testing.T) {
	for name, tc := range map[string]struct {
		why  []Count
		want string
	}{
		"nothing is known":               {nil, "no reason is known"},
		"what is wrong with the pod":     {[]Count{{Code: VolumeInvalid, Key: "data", Detail: "does not exist"}}, "volume claim data does not exist"},
		"existing nodes are added up":    {[]Count{{Code: Taint, Candidates: 2}, {Code: TooLarge, Key: "cpu", Candidates: 1}}, "3 existing nodes: 2 have a taint that is not tolerated, 1 not enough cpu"},
		"pools come last, by name":       {[]Count{{Code: Limit, Key: "cpu", Pool: "b"}, {Code: TooLarge, Key: "memory", Pool: "a", Candidates: 4}}, `pool "a": 4 types not enough memory; pool "b": the limit cpu of the pool is reached`},
		"one has, several have":          {[]Count{{Code: LabelMismatch, Key: "zone", Pool: "a", Candidates: 1}, {Code: LabelMismatch, Key: "zone", Pool: "b", Candidates: 2}}, `pool "a": 1 type does not match the required label zone; pool "b": 2 types do not match the required label zone`},
		"no number before a whole":       {[]Count{{Code: NoShape, Pool: "a", Candidates: 9}}, `pool "a": no instance type meets all constraints at once`},
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

// Whoever reads JSON knows codes by their names: their numbers change with each new one.
func TestAnExplanationIsWrittenInWords(t *testing.T) {
	got, err := json.Marshal(Explanation{{Code: Taint, Key: "team", Pool: "p", Candidates: 3}, {Code: NoPools}})
	if err != nil {
		t.Fatal(err)
	}
	if want := `[{"code":"TaintNotTolerated","key":"team","pool":"p","candidates":3},{"code":"NoPools"}]`; string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
