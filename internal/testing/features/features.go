// Package features is the list of what Karpenter does, row by row, each with the tests that hold it and the pages
// that tell it: features.txt.
//
// "make gen" fails if a test or a page that it names is gone. It is linked into no program, and users need not read it.
package features

import (
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"
)

//go:embed features.txt
var text string

// A Row is one feature.
type Row struct {
	ID    string
	What  string
	Gate  string   // its switch, and its default; "" for what is always so
	Tests []string // folder.TestName, or the path of a scenario
	Pages []string // below docs, with an anchor where it is a section
}

// A Section is rows about one subject.
type Section struct {
	Title string
	Rows  []Row
}

// All reads the list.
func All() ([]Section, error) { return parse(text) }

func parse(text string) ([]Section, error) {
	var all []Section
	known := map[string]bool{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if title, is := strings.CutPrefix(line, "## "); is {
			all = append(all, Section{Title: title})
			continue
		}
		if line == "" {
			continue
		}
		row, err := parseRow(line)
		switch {
		case err != nil:
			return nil, err
		case len(all) == 0:
			return nil, fmt.Errorf("%s stands before the first section", row.ID)
		case known[row.ID]:
			return nil, fmt.Errorf("%s is there twice", row.ID)
		}
		known[row.ID] = true
		last := &all[len(all)-1]
		last.Rows = append(last.Rows, row)
	}
	return all, nil
}

func parseRow(line string) (Row, error) {
	cells := strings.Split(line, "|")
	if len(cells) != 5 {
		return Row{}, fmt.Errorf("%q has %d cells, want id, feature, gate, tests and pages", line, len(cells))
	}
	for i := range cells {
		cells[i] = strings.TrimSpace(cells[i])
	}
	row := Row{ID: cells[0], What: cells[1], Gate: cells[2], Tests: strings.Fields(cells[3]), Pages: strings.Fields(cells[4])}
	if len(row.Tests)+len(row.Pages) == 0 {
		return Row{}, fmt.Errorf("%s names neither a test nor a page", row.ID)
	}
	return row, nil
}

// Check says which tests and pages are not in the tree.
func Check(tree fs.FS, all []Section) error {
	c := checker{tree: tree, tests: map[string]string{}, pages: map[string]map[string]bool{}}
	var wrong []error
	for _, s := range all {
		for _, r := range s.Rows {
			for _, t := range r.Tests {
				if err := c.test(t); err != nil {
					wrong = append(wrong, fmt.Errorf("%s: %w", r.ID, err))
				}
			}
			for _, p := range r.Pages {
				if err := c.page(p); err != nil {
					wrong = append(wrong, fmt.Errorf("%s: %w", r.ID, err))
				}
			}
		}
	}
	return errors.Join(wrong...)
}

// A checker remembers what it has read.
type checker struct {
	tree  fs.FS
	tests map[string]string          // all test files of a folder in one
	pages map[string]map[string]bool // anchors of a page
}

func (c *checker) test(t string) error {
	if strings.HasPrefix(t, "scenarios/") {
		_, err := fs.Stat(c.tree, t)
		return err
	}
	folder, name := split(t)
	if _, read := c.tests[folder]; !read {
		files, err := fs.Glob(c.tree, path.Join(folder, "*_test.go"))
		if err != nil {
			return err
		}
		var all strings.Builder
		for _, f := range files {
			source, err := fs.ReadFile(c.tree, f)
			if err != nil {
				return err
			}
			all.Write(source)
		}
		c.tests[folder] = all.String()
	}
	if !strings.Contains(c.tests[folder], "\nfunc "+name+"(") {
		return fmt.Errorf("there is no %s in %s", name, folder)
	}
	return nil
}

// split divides the name of a test from its folder.
func split(t string) (folder, name string) {
	i := strings.LastIndex(t, ".")
	return t[:max(i, 0)], t[i+1:]
}

var (
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	noise   = regexp.MustCompile(`[^\pL\pN _-]`)
)

func (c *checker) page(p string) error {
	file, anchor, _ := strings.Cut(p, "#")
	file = path.Join("docs", file)
	if _, read := c.pages[file]; !read {
		text, err := fs.ReadFile(c.tree, file)
		if err != nil {
			return err
		}
		c.pages[file] = map[string]bool{"": true}
		for _, m := range heading.FindAllStringSubmatch(string(text), -1) {
			c.pages[file][strings.ReplaceAll(noise.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")] = true
		}
	}
	if !c.pages[file][anchor] {
		return fmt.Errorf("%s has no section #%s", file, anchor)
	}
	return nil
}
