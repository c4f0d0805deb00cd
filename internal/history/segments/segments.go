// Package segments keeps lines in a folder, in files of which the oldest go.
//
// What was appended is on the disk. A line that a crash tears is the last of its file: a process begins a file of
// its own, and after trouble another one. Files are in the order in which they were begun, even where the clock
// went back. Several processes may share a folder: whose file another one removed as the oldest begins one.
package segments

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const timestamp = "20060102T150405.000000000Z"

// A Folder is a place for files. It is not safe for concurrent use.
type Folder struct {
	path    string
	pattern string // of names, with * for the time
	keep    int64  // bytes that older files may have together
	file    *os.File
	bytes   int
}

// New returns a folder for files that are named after a pattern. Before a file is begun so many go that the others
// have no more than keep bytes.
func New(path, pattern string, keep int64) *Folder {
	return &Folder{path: path, pattern: pattern, keep: keep}
}

// Written returns how many bytes the present file has, and whether there is one.
func (f *Folder) Written() (bytes int, open bool) {
	if f.file != nil && !f.there() {
		f.Close()
	}
	return f.bytes, f.file != nil
}

// there reports whether the present file is still in the folder: a removed file has no readers.
func (f *Folder) there() bool {
	have, err := f.file.Stat()
	if err != nil {
		return true // writing to it will tell
	}
	named, err := os.Stat(f.file.Name())
	return err == nil && os.SameFile(have, named)
}

// Begin ends the present file and begins another.
func (f *Folder) Begin() error {
	f.Close()
	if err := os.MkdirAll(f.path, 0o700); err != nil {
		return fmt.Errorf("make the folder: %w", err)
	}
	at, err := f.next()
	if err != nil {
		return err
	}
	for ; ; at = at.Add(time.Nanosecond) {
		name := strings.Replace(f.pattern, "*", at.Format(timestamp), 1)
		file, err := os.OpenFile(filepath.Join(f.path, name), os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
		if os.IsExist(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("begin a file: %w", err)
		}
		f.file, f.bytes = file, 0
		return f.forget()
	}
}

// next is the time after which a file is named: now, or just after the newest file. It would be the oldest, and go
// first, where the clock went back.
func (f *Folder) next() (time.Time, error) {
	now := time.Now().UTC()
	files, err := Files(f.path, f.pattern)
	if err != nil || len(files) == 0 {
		return now, err
	}
	before, after, _ := strings.Cut(f.pattern, "*")
	newest := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(files[len(files)-1]), before), after)
	if at, err := time.Parse(timestamp, newest); err == nil && at.After(now) {
		return at.Add(time.Nanosecond), nil
	}
	return now, nil
}

// forget removes the oldest files, but not the present one.
func (f *Folder) forget() error {
	files, err := Files(f.path, f.pattern)
	if err != nil {
		return err
	}
	total := int64(0)
	for i := len(files) - 1; i >= 0; i-- {
		if info, err := os.Stat(files[i]); err == nil {
			total += info.Size()
		}
		if total > f.keep && files[i] != f.file.Name() {
			if err := os.Remove(files[i]); err != nil && !os.IsNotExist(err) {
				return fmt.Errorf("remove an old file: %w", err)
			}
		}
	}
	return nil
}

// Append writes lines to the present file.
func (f *Folder) Append(lines []byte) error {
	if f.file == nil {
		return errors.New("no file was begun")
	}
	_, err := f.file.Write(lines)
	if err = errors.Join(err, f.file.Sync()); err != nil {
		f.takeBack()
		return err
	}
	f.bytes += len(lines)
	return nil
}

// takeBack ends a file without what could not be written whole: a full disk is not to fill up with beginnings. The
// next attempt begins a file. Where even that fails, a line is torn.
func (f *Folder) takeBack() {
	if f.bytes == 0 {
		_ = os.Remove(f.file.Name())
	} else {
		_ = os.Truncate(f.file.Name(), int64(f.bytes))
	}
	f.Close()
}

// Close ends the file. What was appended is on the disk already.
func (f *Folder) Close() {
	if f.file != nil {
		f.file.Close() // what was written was synced
		f.file = nil
	}
}

// Files are the files of a folder, the oldest first; none where there is no folder.
func Files(path, pattern string) ([]string, error) {
	entries, err := os.ReadDir(path) // sorted, and named by time
	if err != nil && !os.IsNotExist(err) {
		return nil, fmt.Errorf("look into the folder: %w", err)
	}
	var files []string
	for _, e := range entries {
		if ours, err := filepath.Match(pattern, e.Name()); err != nil {
			return nil, fmt.Errorf("look into the folder: %w", err)
		} else if ours {
			files = append(files, filepath.Join(path, e.Name()))
		}
	}
	return files, nil
}
