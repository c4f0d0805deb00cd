package main

import (
	"fmt"
	"os"
	"strings"
	"time"
)

// A page is a file of Markdown with parts that are measured. What stands between them is written by people.
type page struct {
	path string // empty for none
	note string
}

// marks are the lines before and after a part.
func marks(name string) (begin, end string) {
	return "<!-- make bench-peer writes this: " + name + " -->\n", "<!-- end of " + name + " -->\n"
}

// put writes a part into the page.
func (p page) put(name, text string) error {
	if p.path == "" {
		return nil
	}
	old, err := os.ReadFile(p.path)
	if err != nil {
		return err
	}
	begin, end := marks(name)
	before, rest, ok := strings.Cut(string(old), begin)
	_, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		return fmt.Errorf("%s has no place for %s", p.path, name)
	}
	return os.WriteFile(p.path, []byte(before+begin+text+end+after), 0o644)
}

// provenance says where figures come from.
func provenance(name string, took time.Duration, note string) string {
	text := fmt.Sprintf("`PARTS=%s make bench-peer` measured this on %s, in %.0f s, on %s, beside Karpenter %s.",
		name, time.Now().Format("2006-01-02"), took.Seconds(), machine(), peerVersion())
	if note != "" {
		text += " " + note
	}
	return text + "\n"
}
