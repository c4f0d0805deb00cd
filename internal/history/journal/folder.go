package journal

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"karpenter.sh/karpenter/internal/history/segments"
)

const (
	// fileBytes is when the next file begins, folderBytes what all files together take at most.
	fileBytes   = 4 << 20
	folderBytes = 64 << 20

	pattern = "journal-*.jsonl"
)

// A Keeper writes a journal to a folder, in files of bounded size. It is not safe for concurrent use.
type Keeper struct {
	folder *segments.Folder
	last   uint64 // record that is written
}

// NewKeeper returns a Keeper that has written nothing.
func NewKeeper(folder string) *Keeper {
	return &Keeper{folder: segments.New(folder, pattern, folderBytes-fileBytes)}
}

// Keep writes the records that came since the last call, apart from those that were restored. Records that cannot be
// written are tried again by the next call.
func (k *Keeper) Keep(j *Journal) error {
	return k.write(j.Select(Query{After: max(k.last, j.restored())}))
}

// Close ends the file. What was kept is on the disk already.
func (k *Keeper) Close() { k.folder.Close() }

// write appends records as lines, and begins a new file when the present one has fileBytes.
func (k *Keeper) write(records []Record) error {
	for len(records) > 0 {
		written, open := k.folder.Written()
		if !open || written >= fileBytes {
			if err := k.folder.Begin(); err != nil {
				return fmt.Errorf("write the journal: %w", err)
			}
			written = 0
		}
		var lines bytes.Buffer
		n := 0
		for n < len(records) && written+lines.Len() < fileBytes {
			line, err := appendLine(lines.AvailableBuffer(), records[n])
			if err != nil {
				return fmt.Errorf("write down record %d: %w", records[n].Seq, err)
			}
			lines.Write(line)
			n++
		}
		if err := k.folder.Append(lines.Bytes()); err != nil {
			return fmt.Errorf("write the journal: %w", err)
		}
		k.last = records[n-1].Seq
		records = records[n:]
	}
	return nil
}

// appendLine writes a record as JSON. Its objects, a hundred in the most, are written by hand: with reflection they
// are nearly all that a folder costs.
func appendLine(to []byte, r Record) ([]byte, error) {
	about := r.About
	r.About = nil
	rest, err := json.Marshal(&r)
	if err != nil {
		return nil, err
	}
	to = append(to, rest[:len(rest)-1]...)
	for i, o := range about {
		if i == 0 {
			to = append(to, `,"about":[`...)
		} else {
			to = append(to, ',')
		}
		to = appendText(append(to, `{"kind":`...), o.Kind)
		if o.Namespace != "" {
			to = appendText(append(to, `,"namespace":`...), o.Namespace)
		}
		to = append(appendText(append(to, `,"name":`...), o.Name), '}')
	}
	if len(about) > 0 {
		to = append(to, ']')
	}
	return append(to, "}\n"...), nil
}

// appendText writes a text in quotation marks. Names of Kubernetes objects need no escapes; other texts are left to
// package json.
func appendText(to []byte, text string) []byte {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '"' || c == '\\' { // no name of Kubernetes has such
			quoted, _ := json.Marshal(text) // never fails for a string
			return append(to, quoted...)
		}
	}
	to = append(append(to, '"'), text...)
	return append(to, '"')
}

// ReadFolder reads the files that a Keeper wrote, the oldest record first. torn is the number of lines that could not
// be read.
func ReadFolder(folder string) (records []Record, torn int, err error) {
	files, err := segments.Files(folder, pattern)
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

// Read reads lines of JSON. torn is how many of them are no records: a crash may leave a block of zeros in the
// place of lines, however long.
func Read(r io.Reader) (records []Record, torn int, err error) {
	lines := bufio.NewReaderSize(r, longestLine)
	for err == nil {
		var line []byte
		line, err = lines.ReadSlice('\n')
		long := errors.Is(err, bufio.ErrBufferFull)
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = lines.ReadSlice('\n')
		}
		if !long && len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var record Record
		if long || json.Unmarshal(line, &record) != nil || record.Act == "" {
			torn++
			continue
		}
		records = append(records, record)
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return records, torn, err
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
