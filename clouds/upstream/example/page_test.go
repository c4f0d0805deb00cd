package example

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// page explains the example and shows parts of it.
const page = "../../../docs/writing-a-provider.md"

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
