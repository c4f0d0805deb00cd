package features

import (
	"os"
	"strings"
	"testing"
	"testing/fstest"
)

const root = "../../../"

// The page itself is compared by "make gen-check"; this fails where somebody renames a test or a heading.
func TestEveryTestAndEveryPageIsThere(t *testing.T) {
	all, err := All()
	if err != nil {
		t.Fatal(err)
	}
	if err := Check(os.DirFS(root), all); err != nil {
		t.Error(err)
	}
	rows := 0
	for _, s := range all {
		rows += len(s.Rows)
	}
	if rows < 400 {
		t.Errorf("the list has %d rows", rows)
	}
}

func TestWhatIsGoneIsSaid(t *testing.T) {
	tree := fstest.MapFS{
		"internal/budget/budget_test.go": {Data: []byte("package budget\n\nfunc TestAllowed(t *testing.T) {}\n")},
		"scenarios/solve/fit.txtar":      {},
		"docs/nodepools.md":              {Data: []byte("# NodePools\n\n## What a pool's `weight` is\n")},
		"charts/karpenter/README.md":     {Data: []byte("# Values\n")},
	}
	for name, tc := range map[string]struct {
		row  string
		want string // of the error; "" for none
	}{
		"all that it names is there":               {"A1 | x | | internal/budget.TestAllowed scenarios/solve/fit.txtar | nodepools.md#what-a-pools-weight-is ../charts/karpenter/README.md", ""},
		"a test alone is enough":                   {"A1 | x | `gate`, off | internal/budget.TestAllowed |", ""},
		"a page alone is enough":                   {"A1 | x | | | nodepools.md", ""},
		"a test that was renamed":                  {"A1 | x | | internal/budget.TestAllow |", "A1: there is no TestAllow in internal/budget"},
		"a folder that is gone":                    {"A1 | x | | internal/budgets.TestAllowed |", "A1: there is no TestAllowed in internal/budgets"},
		"a test without its folder":                {"A1 | x | | TestAllowed |", "A1: there is no TestAllowed in "},
		"a scenario that is gone":                  {"A1 | x | | scenarios/solve/fits.txtar |", "A1: open scenarios/solve/fits.txtar"},
		"a heading that was renamed":               {"A1 | x | | | nodepools.md#weights", "A1: docs/nodepools.md has no section #weights"},
		"a page that is gone":                      {"A1 | x | | | nodepool.md", "A1: open docs/nodepool.md"},
		"a row that nothing holds":                 {"A1 | x | | |", "A1 names neither a test nor a page"},
		"a row with a cell too few":                {"A1 | x | internal/budget.TestAllowed |", "has 4 cells"},
		"two rows of one name":                     {"A1 | x | | | nodepools.md\nA1 | y | | | nodepools.md", "A1 is there twice"},
		"all that is wrong is told, not the first": {"A1 | x | | internal/budget.TestNo | no.md", "no.md"},
	} {
		all, err := parse("## Section\n" + tc.row + "\n")
		if err == nil {
			err = Check(tree, all)
		}
		switch {
		case tc.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
	if _, err := parse("A1 | x | | | nodepools.md\n"); err == nil {
		t.Error("a row before the first section is taken")
	}
}
