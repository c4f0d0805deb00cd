// Package scenario reads, runs and writes stories about what the core decides: small tables of pools, machines, nodes and pods, and the
// expected answer. A story is one txtar file. Its comment gives the subject, and "want" holds the answer of each round.
//
// A story has one or more rounds. A round's section "do" says what is asked: "plan", the default, asks the engine about pods that wait;
// "propose" asks package disrupt about nodes that may go. What a plan opened exists as nodes in the next round, and its pods are bound; a
// proposal is not carried out. Package lifecycle decides about one claim and one Node, with conditions and timers that no story has: its
// cases are a table in its own test.
//
// The same format serves tests, snapshots, replay and bug reports, so that a bug report becomes a test by copying a file. The sections are
// settings, shapes (a table of instance types) or types (the same in full, as JSON), pools, nodes, pods, buffers, pdbs, objects (YAML),
// delete, commitments and memory (of an engine, both as JSON), do, and want. "pods 2", "want 2" and so on belong to further rounds. The
// comment of each read function says which words a line of its table may have; an unknown word is an error.
//
// Terms:
//
//	world     the cluster of a story while it is played (world.go)
//	note      what a story says about a pod besides its fields, written as annotations (pods.go, write.go)
//	spare     a pod that a CapacityBuffer keeps room for
//	whole     a story with all that a question depends on (Snapshot); Write makes a story that is cut to some bytes
//	redacted  with new names for all that users named (redact.go)
//
// Read this file for the format, world.go and run.go for playing, write.go for writing. The other files have one subject each, both for
// reading and for writing it.
package scenario

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/txtar"
)

// A Scenario is a parsed story.
type Scenario struct {
	Story  string
	file   *txtar.Archive
	rounds int
}

// Parse reads a story.
func Parse(data []byte) (*Scenario, error) {
	for line := range strings.Lines(string(data)) {
		if strings.TrimRight(line, "\r\n") == "-- --" { // over which txtar panics
			return nil, fmt.Errorf("a section needs a name between its dashes")
		}
	}
	s := &Scenario{file: txtar.Parse(data), rounds: 1}
	s.Story = strings.TrimSpace(string(s.file.Comment))
	if s.Story == "" {
		return nil, fmt.Errorf("a scenario begins with its story")
	}
	for _, f := range s.file.Files {
		name, round, err := splitName(f.Name)
		if err != nil {
			return nil, err
		}
		if !slices.Contains([]string{"settings", "shapes", "types", "pools", "nodes", "pods", "objects", "buffers",
			"pdbs", "delete", "commitments", "memory", "do", "want"}, name) {
			return nil, fmt.Errorf("unknown section %q", f.Name)
		}
		if do := strings.TrimSpace(string(f.Data)); name == "do" && do != plan && do != propose {
			return nil, fmt.Errorf("section %q: %q is nothing that can be done", f.Name, do)
		}
		s.rounds = max(s.rounds, round)
	}
	return s, nil
}

// splitName reads "pods 2" as the pods of round 2.
func splitName(name string) (section string, round int, err error) {
	section, number, found := strings.Cut(name, " ")
	if !found {
		return section, 1, nil
	}
	round, err = strconv.Atoi(number)
	if err != nil || round < 1 {
		return "", 0, fmt.Errorf("section %q: %q is no number of a round", name, number)
	}
	return section, round, nil
}

// section returns the text of a section of a round.
func (s *Scenario) section(name string, round int) string {
	for _, f := range s.file.Files {
		if n, r, _ := splitName(f.Name); n == name && r == round {
			return string(f.Data)
		}
	}
	return ""
}

// What a round may ask for.
const (
	plan    = "plan"    // where pods go that wait, and what is opened for them
	propose = "propose" // which nodes are removed
)

// doing returns what a round asks for.
func (s *Scenario) doing(round int) string {
	return cmp.Or(strings.TrimSpace(s.section("do", round)), plan)
}

// Want returns the answer that the story expects of a round.
func (s *Scenario) Want(round int) string { return s.section("want", round) }

// Rounds returns the number of rounds.
func (s *Scenario) Rounds() int { return s.rounds }

// Format returns the file of the story with new answers in its want sections.
func (s *Scenario) Format(answers []string) []byte {
	out := &txtar.Archive{Comment: s.file.Comment}
	done := make([]bool, len(answers))
	for _, f := range s.file.Files {
		if n, r, _ := splitName(f.Name); n == "want" {
			f.Data = []byte(answers[r-1])
			done[r-1] = true
		}
		out.Files = append(out.Files, f)
	}
	for i, ok := range done {
		if !ok {
			name := "want"
			if i > 0 {
				name = fmt.Sprintf("want %d", i+1)
			}
			out.Files = append(out.Files, txtar.File{Name: name, Data: []byte(answers[i])})
		}
	}
	return txtar.Format(out)
}

// A line is a name with attributes: "web x3 cpu=1 zone=a,b".
type line struct {
	name  string
	count int
	attrs []attr
	known map[string]bool // the attributes that were asked for
}

type attr struct{ key, value string }

// get returns the value of an attribute, or a default.
func (l *line) get(key, otherwise string) string {
	l.known[key] = true
	for _, a := range l.attrs {
		if a.key == key {
			return a.value
		}
	}
	return otherwise
}

// has reports whether a line has an attribute.
func (l *line) has(key string) bool {
	l.known[key] = true
	return slices.ContainsFunc(l.attrs, func(a attr) bool { return a.key == key })
}

// all returns every value of an attribute that may be repeated.
func (l *line) all(key string) []string {
	l.known[key] = true
	var out []string
	for _, a := range l.attrs {
		if a.key == key {
			out = append(out, a.value)
		}
	}
	return out
}

// eachLine calls read for every line of a section. An attribute that read did not ask for is an error: a story with a
// misspelled word could pass for the wrong reason.
func eachLine(text string, read func(*line) error) error {
	for _, l := range lines(text) {
		err := read(&l)
		for _, a := range l.attrs {
			if err == nil && !l.known[a.key] {
				err = fmt.Errorf("unknown word %q", a.key)
			}
		}
		if err != nil {
			return fmt.Errorf("%s: %w", l.name, err)
		}
	}
	return nil
}

// lines reads a section; "#" begins a comment.
func lines(text string) []line {
	var out []line
	for raw := range strings.Lines(text) {
		raw, _, _ = strings.Cut(strings.TrimSpace(raw), "#")
		fields := strings.Fields(raw)
		if len(fields) == 0 {
			continue
		}
		l := line{name: fields[0], count: 1, known: map[string]bool{}}
		for _, f := range fields[1:] {
			if n, err := strconv.Atoi(strings.TrimPrefix(f, "x")); err == nil && strings.HasPrefix(f, "x") {
				l.count = n
				continue
			}
			k, v, _ := strings.Cut(f, "=")
			l.attrs = append(l.attrs, attr{k, v})
		}
		out = append(out, l)
	}
	return out
}

// split cuts a list; "" is the empty list.
func split(list, sep string) []string {
	if list == "" {
		return nil
	}
	return strings.Split(list, sep)
}
