package main

import (
	"os"
	"slices"
	"testing"
)

// TestTheTreeIsUpToDate fails when the API types were changed without running "make gen", or a generated file was edited.
func TestTheTreeIsUpToDate(t *testing.T) {
	root, err := repositoryRoot()
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(root)
	files, err := generate()
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range files {
		got, err := os.ReadFile(path)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s is not what make gen writes (%v)", path, err)
		}
	}
	present, err := generatedFiles()
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range present {
		if _, ok := files[path]; !ok {
			t.Errorf("%s was not generated", path)
		}
	}
}

func TestTemplatesKeepBraces(t *testing.T) {
	in := "metadata:\n  name: x\nspec:\n  text: a {{ b }}\n"
	want := "metadata:\n" + annotations + "  name: x\nspec:\n  text: a {{ \"{{\" }} b }}\n"
	if got := string(asTemplate([]byte(in))); got != want {
		t.Errorf("asTemplate = %q, want %q", got, want)
	}
}

func TestKeyRulesOfUnknownTables(t *testing.T) {
	if _, err := keyRules([]string{"nobody"}); err == nil {
		t.Error("a table that does not exist made rules")
	}
}
