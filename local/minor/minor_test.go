package minor

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestEveryMinorHasAListOfModules(t *testing.T) {
	files, err := filepath.Glob("*.mod")
	if err != nil {
		t.Fatal(err)
	}
	var have []string
	for _, f := range files {
		have = append(have, strings.TrimSuffix(f, ".mod"))
	}
	if diff := cmp.Diff(others, have); diff != "" {
		t.Errorf("minors, and those with a list:\n%s", diff)
	}
}

func TestMinor(t *testing.T) {
	for version, want := range map[string]string{"v1.34.4": "1.34", "1.34": "1.34", "v1.37.0-rc.1": "1.37", "1": "1"} {
		if got := Minor(version); got != want {
			t.Errorf("Minor(%q) = %q, want %q", version, got, want)
		}
	}
}

func TestChoose(t *testing.T) {
	fresh, ran := State{New: true}, func(minor string) State { return State{Minor: minor} }
	for name, tc := range map[string]struct {
		asked string
		state State
		want  string
		err   string
	}{
		"a new cluster runs this executable's":         {"", fresh, "", ""},
		"a new cluster runs what is asked for":         {"1.34", fresh, "1.34", ""},
		"this executable's may be named":               {"1.36", fresh, "", ""},
		"a cluster keeps what it ran":                  {"", ran("1.34"), "1.34", ""},
		"a cluster is upgraded":                        {"1.35", ran("1.34"), "1.35", ""},
		"a cluster is upgraded to this executable's":   {"1.36", ran("1.34"), "", ""},
		"a cluster is upgraded from this executable's": {"1.37", ran(""), "1.37", ""},
		"no way back":                                      {"1.33", ran("1.34"), "", "1.34, and 1.33 cannot read"},
		"no way back from this executable's":               {"1.35", ran(""), "", "1.36, and 1.35 cannot read"},
		"no way back to this executable's":                 {"1.36", ran("1.37"), "", "1.37, and 1.36 cannot read"},
		"an unknown minor is told which there are":         {"1.30", fresh, "", "choose one of 1.33, 1.34, 1.35, 1.36, 1.37"},
		"a patch is no minor, and is told which there are": {"1.34.4", fresh, "", "choose one of 1.33, 1.34, 1.35, 1.36, 1.37"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := choose(tc.asked, "1.36", []string{"1.33", "1.34", "1.35", "1.37"}, tc.state)
			if got != tc.want || (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("choose = %q, %v; want %q, %q", got, err, tc.want, tc.err)
			}
		})
	}
}

func TestThereIsMoreThanThisExecutables(t *testing.T) {
	for _, minor := range others {
		if got, err := Choose(minor, "1.36", State{New: true}); got != minor || err != nil {
			t.Errorf("Choose = %q, %v, want %q", got, err, minor)
		}
	}
}

func TestAnExecutableThatIsMissingSaysHowItIsBuilt(t *testing.T) {
	if _, err := Find("1.34"); err == nil || !strings.Contains(err.Error(), "make up KUBERNETES=1.34") {
		t.Errorf("Find = %v", err)
	}
	if _, err := Find(""); err == nil || !strings.Contains(err.Error(), "holds no Kubernetes") {
		t.Errorf("Find = %v for a test that links none", err)
	}
}
