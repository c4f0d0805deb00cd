package provision

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

func TestTheLastStoriesAreKept(t *testing.T) {
	folder := t.TempDir()
	for i := range storiesKept + 3 {
		if err := os.WriteFile(filepath.Join(folder, fmt.Sprintf("unbound-2026%02d.txtar", i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(folder, "mine.txtar"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := forgetStories(folder); err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(folder)
	if err != nil || len(files) != storiesKept+1 || files[0].Name() != "mine.txtar" || files[1].Name() != "unbound-202603.txtar" {
		t.Errorf("kept: %v, %v", files, err)
	}
}
