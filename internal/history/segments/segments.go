// Package segments keeps lines in a folder, in several files, of which it removes the oldest.
//
// Append syncs, so appended lines are on the disk. Only the last line of a file can be torn by a crash: each process
// begins a file of its own, and another file after an error. Files are named in the order in which they were begun,
// even if the clock went back. Several processes may share a folder: a process whose file another process removed
// begins a new file.
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

// A Folder holds files. It is not safe for concurrent use.
type Folder struct {
	path    string
	pattern string // of names, with * for the time
	keep    int64  // bytes that older files may have together
	file    *os.File
	bytes   int
}

// New returns a folder for files named after a pattern. When a file is begun, the oldest are removed until the others
// have at most keep bytes.
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

// next returns the time after which the next file is named: now, or just after the newest file. If the clock went
// back, a file named after now would count as the oldest and be removed first.
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

// forget removes the oldest files above keep bytes, but never the present one.
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

// Append writes lines to the present file and syncs it. On an error it ends the file, without the part that was
// written.
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

// takeBack ends the present file without lines that could only be written in part, because a full disk would fill up
// with such parts. If even that fails, a torn line stays.
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

// Files returns the files of a folder, the oldest first; none if there is no folder.
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
