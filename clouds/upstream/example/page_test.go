package example

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// page explains the example and shows parts of it, pageOfClouds how the main function of a provider is changed.
const (
	page         = "../../../docs/writing-a-provider.md"
	pageOfClouds = "../../../docs/clouds.md"
)

var goBlock = regexp.MustCompile("(?s)```go\n(.*?)```")

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestThePageShowsTheExample compares what the page shows with the code, and holds the example to the size that the page gives.
func TestThePageShowsTheExample(t *testing.T) {
	code, text := read(t, "provider.go")+read(t, "../example_test.go"), read(t, page)
	shown := 0
	for _, block := range goBlock.FindAllStringSubmatch(text, -1) {
		if strings.HasPrefix(block[1], "// of our own interface\n") {
			continue
		}
		shown++
		if !strings.Contains(code, block[1]) {
			t.Errorf("the page shows what is not in the code:\n%s", block[1])
		}
	}
	if shown < 6 {
		t.Errorf("the page shows %d parts of the example", shown)
	}
	lines := 0
	for line := range strings.Lines(read(t, "provider.go")) {
		if strings.TrimSpace(line) != "" {
			lines++
		}
	}
	if lines > 150 || !strings.Contains(text, "150 lines") {
		t.Errorf("the example has %d lines, at most 150 are promised", lines)
	}
}

// TestTheDiffOfThePageBuildsInAnotherModule makes the example a module of its own, as providers of others are. Its main function is that of
// the page: after the change it builds by the commands of the page, and before it it is one of Karpenter's own core.
func TestTheDiffOfThePageBuildsInAnotherModule(t *testing.T) {
	block := func(page, language string) string {
		t.Helper()
		found := regexp.MustCompile("(?s)```" + language + "\n(.*?)```").FindStringSubmatch(read(t, page))
		if found == nil {
			t.Fatalf("%s has no block of %s", page, language)
		}
		return found[1]
	}
	var before, after strings.Builder
	added := 0
	for line := range strings.Lines(block(pageOfClouds, "diff")) {
		switch mark, rest := line[0], line[1:]; mark {
		case '-':
			before.WriteString(rest)
		case '+':
			after.WriteString(rest)
			added++
		default:
			before.WriteString(strings.TrimPrefix(line, " "))
			after.WriteString(strings.TrimPrefix(line, " "))
		}
	}
	if added > 10 {
		t.Errorf("%d lines come, at most ten are promised", added)
	}
	checkout, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(commands string) {
		t.Helper()
		sh := exec.Command("sh", "-e", "-c", commands)
		sh.Dir = folder
		sh.Env = append(os.Environ(), "CHECKOUT="+checkout, "GOTOOLCHAIN=auto", "GOWORK=off")
		if out, err := sh.CombinedOutput(); err != nil {
			t.Fatalf("%v:\n%s\n%s", err, commands, out)
		}
	}
	write("provider.go", strings.Replace(read(t, "provider.go"), "\npackage example\n", "\npackage rack\n", 1))
	write("cmd/controller/main.go", "package main\n\n"+after.String())
	run(block(page, "sh"))
	run(block(pageOfClouds, "sh"))
	write("cmd/controller/main.go", "package main\n\n"+before.String())
	run("go vet -mod=mod ./...") // with the versions that are compiled already
}
