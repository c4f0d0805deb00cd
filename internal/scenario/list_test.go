package scenario

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestTheListsAreComplete checks the lists that map facts to tests: every story and test that they name exists, and every story is named.
func TestTheListsAreComplete(t *testing.T) {
	tests := testNames(t, "..", "../cluster")
	for list, folder := range map[string]string{"../../scenarios/README.md": "../../scenarios/solve/", "../../scenarios/disrupt/README.md": "../../scenarios/disrupt/"} {
		data, err := os.ReadFile(list)
		if err != nil {
			t.Fatal(err)
		}
		named := map[string]bool{}
		for _, m := range regexp.MustCompile("`([A-Za-z0-9-]+)`").FindAllStringSubmatch(string(data), -1) {
			name := m[1]
			if strings.HasPrefix(name, "Test") || strings.HasPrefix(name, "Fuzz") {
				if !tests[name] {
					t.Errorf("%s: %s is no test", list, name)
				}
				continue
			}
			named[name] = true
			if _, err := os.Stat(folder + name + ".txtar"); err != nil && name != "default" {
				t.Errorf("%s: %s is no story", list, name)
			}
		}
		files, err := filepath.Glob(folder + "*.txtar")
		if err != nil || len(files) == 0 {
			t.Fatalf("no stories: %v", err)
		}
		for _, f := range files {
			if name := strings.TrimSuffix(filepath.Base(f), ".txtar"); !named[name] {
				t.Errorf("%s: the story %s is not in it", list, name)
			}
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
