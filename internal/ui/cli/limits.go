package cli

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"

	"karpenter.sh/karpenter/internal/kit/bounded"
)

// Limits of what files may ask of the commands.
const (
	mostBytes  = 64 << 20 // of one file
	mostPods   = 200_000  // that workloads of files may have together
	mostValues = 2_000    // of one list in a document
	mostDepth  = 100      // of the nesting of a document
)

// readRegular reads a regular file of at most mostBytes. A shell's process substitution is a pipe that has a
// writer, so it is read as well.
func readRegular(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	piped := info.Mode()&os.ModeNamedPipe != 0 && (strings.HasPrefix(path, "/dev/fd/") || strings.HasPrefix(path, "/proc/self/fd/"))
	if !info.Mode().IsRegular() && !piped {
		return nil, fmt.Errorf("%s: not a regular file; use -f - and a pipe to read the output of a command", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readBounded(f, path)
}

// readBounded reads all of in, and refuses more than mostBytes. name is for the error.
func readBounded(in io.Reader, name string) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(in, mostBytes+1))
	if err == nil && len(text) > mostBytes {
		return nil, fmt.Errorf("%s: more than %d MiB; split the file", name, mostBytes>>20)
	}
	return text, err
}

// linksOutside reports whether a file of a folder is a link to a file outside of the folder, or cannot be resolved.
func linksOutside(folder, file string) bool {
	root, err := filepath.EvalSymlinks(folder)
	if err != nil {
		return true
	}
	target, err := filepath.EvalSymlinks(file)
	if err != nil {
		return true
	}
	relative, err := filepath.Rel(root, target)
	return err != nil || relative == ".." || strings.HasPrefix(relative, ".."+string(filepath.Separator))
}

// checkNumbers refuses a document with a number whose exponent no real quantity has, because parsing it would take
// too long.
func (d *document) checkNumbers() error {
	at := bounded.AbsurdNumber(d.text)
	if at == nil {
		return nil
	}
	line := bytes.Count(d.text[:at[0]], []byte("\n"))
	return d.at(d.line+line, "a number with the exponent %s; write a quantity such as 500m or 2Gi", d.text[at[0]+1:at[1]])
}

// checkLists refuses a document that has a list of more than mostValues texts, or is nested deeper than mostDepth.
func (d *document) checkLists(value any, path string) error {
	if strings.Count(path, ".") > mostDepth {
		return d.at(d.line, "the object is nested more than %d levels deep", mostDepth)
	}
	switch x := value.(type) {
	case map[string]any:
		for key, v := range x {
			if err := d.checkLists(v, path+"."+key); err != nil {
				return err
			}
		}
	case []any:
		if len(x) > mostValues && allTexts(x) {
			return d.at(d.lineOf(path), "%s has %d values, at most %d are read; use the operators NotIn, Gt, Lt or a "+
				"label that groups the values", strings.TrimPrefix(path, "."), len(x), mostValues)
		}
		for _, v := range x {
			if err := d.checkLists(v, path); err != nil {
				return err
			}
		}
	}
	return nil
}

func allTexts(list []any) bool {
	for _, v := range list {
		if _, ok := v.(string); !ok {
			return false
		}
	}
	return true
}

// A plainWriter replaces control characters by "?". Files and objects of a cluster may contain escape sequences that
// would control the user's terminal.
type plainWriter struct{ to io.Writer }

// Write writes text with "?" in the place of control characters.
func (w plainWriter) Write(text []byte) (int, error) {
	if bytes.IndexFunc(text, isControl) < 0 {
		return w.to.Write(text)
	}
	out := make([]byte, 0, len(text))
	for _, r := range string(text) {
		if isControl(r) {
			r = '?'
		}
		out = utf8.AppendRune(out, r)
	}
	if _, err := w.to.Write(out); err != nil {
		return 0, err
	}
	return len(text), nil
}

// isControl reports whether a rune may move the cursor or reverse the direction of text. Line feed, tab and carriage
// return may stay.
func isControl(r rune) bool {
	return unicode.IsControl(r) && r != '\n' && r != '\t' && r != '\r' || unicode.Is(unicode.Bidi_Control, r)
}
