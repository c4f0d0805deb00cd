package segments

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
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

// Who decides what runs where is nobody else's business on a machine that others use too.
func TestOnlyItsOwnerReadsIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new")
	f := New(path, "x-*.log", 8)
	defer f.Close()
	begin(t, f, "one\n")
	for name, want := range map[string]os.FileMode{path: 0o700, f.file.Name(): 0o600} {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v; want %v", name, info.Mode().Perm(), err, want)
		}
	}
}

// Two that begin a file at the same moment have one each; and where there is no folder there are no files.
func TestEverybodyHasAFileOfTheirOwn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new")
	if files, err := Files(path, "x-*.log"); err != nil || len(files) > 0 {
		t.Errorf("%q, %v", files, err)
	}
	synctest.Test(t, func(t *testing.T) { // time stands still
		one, other := New(path, "x-*.log", 8), New(path, "x-*.log", 8)
		defer one.Close()
		defer other.Close()
		begin(t, one, "one\n")
		begin(t, other, "two\n")
	})
	if got := texts(t, path); len(got) != 2 || got[0] != "one\n" || got[1] != "two\n" {
		t.Errorf("%q, want a file of each", got)
	}
}

// A file is begun after those that are there, whatever the clock says: by its name it would be the oldest, and go while it is written.
func TestAClockThatWentBackCostsNothing(t *testing.T) {
	path := t.TempDir()
	for _, name := range []string{"x-29990101T000000.000000000Z.log", "x-29990101T000001.000000000Z.log"} {
		if err := os.WriteFile(filepath.Join(path, name), []byte("later\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f := New(path, "x-*.log", 8)
	defer f.Close()
	begin(t, f, "now\n")
	if got := texts(t, path); len(got) != 2 || got[0] != "later\n" || got[1] != "now\n" {
		t.Errorf("%q, want the newest of the others and what was written now", got)
	}
}

// A name that says no time, and comes last, has nobody believe in another one.
func TestAFileOfSomebodyElse(t *testing.T) {
	path := t.TempDir()
	if err := os.WriteFile(filepath.Join(path, "x-mine.log"), []byte("not a time, and long\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := New(path, "x-*.log", 8)
	defer f.Close()
	begin(t, f, "one\n")
	if got := texts(t, path); len(got) != 1 || got[0] != "one\n" {
		t.Errorf("%q", got)
	}
	if n, open := f.Written(); n != 4 || !open {
		t.Errorf("%d bytes, open %t", n, open)
	}
}

// Another process may take the file of one that writes seldom for an old one.
func TestAFileThatWasRemovedTakesNothingMore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a[b")
	idle, busy := New(path, "x-*.log", 8), New(path, "x-*.log", 8)
	defer idle.Close()
	defer busy.Close()
	begin(t, idle, "idle\n")
	for range 3 {
		begin(t, busy, "busy\n")
	}
	if _, open := idle.Written(); open {
		t.Error("what is appended would be lost, and nobody hears of it")
	}
	begin(t, idle, "kept\n")
	if got := texts(t, path); got[len(got)-1] != "kept\n" {
		t.Errorf("%q", got)
	}
}

// On a full disk an attempt leaves nothing behind, or no line that is torn.
func TestWhatCouldNotBeWrittenWholeIsTakenBack(t *testing.T) {
	path := t.TempDir()
	f := New(path, "x-*.log", 100)
	defer f.Close()
	for _, before := range []string{"", "whole\n"} {
		begin(t, f, before)
		if _, err := f.file.WriteString("to"); err != nil { // the part for which there was room
			t.Fatal(err)
		}
		f.file.Close()
		if err := f.Append([]byte("rn\n")); err == nil {
			t.Error("nobody hears of the trouble")
		}
	}
	if got := texts(t, path); len(got) != 1 || got[0] != "whole\n" {
		t.Errorf("%q, want only what was written whole", got)
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
