package reason

import (
	"encoding/json"
	"testing"
)

func TestEveryCodeHasAName(t *testing.T) {
	for c := Code(1); c < numCodes; c++ {
		if c.Name() == "" {
			t.Errorf("code %d has none", c)
		}
	}
}

func TestEveryFlawHasAName(t *testing.T) {
	for f := NoFlaw + 1; f < numFlaws; f++ {
		if f.Name() == "" {
			t.Errorf("flaw %d has none", f)
		}
	}
}

// Whoever reads JSON knows codes by their names: their numbers change with each new one.
func TestAnExplanationIsWrittenInWords(t *testing.T) {
	got, err := json.Marshal(Explanation{{Code: Taint, Key: "team", Pool: "p", Candidates: 3}, {Code: NoPools}, {Code: VolumeInvalid, Key: "data", Flaw: Lost}})
	if err != nil {
		t.Fatal(err)
	}
	if want := `[{"code":"TaintNotTolerated","key":"team","pool":"p","candidates":3},{"code":"NoPools"},{"code":"VolumeInvalid","key":"data","flaw":"Lost"}]`; string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
