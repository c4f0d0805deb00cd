package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestMigrate prints pools for node groups as the tools of AWS describe them. Each .out file holds the exit code, what is said, and what is
// written; what is written is something that the API server takes.
func TestMigrate(t *testing.T) {
	files, err := filepath.Glob("testdata/migrate/*.txt")
	if err != nil || len(files) < 7 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) { accepted(t, golden(t, file, "migrate", "-f", "-")) })
	}
}

// FuzzMigrate reads anything: what is written then is manifests.
func FuzzMigrate(f *testing.F) {
	files, _ := filepath.Glob("testdata/migrate/*.txt")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Fuzz(func(t *testing.T, text string) {
		var out strings.Builder
		if code := Run(t.Context(), Env{In: strings.NewReader(text), Out: &out, Err: &strings.Builder{}}, []string{"migrate", "-f", "-"}); code == exitBadInput {
			return
		}
		if _, err := parse("migrated", []byte(out.String())); err != nil {
			t.Fatal(err)
		}
	})
}

func TestMigrateIsToldWhat(t *testing.T) {
	for args, want := range map[string]string{
		"migrate":                   "nothing to read; give files with -f",
		"migrate -f /no/such/file":  "no such file",
		"migrate --widen=perhaps x": "invalid boolean",
	} {
		var out, said strings.Builder
		if code := Run(t.Context(), Env{Out: &out, Err: &said}, strings.Fields(args)); code != exitBadInput || !strings.Contains(said.String(), want) {
			t.Errorf("karpenter %s: code %d, %q, want something about %q", args, code, said.String(), want)
		}
	}
}
