package journal

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	// fileBytes is when the next file begins, folderBytes what all files together take at most.
	fileBytes   = 4 << 20
	folderBytes = 64 << 20

	pattern   = "journal-*.jsonl"
	timestamp = "20060102T150405.000000000Z"
)

// A Keeper writes a journal to a folder, in files of bounded size. It is not safe for concurrent use.
type Keeper struct {
	folder string
	last   uint64 // record that is written
	file   *os.File
	bytes  int
}

// NewKeeper returns a Keeper that has written nothing.
func NewKeeper(folder string) *Keeper { return &Keeper{folder: folder} }

// Keep writes the records that came since it was last called. What fails is tried again with the next call.
func (k *Keeper) Keep(j *Journal) error { return k.write(j.Select(Query{After: k.last})) }

// Close ends the file. What was kept is on the disk already.
func (k *Keeper) Close() {
	if k.file != nil {
		k.file.Close() // what was written was synced
		k.file = nil
	}
}

func (k *Keeper) write(records []Record) error {
	for len(records) > 0 {
		if err := k.open(); err != nil {
			return err
		}
		var lines bytes.Buffer
		n := 0
		for n < len(records) && k.bytes+lines.Len() < fileBytes {
			line, err := json.Marshal(&records[n])
			if err != nil {
				return fmt.Errorf("write down record %d: %w", records[n].Seq, err)
			}
			lines.Write(append(line, '\n'))
			n++
		}
		_, err := k.file.Write(lines.Bytes())
		if err = errors.Join(err, k.file.Sync()); err != nil {
			k.Close() // a line may be torn; the next attempt begins a file
			return fmt.Errorf("write the journal: %w", err)
		}
		k.bytes += lines.Len()
		k.last = records[n-1].Seq
		records = records[n:]
	}
	return nil
}

// open makes sure that there is a file with room, and not too many others.
func (k *Keeper) open() error {
	if k.file != nil && k.bytes < fileBytes {
		return nil
	}
	k.Close()
	if err := os.MkdirAll(k.folder, 0o700); err != nil {
		return fmt.Errorf("make the folder of the journal: %w", err)
	}
	var file *os.File
	var err error
	for at := time.Now().UTC(); ; at = at.Add(time.Nanosecond) {
		name := strings.Replace(pattern, "*", at.Format(timestamp), 1)
		if file, err = os.OpenFile(filepath.Join(k.folder, name), os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600); !os.IsExist(err) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("begin a file of the journal: %w", err)
	}
	k.file, k.bytes = file, 0
	return k.forget()
}

// forget removes the oldest files, so that the rest and one more are within the folder's bound.
func (k *Keeper) forget() error {
	files, err := filepath.Glob(filepath.Join(k.folder, pattern)) // sorted, and named by time
	if err != nil {
		return fmt.Errorf("look into the folder of the journal: %w", err)
	}
	total := int64(fileBytes)
	for i := len(files) - 1; i >= 0; i-- {
		if info, err := os.Stat(files[i]); err == nil {
			total += info.Size()
		}
		if total > folderBytes {
			if err := os.Remove(files[i]); err != nil && !os.IsNotExist(err) {
				return fmt.Errorf("remove an old file of the journal: %w", err)
			}
		}
	}
	return nil
}

// ReadFolder reads what a Keeper wrote, the oldest first. torn is how many lines could not be read.
func ReadFolder(folder string) (records []Record, torn int, err error) {
	files, err := filepath.Glob(filepath.Join(folder, pattern))
	if err != nil {
		return nil, 0, fmt.Errorf("read a journal: %w", err)
	}
	for _, name := range files {
		file, err := os.Open(name)
		if os.IsNotExist(err) {
			continue // it was the oldest, and has just been removed
		}
		if err != nil {
			return nil, 0, fmt.Errorf("read a journal: %w", err)
		}
		more, bad, err := Read(file)
		file.Close()
		if err != nil {
			return nil, 0, fmt.Errorf("read %s: %w", name, err)
		}
		records, torn = append(records, more...), torn+bad
	}
	return records, torn, nil
}

// longestLine is longer than any record.
const longestLine = 1 << 20

// Read reads lines of JSON. torn is how many of them are no records.
func Read(r io.Reader) (records []Record, torn int, err error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, longestLine)
	for lines.Scan() {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		var record Record
		if err := json.Unmarshal(lines.Bytes(), &record); err != nil || record.Act == "" {
			torn++
			continue
		}
		records = append(records, record)
	}
	return records, torn, lines.Err()
}

// Write writes records as lines of JSON.
func Write(w io.Writer, records []Record) error {
	encoder := json.NewEncoder(w)
	for i := range records {
		if err := encoder.Encode(&records[i]); err != nil {
			return err
		}
	}
	return nil
}
