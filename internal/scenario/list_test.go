package scenario

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestTheListIsComplete checks the list that maps facts to tests: every story and test that it names exists, and every story is named.
func TestTheListIsComplete(t *testing.T) {
	data, err := os.ReadFile("../../scenarios/README.md")
	if err != nil {
		t.Fatal(err)
	}
	tests := testNames(t, "..", "../cluster")
	named := map[string]bool{}
	for _, m := range regexp.MustCompile("`([A-Za-z0-9-]+)`").FindAllStringSubmatch(string(data), -1) {
		name := m[1]
		if strings.HasPrefix(name, "Test") || strings.HasPrefix(name, "Fuzz") {
			if !tests[name] {
				t.Errorf("%s is no test", name)
			}
			continue
		}
		named[name] = true
		if _, err := os.Stat("../../scenarios/solve/" + name + ".txtar"); err != nil && name != "default" {
			t.Errorf("%s is no story", name)
		}
	}
	files, err := filepath.Glob("../../scenarios/solve/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if name := strings.TrimSuffix(filepath.Base(f), ".txtar"); !named[name] {
			t.Errorf("the story %s is not in the list", name)
		}
	}
}

// testNames returns the names of the tests under some folders.
func testNames(t *testing.T, roots ...string) map[string]bool {
	out := map[string]bool{}
	function := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)`)
	for _, root := range roots {
		err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			data, err := os.ReadFile(path)
			for _, m := range function.FindAllStringSubmatch(string(data), -1) {
				out[m[1]] = true
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return out
}
