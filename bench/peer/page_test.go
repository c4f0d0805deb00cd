package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAPartIsReplacedAndTheRestStays(t *testing.T) {
	begin, end := marks("engine")
	other, last := marks("cluster")
	path := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(path, []byte("# Title\n"+begin+"old\n"+end+"between\n"+other+"kept\n"+last), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := (page{path: path}).put("engine", "new\n"); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if want := "# Title\n" + begin + "new\n" + end + "between\n" + other + "kept\n" + last; string(got) != want {
		t.Errorf("the page is\n%s", got)
	}
	if err := (page{path: path}).put("day", "new\n"); err == nil || !strings.Contains(err.Error(), "no place for day") {
		t.Errorf("error = %v", err)
	}
}

// TestThePageHasAPlaceForEachPart reads the page that is published.
func TestThePageHasAPlaceForEachPart(t *testing.T) {
	text, err := os.ReadFile("../../docs/benchmarks.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range partNames() {
		begin, end := marks(name)
		if !strings.Contains(string(text), begin) || !strings.Contains(string(text), end) {
			t.Errorf("docs/benchmarks.md has no place for %s", name)
		}
	}
}
