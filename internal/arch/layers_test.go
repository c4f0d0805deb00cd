package arch

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// A layer is a set of districts. A package may import packages of its own district and of lower layers. Districts of one layer do not
// import each other.
type layer []string

// layers lists all districts, the highest layer first.
var layers = []layer{
	{"cmd", "local"},
	{"internal/operator"},
	{"internal/testing"},
	{"internal/ui"},
	{"internal/control"},
	{"internal/aws", "internal/compat", "internal/history", "internal/scenario"},
	{"internal/explain"},
	{"internal/observe"},
	{"internal/core"},
	{"internal/cluster"},
	{"internal/kit"},
	{"cloud"},
	{"api"},
}

// mostDistricts is how many folders internal may have.
const mostDistricts = 14

// place returns the district of a folder and its layer; ok is false for folders outside of the table (tests, tools and benchmarks).
func place(folder string) (district string, depth int, ok bool) {
	for depth, l := range layers {
		for _, district := range l {
			if covers(district+"/...", folder) {
				return district, depth, true
			}
		}
	}
	return "", 0, false
}

// wrongArrow explains why one folder must not import another; it returns "" if it may.
func wrongArrow(importer, imported string) string {
	from, high, known := place(importer)
	to, low, ours := place(imported)
	switch {
	case !known || !ours || from == to:
		return ""
	case to == "internal/testing" && from != "cmd" && from != "local":
		return "internal/testing holds models and simulators; only tests, cmd and local use it"
	case high == low:
		return from + " and " + to + " are in one layer, and districts of one layer do not import each other"
	case high > low:
		return "imports point down the table of layers, and " + to + " is above " + from
	default:
		return ""
	}
}

func TestImportsPointDown(t *testing.T) {
	for _, s := range sources(t) {
		for _, imported := range s.imports() {
			if why := wrongArrow(s.folder, imported); why != "" {
				t.Errorf("%s imports %s: %s", s.path, imported, why)
			}
		}
	}
}

func TestEveryPackageIsInADistrict(t *testing.T) {
	for _, s := range sources(t) {
		if _, _, ok := place(s.folder); !ok && covers("internal/...", s.folder) && s.folder != "internal/arch" {
			t.Errorf("%s is in no district: move it into a folder that layers in internal/arch names", s.path)
		}
	}
	entries, err := os.ReadDir(filepath.Join("..", "..", "internal"))
	if err != nil {
		t.Fatal(err)
	}
	folders := slices.DeleteFunc(entries, func(e os.DirEntry) bool { return !e.IsDir() })
	if len(folders) > mostDistricts {
		t.Errorf("internal has %d folders, at most %d: put the new package into one of the districts", len(folders), mostDistricts)
	}
}

func TestWrongArrow(t *testing.T) {
	for name, tc := range map[string]struct {
		importer, imported string
		wrong              bool
	}{
		"a loop may import the core":                     {"internal/control/drain", "internal/core/evict", false},
		"the core may not import a loop":                 {"internal/core/evict", "internal/control/drain", true},
		"two districts of one layer stay apart":          {"internal/aws/fleet", "internal/compat/legacy", true},
		"packages of one district may import each other": {"internal/aws/fleet", "internal/aws/offer", false},
		"the operator may not import a model":            {"internal/operator", "internal/testing/sim", true},
		"the local cluster runs the model of AWS":        {"local/awshost", "internal/testing/awsmodel", false},
		"tools are outside of the table":                 {"tools/crdgen", "internal/aws/policy", false},
		"other modules are outside of the table":         {"internal/core/evict", "k8s.io/api/core/v1", false},
	} {
		t.Run(name, func(t *testing.T) {
			if why := wrongArrow(tc.importer, tc.imported); (why != "") != tc.wrong {
				t.Errorf("wrongArrow(%s, %s) = %q, want wrong = %t", tc.importer, tc.imported, why, tc.wrong)
			}
		})
	}
}
