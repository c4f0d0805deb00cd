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
