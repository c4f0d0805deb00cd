package rolling

import (
	"os"
	"path/filepath"
	"testing"
)

func begin(t *testing.T, f *Folder, lines string) {
	t.Helper()
	if err := f.Begin(); err != nil {
		t.Fatal(err)
	}
	if err := f.Append([]byte(lines)); err != nil {
		t.Fatal(err)
	}
}

// texts are the files of a folder, the oldest first.
func texts(t *testing.T, path string) (out []string) {
	t.Helper()
	files, err := Files(path, "x-*.log")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, string(text))
	}
	return out
}

func TestTheOldestGo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new")
	f := New(path, "x-*.log", 8)
	defer f.Close()
	for _, lines := range []string{"one\n", "two\n", "three\n", "4\n"} {
		begin(t, f, lines)
	}
	if got := texts(t, path); len(got) != 2 || got[0] != "three\n" || got[1] != "4\n" {
		t.Errorf("%q, want those that have eight bytes with the present one left out", got)
	}
	if n, open := f.Written(); n != 2 || !open {
		t.Errorf("%d bytes, open %t", n, open)
	}
}

func TestNothingIsAppendedWithoutAFile(t *testing.T) {
	f := New(t.TempDir(), "x-*.log", 8)
	if err := f.Append([]byte("lost\n")); err == nil {
		t.Error("nobody hears that nothing was written")
	}
	begin(t, f, "kept\n")
	f.Close()
	if _, open := f.Written(); open {
		t.Error("the file is open after Close")
	}
	if err := f.Append([]byte("lost\n")); err == nil {
		t.Error("nobody hears that nothing was written")
	}
}

// After trouble with the disk the next file takes what comes.
func TestTroubleEndsAFile(t *testing.T) {
	path := t.TempDir()
	f := New(path, "x-*.log", 100)
	begin(t, f, "before\n")
	f.file.Close() // as a disk that went
	if err := f.Append([]byte("lost\n")); err == nil {
		t.Error("nobody hears of the trouble")
	}
	begin(t, f, "after\n")
	defer f.Close()
	if got := texts(t, path); len(got) != 2 || got[0] != "before\n" || got[1] != "after\n" {
		t.Errorf("%q", got)
	}
}
