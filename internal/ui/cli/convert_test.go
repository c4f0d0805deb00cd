package cli

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files of testdata/convert, migrate and cost")

// TestConvert converts what people have in their repositories: the manifests of published guides, and one file for each thing that is
// hard. Each .out file holds the exit code, what is said, and what is written.
func TestConvert(t *testing.T) {
	files, err := filepath.Glob("testdata/convert/*.yaml")
	if err != nil || len(files) < 30 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			if strings.Contains(file, "/values-") {
				golden(t, file, "convert", "--values", "-")
			} else {
				accepted(t, golden(t, file, "convert", "-f", "-"))
			}
		})
	}
}

// golden gives a file to a command, with the arguments that its first line may add, and compares the exit code, what is said and what is written
// with the .out file beside it. It returns what was written, nothing where the input was refused.
func golden(t *testing.T, file string, args ...string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(text), "\n")
	if more, ok := strings.CutPrefix(first, "# args: "); ok {
		args = append(args, strings.Fields(more)...)
	}
	var out, said strings.Builder
	code := Run(t.Context(), Env{In: strings.NewReader(string(text)), Out: &out, Err: &said}, args)
	got := fmt.Sprintf("exit %d\n%s---\n%s", code, said.String(), out.String())
	beside := strings.TrimSuffix(file, filepath.Ext(file)) + ".out"
	if *update {
		if err := os.WriteFile(beside, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(beside)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if code == exitBadInput {
		return ""
	}
	return out.String()
}

// accepted checks that what was written is something that the API server takes, and that nothing is left to convert.
func accepted(t *testing.T, text string) {
	t.Helper()
	docs, err := parse("converted", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := typed(t.Context(), docs); err != nil {
		t.Errorf("not accepted: %v", err)
	}
}

func TestConvertIsToldWhat(t *testing.T) {
	for args, want := range map[string]string{
		"convert":                    "nothing to convert; give files with -f",
		"convert -f a -o json":       "-o json: use yaml",
		"convert -f a --prefer both": "use role or instanceProfile",
		"convert -f a --values b":    "either manifests with -f or values",
		"convert -f /no/such/file":   "no such file",
		"convert --values /no/such":  "no such file",
	} {
		var out, said strings.Builder
		if code := Run(t.Context(), Env{Out: &out, Err: &said}, strings.Fields(args)); code != exitBadInput || !strings.Contains(said.String(), want) {
			t.Errorf("karpenter %s: code %d, %q, want something about %q", args, code, said.String(), want)
		}
	}
}
