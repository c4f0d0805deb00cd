package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// licenceFile holds the licences of everything that is linked into the program, as those licences want.
const licenceFile = "THIRD_PARTY_LICENSES"

const licenceHeader = `Karpenter itself is under the licence in the file LICENSE. Its program contains the modules below, under licences of
their own: first all modules, then all texts, each once. Made by make gen.

`

// makeLicences writes the file.
func (j job) makeLicences(ctx context.Context) error {
	text, err := j.licences(ctx)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(j.root, licenceFile), text, 0o644)
}

// A linkedModule is one whose packages are in the program.
type linkedModule struct {
	name, version string
	files         map[string]string // texts of licences and notices by name below the module
}

// licences collects the texts of all modules, on all platforms.
func (j job) licences(ctx context.Context) ([]byte, error) {
	modules := map[string]*linkedModule{}
	for _, p := range platforms {
		cmd := exec.CommandContext(ctx, "go", "list", "-deps", "-f",
			"{{with .Module}}{{.Path}}\t{{.Version}}\t{{.Dir}}{{end}}\t{{.Dir}}\t{{.Standard}}", "./cmd/karpenter")
		cmd.Dir = j.root
		cmd.Env = append(append(os.Environ(), goEnv...), "GOOS="+p.OS, "GOARCH="+p.Architecture)
		var trouble bytes.Buffer
		cmd.Stderr = &trouble
		out, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("list what the program links: %w\n%s", err, trouble.String())
		}
		for line := range strings.Lines(string(out)) {
			if err := addPackage(modules, strings.Split(strings.TrimSuffix(line, "\n"), "\t")); err != nil {
				return nil, err
			}
		}
	}
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return nil, err
	}
	standard := &linkedModule{name: "Go's standard library", files: map[string]string{}}
	if err := standard.read(strings.TrimSpace(string(root)), ""); err != nil {
		return nil, err
	}
	modules[""] = standard
	return written(modules)
}

// addPackage notes the module of a package of another project, with the licences beside the module's root and beside the package.
func addPackage(modules map[string]*linkedModule, fields []string) error {
	if len(fields) != 5 || fields[1] == "" { // the standard library, or ours
		return nil
	}
	name, version, root, dir := fields[0], fields[1], fields[2], fields[3]
	m := modules[name]
	if m == nil {
		m = &linkedModule{name, version, map[string]string{}}
		modules[name] = m
		if err := m.read(root, ""); err != nil {
			return err
		}
	}
	below, err := filepath.Rel(root, dir)
	if err != nil || below == "." {
		return err
	}
	return m.read(dir, below)
}

var licenceName = regexp.MustCompile(`(?i)^(LICEN[CS]E|COPYING|NOTICE)([.-].*)?$`)

// read takes the texts of a folder, which is below the module's root.
func (m *linkedModule) read(dir, below string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() || !licenceName.MatchString(e.Name()) || strings.HasSuffix(e.Name(), ".go") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		m.files[filepath.ToSlash(filepath.Join(below, e.Name()))] = strings.ReplaceAll(string(text), "\r\n", "\n")
	}
	return nil
}

// written is the file. A module whose licence is not there, or is none that we know, stops the build: a person has to look.
func written(modules map[string]*linkedModule) ([]byte, error) {
	var out bytes.Buffer
	out.WriteString(licenceHeader)
	of := map[string][]string{} // who has a text
	for _, name := range slices.Sorted(maps.Keys(modules)) {
		m := modules[name]
		var kinds []string
		for _, file := range slices.Sorted(maps.Keys(m.files)) {
			text := strings.TrimSpace(m.files[file])
			of[text] = append(of[text], strings.TrimSpace(m.name+" "+m.version)+", "+file)
			kinds = append(kinds, identify(text)...)
		}
		if len(kinds) == 0 {
			return nil, fmt.Errorf("there is no licence that we know in %s %s", m.name, m.version)
		}
		slices.Sort(kinds)
		kinds = slices.Compact(kinds)
		fmt.Fprintf(&out, "%s\n", strings.TrimSpace(fmt.Sprintf("%s\t%s %s", strings.Join(kinds, " AND "), m.name, m.version)))
	}
	texts := slices.SortedFunc(maps.Keys(of), func(a, b string) int { return strings.Compare(of[a][0], of[b][0]) })
	for _, text := range texts {
		fmt.Fprintf(&out, "\n%s\n%s\n%s\n\n%s\n", strings.Repeat("=", 80), strings.Join(of[text], "\n"), strings.Repeat("-", 80), text)
	}
	return out.Bytes(), nil
}

// marks are words by which a licence is known, by its SPDX identifier. Of one family the first that fits is it; a text may be of several.
var marks = []struct {
	id, family string
	words      []string
}{
	{"Apache-2.0", "Apache", []string{"Apache License", "Version 2.0"}},
	{"BSD-3-Clause", "BSD", []string{"Redistribution and use in source and binary forms", "ames of its"}},
	{"BSD-3-Clause", "BSD", []string{"Redistribution and use in source and binary forms", "either the name"}},
	{"BSD-2-Clause", "BSD", []string{"Redistribution and use in source and binary forms"}},
	{"ISC", "ISC", []string{"Permission to use, copy, modify, and"}},
	{"MIT", "MIT", []string{"Permission is hereby granted, free of charge"}},
	{"MPL-2.0", "MPL", []string{"Mozilla Public License", "2.0"}},
}

// identify names the licences of a text.
func identify(text string) []string {
	flat := strings.Join(strings.Fields(text), " ")
	var found []string
	family := ""
	for _, m := range marks {
		if m.family != family && !slices.ContainsFunc(m.words, func(word string) bool { return !strings.Contains(flat, word) }) {
			found, family = append(found, m.id), m.family
		}
	}
	return found
}

// declared are the identifiers in the file, by module.
func declared(text []byte) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(strings.TrimPrefix(string(text), licenceHeader)) {
		kinds, module, ok := strings.Cut(strings.TrimSpace(line), "\t")
		if !ok {
			break // the texts begin
		}
		name, _, _ := strings.Cut(module, " v")
		out[name] = kinds
	}
	return out
}
