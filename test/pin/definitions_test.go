package pin

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// constraints are the keywords of a schema that decide which objects are taken, and how they are stored.
var constraints = []string{"type", "format", "enum", "default", "pattern", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems",
	"minProperties", "maxProperties", "required", "x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-int-or-string",
	"x-kubernetes-preserve-unknown-fields", "x-kubernetes-map-type"}

// A definition lists the fields of a CustomResourceDefinition by path, with their constraints, and the names and subresources of its kind.
func definition(file string) (map[string]string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var crd struct {
		Spec struct {
			Scope string
			Names struct {
				Kind, Plural, Singular string
				Categories, ShortNames []string
			}
			Versions []struct {
				Name            string
				Served, Storage bool
				Subresources    map[string]any
				Schema          struct{ OpenAPIV3Schema map[string]any }
			}
		}
	}
	if err := yaml.Unmarshal(text, &crd); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	facts := map[string]string{crd.Spec.Names.Kind: fmt.Sprint(crd.Spec.Scope, crd.Spec.Names)}
	for _, v := range crd.Spec.Versions {
		root := crd.Spec.Names.Kind + "/" + v.Name
		facts[root] = fmt.Sprint(v.Served, v.Storage, len(v.Subresources))
		schema(v.Schema.OpenAPIV3Schema, root, facts)
	}
	return facts, nil
}

// schema adds what a schema says, and those below it.
func schema(s map[string]any, at string, facts map[string]string) {
	for _, word := range constraints {
		if v, ok := s[word]; ok && v != "atomic" { // which is the default for lists
			if list, ok := v.([]any); ok && word != "default" {
				slices.SortFunc(list, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
			}
			text, _ := json.Marshal(v)
			facts[at+" "+word] = string(text)
		}
	}
	rules, _ := s["x-kubernetes-validations"].([]any)
	for _, r := range rules {
		facts[at+" rule "+strings.Join(strings.Fields(r.(map[string]any)["rule"].(string)), " ")] = ""
	}
	for _, word := range []string{"properties"} {
		children, _ := s[word].(map[string]any)
		for name, child := range children {
			schema(child.(map[string]any), at+"."+name, facts)
		}
	}
	if items, ok := s["items"].(map[string]any); ok {
		schema(items, at+"[]", facts)
	}
	if values, ok := s["additionalProperties"].(map[string]any); ok {
		schema(values, at+"{}", facts)
	}
}

// definitions reads the definitions in a folder.
func definitions(folder string) (map[string]string, error) {
	all := map[string]string{}
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		facts, err := definition(file)
		if err != nil {
			return nil, err
		}
		for k, v := range facts {
			all[k] = v
		}
	}
	return all, nil
}

// Helm's directives in a template: whole lines of them go, one within a line becomes a word.
var (
	directiveLine = regexp.MustCompile(`(?m)^\s*-?\s*\{\{.*\}\}\s*$`)
	directive     = regexp.MustCompile(`\{\{[^}]*\}\}`)
)

// rights returns the rights in the roles of a chart's templates, those under a condition too: "group/resource verb".
func rights(folder string) (map[string]string, error) {
	all := map[string]string{}
	files, err := filepath.Glob(filepath.Join(folder, "templates", "*.yaml"))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		if base := filepath.Base(file); base == "rbac-people.yaml" || base == "aggregate-clusterrole.yaml" {
			continue // rights of people
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		plain := directive.ReplaceAllString(directiveLine.ReplaceAllString(string(text), ""), "x")
		for _, doc := range strings.Split(plain, "\n---") {
			if err := role(doc, all); err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
		}
	}
	return all, nil
}

func role(doc string, all map[string]string) error {
	if !regexp.MustCompile(`(?m)^kind: (Cluster)?Role$`).MatchString(doc) {
		return nil
	}
	var role struct {
		Kind  string
		Rules []struct{ APIGroups, Resources, Verbs, NonResourceURLs []string }
	}
	if err := yaml.Unmarshal([]byte(doc), &role); err != nil {
		return err
	}
	for _, rule := range role.Rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					all[group+"/"+resource+" "+verb] = ""
				}
			}
		}
	}
	return nil
}

// values returns the defaults in a chart's values.yaml, by path.
func values(folder string) (map[string]string, error) {
	text, err := os.ReadFile(filepath.Join(folder, "values.yaml"))
	if err != nil {
		return nil, err
	}
	var tree map[string]any
	if err := yaml.Unmarshal(text, &tree); err != nil {
		return nil, err
	}
	all := map[string]string{}
	flatten(tree, "", all)
	return all, nil
}

func flatten(v any, at string, all map[string]string) {
	if m, ok := v.(map[string]any); ok && len(m) > 0 {
		for name, child := range m {
			flatten(child, strings.TrimPrefix(at+"."+name, "."), all)
		}
		return
	}
	text, _ := json.Marshal(v)
	all[at] = string(text)
}

// compareDefinitions adds to found what differs between definitions, but for fields whose constraints are the same in other words. Those
// are listed in equivalent.txt: each field with a hash of what only theirs and of what only ours says. A change on either side needs another
// look, and then go test ./test/pin -update.
func compareDefinitions(t *testing.T, theirs, ours map[string]string, found *[]string) {
	t.Helper()
	only := map[string]*[2][]string{}
	collect := func(side int, these, those map[string]string) {
		for fact, v := range these {
			field, constraint, _ := strings.Cut(fact, " ")
			_, known := ours[field+" type"]
			if other, same := those[fact]; same && other == v || side == 1 && theirs[field+" type"] == "" {
				continue // a field of our own
			}
			if constraint == "" || constraint == "type" || constraint == "enum" || constraint == "default" || side == 0 && !known {
				*found = append(*found, fmt.Sprintf("definition %s %s: %s", [2]string{"lacks", "adds"}[side], fact, v))
				continue
			}
			if only[field] == nil {
				only[field] = &[2][]string{}
			}
			only[field][side] = append(only[field][side], constraint+v)
		}
	}
	collect(0, theirs, ours)
	collect(1, ours, theirs)
	listed, err := os.ReadFile("equivalent.txt")
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, field := range slices.Sorted(maps.Keys(only)) {
		line := field
		for _, texts := range only[field] {
			slices.Sort(texts)
			sum := sha256.Sum256([]byte(strings.Join(texts, "\n")))
			line += fmt.Sprintf(" %x", sum[:4])
		}
		lines = append(lines, line)
		if !*update && !slices.Contains(strings.Split(string(listed), "\n"), line) {
			t.Errorf("%s: only upstream's:\n\t%s\nonly ours:\n\t%s\nIf they mean the same: go test ./test/pin -update", field,
				strings.Join(only[field][0], "\n\t"), strings.Join(only[field][1], "\n\t"))
		}
	}
	text := strings.Join(lines, "\n") + "\n"
	if *update {
		if err := os.WriteFile("equivalent.txt", []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if text != string(listed) {
		t.Error("equivalent.txt lists fields whose constraints are no different any more: go test ./test/pin -update")
	}
}
