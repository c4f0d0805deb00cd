package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// charts are the folders whose values.yaml is the source of a schema and of a page.
var charts = []string{"charts/karpenter", "charts/karpenter-crd"}

const chartPageHeader = "<!-- Written by \"make gen\" from values.yaml. -->\n"

// openValues are handed on to Kubernetes as they are: they have defaults, and may have other fields than those.
var openValues = []string{"strategy", "podSecurityContext", "nodeSelector", "affinity", "dashboards.labels"}

// freeValues may be of more than one kind.
var freeValues = []string{"settings.schedulerConfig", "podDisruptionBudget.maxUnavailable",
	"terminationGracePeriodSeconds", "serviceMonitor.sampleLimit", "initContainers"}

// oldValues are of older charts, or of charts that hold this one. They pass the schema because templates/_checks.tpl says what to write
// instead, NOTES.txt that they have no effect, or because they are Helm's own.
var oldValues = map[string][]string{
	"": {"aws", "clusterEndpoint", "clusterName", "enabled", "extraObjects", "global",
		"logConfig", "logEncoding", "postInstallHook", "webhook"},
	"controller":            {"batchIdleDuration", "batchMaxDuration", "errorOutputPaths", "logLevel", "outputPaths"},
	"settings":              {"assumeRoleARN", "assumeRoleDuration", "aws"},
	"settings.featureGates": {"drift", "driftEnabled"},
}

// A value is one line of a values.yaml, and those below it.
type value struct {
	path, text, deflt string
	node              *yaml.Node
	below             []value
}

// chartFiles are the schema and the page of each chart, by path.
func chartFiles() (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, folder := range charts {
		source, err := os.ReadFile(filepath.Join(folder, "values.yaml"))
		if err != nil {
			return nil, err
		}
		all, err := valuesOf(source)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", folder, err)
		}
		old := oldValues
		if folder != charts[0] {
			old = map[string][]string{"": {"enabled", "global"}}
		}
		schema := object(all, "", old)
		schema["$schema"] = "http://json-schema.org/draft-07/schema#"
		text, err := json.MarshalIndent(schema, "", "  ")
		if err != nil {
			return nil, err
		}
		files[filepath.Join(folder, "values.schema.json")] = append(text, '\n')
		files[filepath.Join(folder, "README.md")] = chartPage(filepath.Base(folder), all)
	}
	return files, nil
}

func valuesOf(source []byte) ([]value, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(source, &document); err != nil {
		return nil, err
	}
	return valuesBelow(document.Content[0], "")
}

func valuesBelow(m *yaml.Node, path string) ([]value, error) {
	var all []value
	for i := 0; i < len(m.Content); i += 2 {
		key, node := m.Content[i], m.Content[i+1]
		v := value{path: path + key.Value, node: node, text: comment(key.HeadComment)}
		if node.Kind == yaml.MappingNode && len(node.Content) > 0 && !slices.Contains(openValues, v.path) {
			below, err := valuesBelow(node, v.path+".")
			if err != nil {
				return nil, err
			}
			v.below = below
		} else {
			var plain any
			if err := node.Decode(&plain); err != nil {
				return nil, err
			}
			text, err := json.Marshal(plain)
			if err != nil {
				return nil, err
			}
			v.deflt = string(text)
		}
		all = append(all, v)
	}
	return all, nil
}

// comment is what stands above a key, in one line. What is set apart by an empty line belongs to no key.
func comment(text string) string {
	paragraphs := strings.Split(text, "\n\n")
	var words []string
	for line := range strings.Lines(paragraphs[len(paragraphs)-1]) {
		words = append(words, strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "#")))
	}
	return strings.Join(words, " ")
}

func object(all []value, path string, old map[string][]string) map[string]any {
	properties := map[string]any{}
	for _, v := range all {
		properties[strings.TrimPrefix(v.path[len(path):], ".")] = v.schema(old)
	}
	for _, name := range old[path] {
		properties[name] = map[string]any{"description": "of an older chart, or of one that holds this one"}
	}
	return map[string]any{"type": "object", "additionalProperties": false, "properties": properties}
}

var (
	oneOf    = regexp.MustCompile(`One of ([\w, ]+)\.`)
	duration = regexp.MustCompile(`^\d+(s|m|h)$`)
)

const template = `|^.*\{\{.*\}\}.*$` // what settings may be besides

// schema says what a value may be. A setting may be written as text, since it becomes text, and hold a template.
func (v value) schema(old map[string][]string) map[string]any {
	s := map[string]any{}
	setting := strings.HasPrefix(v.path, "settings.")
	words := oneOf.FindStringSubmatch(v.text)
	switch {
	case len(v.below) > 0:
		s = object(v.below, v.path, old)
	case slices.Contains(freeValues, v.path):
	case words != nil:
		s["enum"] = strings.Split(words[1], ", ")
	case v.node.Kind == yaml.MappingNode:
		s["type"] = []string{"object", "null"}
	case v.node.Kind == yaml.SequenceNode:
		s["type"] = []string{"array", "null"}
	case (v.node.Tag == "!!bool" || v.node.Tag == "!!null") && setting: // null: what another value implies
		s["type"], s["pattern"] = []string{"boolean", "string", "null"}, "^(true|false)$"+template
	case v.node.Tag == "!!bool":
		s["type"] = []string{"boolean", "null"}
	case (v.node.Tag == "!!int" || v.node.Tag == "!!float") && setting:
		s["type"], s["minimum"], s["pattern"] = []string{"number", "string", "null"}, 0, `^[0-9]*\.?[0-9]+$`+template
	case v.node.Tag == "!!int":
		s["type"], s["minimum"] = []string{"integer", "null"}, 0
	case duration.MatchString(v.node.Value):
		s["type"], s["pattern"] = []string{"string", "null"}, `^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`+template
	default:
		s["type"] = []string{"string", "number", "null"} // a tag such as 1.0 is a number to --set
	}
	if v.text != "" {
		s["description"] = v.text
	}
	return s
}

// chartPage is the table of a chart's values.
func chartPage(name string, all []value) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Values of the chart %s\n\n%s\n| Value | Default | Meaning |\n|---|---|---|\n", name, chartPageHeader)
	var list func([]value)
	list = func(all []value) {
		for _, v := range all {
			if len(v.below) > 0 {
				if v.text != "" {
					fmt.Fprintf(&b, "| `%s` | | %s |\n", v.path, cell(v.text))
				}
				list(v.below)
				continue
			}
			fmt.Fprintf(&b, "| `%s` | `%s` | %s |\n", v.path, cell(v.deflt), cell(v.text))
		}
	}
	list(all)
	b.WriteString("\nOther values are refused. So are those of older charts that would have no effect here, with what to write instead.\n")
	return b.Bytes()
}
