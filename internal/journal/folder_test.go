package journal

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// keep writes what a run of the controller adds to its journal.
func keep(t *testing.T, folder string, records ...Record) []Record {
	t.Helper()
	j, k := New(), NewKeeper(folder)
	defer k.Close()
	for _, r := range records {
		j.Add(r)
		if err := k.Keep(j); err != nil {
			t.Fatal(err)
		}
	}
	return j.Select(Query{})
}

func TestWhatIsKeptIsReadAgain(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "new")
	want := slices.Concat(keep(t, folder, opened(1), opened(2)), keep(t, folder, opened(3))) // two runs
	got, torn, err := ReadFolder(folder)
	if err != nil || torn != 0 {
		t.Fatal(torn, err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestATornLineIsPassedOver(t *testing.T) {
	folder := t.TempDir()
	keep(t, folder, opened(1), opened(2))
	files, _ := filepath.Glob(filepath.Join(folder, pattern))
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(files[0], text[:len(text)-20], 0o600); err != nil {
		t.Fatal(err)
	}
	keep(t, folder, opened(3))
	got, torn, err := ReadFolder(folder)
	if err != nil || torn != 1 || len(got) != 2 {
		t.Errorf("%d records, %d torn lines, %v", len(got), torn, err)
	}
}

func TestTheFolderIsBounded(t *testing.T) {
	folder := t.TempDir()
	k := NewKeeper(folder)
	big := Record{Act: Opened, Text: strings.Repeat("x", 1<<20)}
	for i := range 2 * folderBytes >> 20 {
		big.Seq = uint64(i + 1)
		if err := k.write([]Record{big}); err != nil {
			t.Fatal(err)
		}
	}
	k.Close()
	files, _ := filepath.Glob(filepath.Join(folder, pattern))
	total := int64(0)
	for _, f := range files {
		info, err := os.Stat(f)
		if err != nil {
			t.Fatal(err)
		}
		if total += info.Size(); info.Size() > fileBytes+2<<20 {
			t.Errorf("%s has %d bytes", f, info.Size())
		}
	}
	if total > folderBytes+2<<20 || total < folderBytes/2 {
		t.Errorf("%d files with %d bytes", len(files), total)
	}
	last, err := os.ReadFile(files[len(files)-1])
	if err != nil || !strings.Contains(string(last), `"seq":128,`) {
		t.Error("the newest record is not in the newest file")
	}
}

// A folder that cannot be written to costs no record that memory still has.
func TestKeepingGoesOnAfterTrouble(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "blocked")
	if err := os.WriteFile(folder, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	j, k := New(), NewKeeper(folder)
	defer k.Close()
	j.Add(opened(1))
	if err := k.Keep(j); err == nil {
		t.Error("nobody hears that nothing was written")
	}
	if err := os.Remove(folder); err != nil {
		t.Fatal(err)
	}
	j.Add(opened(2))
	if err := k.Keep(j); err != nil {
		t.Error(err)
	}
	if got, _, err := ReadFolder(folder); err != nil || len(got) != 2 {
		t.Errorf("%d records, %v", len(got), err)
	}
}
