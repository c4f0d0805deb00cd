package journal

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
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

// A file system may come back from a crash with zeros where lines were to be.
func TestABlockOfZerosIsPassedOver(t *testing.T) {
	before, err := appendLine(nil, opened(1))
	if err != nil {
		t.Fatal(err)
	}
	after, err := appendLine(nil, opened(2))
	if err != nil {
		t.Fatal(err)
	}
	zeros := make([]byte, 3*longestLine)
	for name, tc := range map[string]struct {
		text    [][]byte
		records int
	}{
		"at the end":               {[][]byte{before, zeros}, 1},
		"at the end of a line":     {[][]byte{before, after[:50], zeros}, 1},
		"and something after them": {[][]byte{before, zeros, {'\n'}, after}, 2},
		"nothing but zeros":        {[][]byte{zeros}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			got, torn, err := Read(bytes.NewReader(slices.Concat(tc.text...)))
			if err != nil || torn != 1 || len(got) != tc.records {
				t.Errorf("%d records, %d torn lines, %v; want %d records and a torn line", len(got), torn, err, tc.records)
			}
		})
	}
}

// What is no record is none, although it is JSON; and a file that was the oldest may go while somebody reads.
func TestWhatIsNoRecordIsPassedOver(t *testing.T) {
	folder := t.TempDir()
	keep(t, folder, opened(1))
	if err := os.WriteFile(filepath.Join(folder, "journal-20000101T000000.000000000Z.jsonl"), []byte("{}\nnull\n{\"seq\":7}\n\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(folder, "gone"), filepath.Join(folder, "journal-20000102T000000.000000000Z.jsonl")); err != nil {
		t.Fatal(err)
	}
	if got, torn, err := ReadFolder(folder); err != nil || torn != 3 || len(got) != 1 {
		t.Errorf("%d records, %d torn lines, %v; want one and three", len(got), torn, err)
	}
}

// What came while nobody could write goes into as many files as it needs.
func TestAFileIsNoLongerThanItMayBe(t *testing.T) {
	folder := t.TempDir()
	k := NewKeeper(folder)
	defer k.Close()
	var records []Record
	for i := range 12 {
		records = append(records, Record{Seq: uint64(i + 1), Act: Opened, Text: strings.Repeat("x", 1<<20)})
	}
	if err := k.write(records); err != nil {
		t.Fatal(err)
	}
	files, _ := filepath.Glob(filepath.Join(folder, pattern))
	for _, name := range files {
		if info, err := os.Stat(name); err != nil || info.Size() > fileBytes+2<<20 {
			t.Errorf("%s: %v, %v", name, info.Size(), err)
		}
	}
	if len(files) != 3 {
		t.Errorf("%d files for 12 MB", len(files))
	}
}

// A disk that cannot be read is trouble, and not the end of a file.
func TestTroubleWithReadingIsTold(t *testing.T) {
	line, err := appendLine(nil, opened(1))
	if err != nil {
		t.Fatal(err)
	}
	bad := errors.New("input/output error")
	if got, _, err := Read(io.MultiReader(bytes.NewReader(line), iotest.ErrReader(bad))); !errors.Is(err, bad) || len(got) != 1 {
		t.Errorf("%d records, %v", len(got), err)
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

// Names are written by hand, and read like any other JSON, whatever is in them.
func TestALineSaysWhatTheRecordSays(t *testing.T) {
	for name, r := range map[string]Record{
		"usual":            opened(1),
		"about nothing":    {Seq: 1, At: noon, Act: Planned, Loop: "provisioner"},
		"about one thing":  {Seq: 1, At: noon, Act: Planned, About: []Object{{Kind: "Node", Name: "a"}}},
		"with odd letters": {Seq: 1, At: noon, Act: Planned, About: []Object{{Kind: "N\"o", Namespace: "back\\slash", Name: "line\nfeed"}, {Kind: "ü", Name: "<&>\u2028\x00\x7f"}}},
	} {
		t.Run(name, func(t *testing.T) {
			line, err := appendLine(nil, r)
			if err != nil {
				t.Fatal(err)
			}
			got, torn, err := Read(bytes.NewReader(line))
			if err != nil || torn != 0 || len(got) != 1 {
				t.Fatalf("%d records, %d torn, %v of %s", len(got), torn, err, line)
			}
			if diff := cmp.Diff(r, got[0]); diff != "" {
				t.Error(diff)
			}
			if bytes.Count(line, []byte("\n")) != 1 || line[len(line)-1] != '\n' {
				t.Errorf("%q is not one line", line)
			}
		})
	}
}

// FuzzRead reads what anybody may have put into a folder, and what is written of that again.
func FuzzRead(f *testing.F) {
	for _, r := range []Record{opened(1), {Act: Planned}, {Act: HeldBack, About: []Object{{Kind: "Node", Name: "ü\n\""}}}} {
		line, err := appendLine(nil, r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(append(line, line[:len(line)/2]...))
	}
	f.Add([]byte("\n{}\nnull\n{\"act\":\"opened\",\"at\":\"9999-12-31T23:59:60Z\"}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		records, torn, err := Read(bytes.NewReader(text))
		if most := bytes.Count(text, []byte("\n")) + 1; len(records)+torn > most {
			t.Fatalf("%d records and %d torn lines of %d", len(records), torn, most)
		}
		if err != nil {
			return
		}
		var again []byte
		for i := range records {
			_, _, _ = records[i].Subject(), records[i].Money(), records[i].size()
			if again, err = appendLine(again, records[i]); err != nil {
				t.Fatalf("what was read cannot be written: %v", err)
			}
		}
		got, torn, err := Read(bytes.NewReader(again))
		if err != nil || torn != 0 {
			t.Fatalf("%d torn, %v of %q", torn, err, again)
		}
		if diff := cmp.Diff(records, got, cmpopts.EquateEmpty()); diff != "" {
			t.Error(diff)
		}
	})
}
