package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"
)

// A document is one object of a file, with the place it came from.
type document struct {
	file string
	line int // of its first line
	text []byte
	obj  *unstructured.Unstructured
	item *int // the object's index if the text is a List, nil if the text is the object itself
}

// at returns an error that begins with the file and line, as those of compilers.
func (d *document) at(line int, format string, args ...any) error {
	return fmt.Errorf("%s:%d: %s", d.file, line, fmt.Sprintf(format, args...))
}

// lineOf returns the first line with the deepest part of a field path that the text has as a key, or the first line of
// the document. Indexes of lists are not searched for. If a name occurs several times, the line can be wrong.
func (d *document) lineOf(path string) int {
	parts := strings.FieldsFunc(path, func(r rune) bool { return r == '.' || r == '[' || r == ']' || r == '"' })
	for i := len(parts) - 1; i >= 0; i-- {
		if _, err := strconv.Atoi(parts[i]); err == nil {
			continue
		}
		for n, line := range bytes.Split(d.text, []byte("\n")) {
			trimmed := bytes.TrimLeft(line, " -\t\"")
			if bytes.HasPrefix(trimmed, []byte(parts[i]+":")) || bytes.HasPrefix(trimmed, []byte(parts[i]+"\":")) {
				return d.line + n
			}
		}
	}
	return d.line
}

// standardInput is the path that means standard input.
const standardInput = "-"

// A foreignError says that nothing in a file looks like a Kubernetes object.
type foreignError struct{ error }

// readAll reads every document of files and folders, in order, and returns all errors together. Folders hold other
// YAML too, such as values of Helm charts: a file in a folder without any object is no error, and its name is
// returned in others.
func readAll(in io.Reader, paths []string) (docs []*document, others []string, err error) {
	var errs []error
	for _, path := range paths {
		if path == standardInput {
			text, err := readBounded(in, "standard input")
			got, broken := parse("standard input", text)
			docs, errs = append(docs, got...), append(errs, err, broken)
			continue
		}
		files, searched, err := filesIn(path)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, file := range files {
			text, err := readRegular(file)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			got, err := parse(file, text)
			if _, foreign := errors.AsType[*foreignError](err); foreign && searched {
				others = append(others, file)
				continue
			}
			docs = append(docs, got...)
			errs = append(errs, err)
		}
	}
	return docs, others, errors.Join(errs...)
}

// filesIn lists the manifests of a folder by name, or returns path itself if it is a file; searched reports that it
// was a folder.
func filesIn(path string) (files []string, searched bool, err error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, fmt.Errorf("%s: no such file or folder; check the path", path)
	}
	if err != nil {
		return nil, false, err
	}
	if !info.IsDir() {
		return []string{path}, false, nil
	}
	err = filepath.WalkDir(path, func(file string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(file)) {
			if linksOutside(path, file) {
				return fmt.Errorf("%s: a link to a file outside of the folder; name that file with -f", file)
			}
			files = append(files, file)
		}
		return err
	})
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("%s: no .yaml, .yml or .json file in this folder", path)
	}
	return files, true, err
}

// parse splits a file into documents; lists become their items. The error is a foreignError if nothing in the file is
// an object.
func parse(file string, text []byte) ([]*document, error) {
	var docs []*document
	var errs []error
	foreign := 0
	parts := splitDocuments(text)
	whole, got, broken := make([]*document, len(parts)), make([][]*document, len(parts)), make([]error, len(parts))
	line := 1
	for i, part := range parts {
		whole[i] = &document{file: file, line: line, text: part}
		line += bytes.Count(part, []byte("\n"))
	}
	onAllProcessors(len(parts), func(i int) { got[i], broken[i] = whole[i].decode() })
	for i := range parts {
		docs = append(docs, got[i]...)
		if broken[i] != nil {
			errs = append(errs, broken[i])
		}
		if _, ok := errors.AsType[*foreignError](broken[i]); ok {
			foreign++
		}
	}
	err := errors.Join(errs...)
	if len(docs) == 0 && foreign > 0 && foreign == len(errs) {
		return nil, &foreignError{err}
	}
	if foreign > 0 { // the file has objects, so a document that is none is a mistake
		return docs, errors.New(err.Error())
	}
	return docs, err
}

// onAllProcessors calls do for 0 to n−1, on as many processors as there are: files of a cluster hold thousands of objects.
func onAllProcessors(n int, do func(i int)) {
	var all sync.WaitGroup
	var next atomic.Int64
	for range min(n, runtime.GOMAXPROCS(0)) {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				do(i)
			}
		})
	}
	all.Wait()
}

// splitDocuments cuts at lines that start with three dashes, each part beginning with its own such line.
func splitDocuments(text []byte) [][]byte {
	var parts [][]byte
	start := 0
	for i := 0; i < len(text); {
		if i > start && bytes.HasPrefix(text[i:], []byte("---")) {
			parts = append(parts, text[start:i])
			start = i
		}
		next := bytes.IndexByte(text[i:], '\n')
		if next < 0 {
			break
		}
		i += next + 1
	}
	return append(parts, text[start:])
}

// helmTemplate finds the actions of Helm's templates.
var helmTemplate = regexp.MustCompile(`\{\{.*\}\}`)

var yamlLine = regexp.MustCompile(`line (\d+): ?(.*)`)

// fromYAML reads YAML as kubectl and the API server do: whole numbers become int64.
func fromYAML(text []byte) (any, error) {
	raw, err := yaml.YAMLToJSON(text)
	if err != nil {
		return nil, err
	}
	var decoded any
	return decoded, utiljson.Unmarshal(raw, &decoded)
}

// decode parses the text of a document and returns it, or its items if it is a list; nothing if it is empty. Its
// errors name the line and say what to do.
func (d *document) decode() ([]*document, error) {
	if err := d.checkNumbers(); err != nil {
		return nil, err
	}
	decoded, err := fromYAML(d.text)
	if err != nil && helmTemplate.Match(d.text) {
		return nil, &foreignError{d.at(d.line, "a template that is not rendered yet; render it first, as in: helm "+
			"template … | karpenter plan -f pools.yaml -f -")}
	}
	if err != nil {
		if m := yamlLine.FindStringSubmatch(err.Error()); m != nil {
			n, _ := strconv.Atoi(m[1])
			return nil, d.at(d.line+n-1, "not valid YAML: %s", m[2])
		}
		return nil, d.at(d.line, "not valid YAML: %v", err)
	}
	content, ok := decoded.(map[string]any)
	if !ok && decoded != nil {
		return nil, &foreignError{d.at(d.line, "not a YAML object: an object has apiVersion, kind and metadata")}
	}
	if len(content) == 0 {
		return nil, nil
	}
	if err := d.checkLists(content, ""); err != nil {
		return nil, err
	}
	d.obj = &unstructured.Unstructured{Object: content}
	switch kind, version := d.obj.GetKind(), d.obj.GetAPIVersion(); {
	case kind == "" && version == "":
		return nil, &foreignError{d.at(d.line, "the object has no apiVersion and no kind; add both, or leave the file "+
			"out if it is no manifest")}
	case kind == "" || version == "":
		return nil, d.at(d.line, "the object has no apiVersion or no kind; add both")
	}
	if !d.obj.IsList() {
		return []*document{d}, nil
	}
	var docs []*document
	err = d.obj.EachListItem(func(item runtimeObject) error {
		place := len(docs)
		docs = append(docs, &document{file: d.file, line: d.line, text: d.text, obj: item.(*unstructured.Unstructured), item: &place})
		return nil
	})
	if err != nil {
		return nil, d.at(d.line, "%v", err)
	}
	return docs, nil
}
