package main

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/label"
)

const (
	referenceFolder = "docs/reference"
	pageHeader      = "<!-- Generated from the Go types under api by \"make gen\". Do not edit. -->\n\n"
)

// The files with constants that the reference lists.
var (
	keyFiles       = []string{"api/karpenter/v1/labels.go", "api/aws/v1/labels.go"}
	conditionFiles = []string{
		"api/condition/condition.go", "api/karpenter/v1/conditions.go", "api/karpenter/v1alpha1/conditions.go",
		"api/autoscaling/v1beta1/conditions.go", "api/aws/v1/conditions.go",
	}
)

// referenceFiles are the reference pages by path: one per kind, one about labels, annotations and taints, one about conditions.
func referenceFiles(crds []apiextensionsv1.CustomResourceDefinition) (map[string][]byte, error) {
	pages := map[string]string{}
	index := "# API reference\n\n"
	for i := range crds {
		name := crds[i].Spec.Names.Singular
		pages[name] = kindPage(&crds[i])
		index += fmt.Sprintf("- [%s](%s.md), `%s/%s`\n", crds[i].Spec.Names.Kind, name, crds[i].Spec.Group, crds[i].Spec.Versions[0].Name)
	}
	constants, err := readConstants(slices.Concat(keyFiles, conditionFiles)...)
	if err != nil {
		return nil, err
	}
	pages["labels"], pages["conditions"] = labelPage(constants), conditionPage(constants)
	pages["README"] = index + "- [Labels, annotations, taints, finalizers and tags](labels.md)\n- [Conditions and " +
		"their reasons](conditions.md)\n\n" +
		"Written from other tables of the code: [settings](settings.md), [metrics](metrics.md), [events](events.md), and\n" +
		"[what pods get of every EC2 instance type](allocatable.md).\n"
	files := map[string][]byte{}
	for name, page := range pages {
		files[filepath.Join(referenceFolder, name+".md")] = []byte(pageHeader + page)
	}
	return files, nil
}

// kindPage describes one kind: its names, its columns, and every field.
func kindPage(definition *apiextensionsv1.CustomResourceDefinition) string {
	version, names := definition.Spec.Versions[0], definition.Spec.Names
	schema := version.Schema.OpenAPIV3Schema
	var page strings.Builder
	fmt.Fprintf(&page, "# %s\n\n%s\n\n", names.Kind, schema.Description)
	page.WriteString("| | |\n|---|---|\n")
	fmt.Fprintf(&page, "| apiVersion | `%s/%s` |\n| scope | %s |\n| names | %s |\n", definition.Spec.Group,
		version.Name, definition.Spec.Scope,
		code(slices.Concat([]string{names.Plural, names.Singular}, names.ShortNames)))
	fmt.Fprintf(&page, "| categories | %s |\n", code(names.Categories))
	if scale := version.Subresources.Scale; scale != nil {
		fmt.Fprintf(&page, "| scale | `%s`, observed in `%s` |\n", scale.SpecReplicasPath, scale.StatusReplicasPath)
	}
	page.WriteString("\n## Columns\n\n| Column | Shows | |\n|---|---|---|\n")
	for _, column := range version.AdditionalPrinterColumns {
		wide := ""
		if column.Priority > 0 {
			wide = "with `-o wide`"
		}
		fmt.Fprintf(&page, "| %s | `%s` | %s |\n", column.Name, cell(column.JSONPath), wide)
	}
	for _, part := range []string{"spec", "status"} {
		property := schema.Properties[part]
		fmt.Fprintf(&page, "\n## %s\n\n%s\n\n", part, property.Description)
		writeRules(&page, &property)
		page.WriteString("| Field | Type | Default | Rules | Meaning |\n|---|---|---|---|---|\n")
		writeFields(&page, part, &property)
	}
	return page.String()
}

// writeRules writes the CEL rules of an object as a list.
func writeRules(page *strings.Builder, schema *apiextensionsv1.JSONSchemaProps) {
	for _, rule := range schema.XValidations {
		fmt.Fprintf(page, "- %s\n", rule.Message)
	}
	if len(schema.XValidations) > 0 {
		page.WriteString("\n")
	}
}

// writeFields writes one row per field, depth first.
func writeFields(page *strings.Builder, path string, schema *apiextensionsv1.JSONSchemaProps) {
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		property := schema.Properties[name]
		field := path + "." + name
		fallback := ""
		if property.Default != nil {
			fallback = "`" + cell(string(property.Default.Raw)) + "`"
		}
		rules := rulesOf(&property)
		if slices.Contains(schema.Required, name) && property.Default == nil {
			rules = append([]string{"required"}, rules...)
		}
		meaning := cell(property.Description)
		if name == "conditions" && path == "status" {
			meaning += " See [conditions](conditions.md)."
		}
		fmt.Fprintf(page, "| `%s` | %s | %s | %s | %s |\n", field, typeOf(&property), fallback, strings.Join(rules, "; "), meaning)
		if name == "conditions" && path == "status" {
			continue // described once, on its own page
		}
		writeFields(page, field, &property)
		if items := property.Items; items != nil && items.Schema != nil {
			writeFields(page, field+"[]", items.Schema)
		}
	}
}

// typeOf names a field's type as users write it.
func typeOf(s *apiextensionsv1.JSONSchemaProps) string {
	switch {
	case s.XIntOrString:
		return "quantity"
	case s.Type == "array" && s.Items != nil && s.Items.Schema != nil:
		return "list of " + typeOf(s.Items.Schema)
	case s.Type == "object" && s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil:
		return "map of " + typeOf(s.AdditionalProperties.Schema)
	case s.Format != "":
		return s.Type + " (" + s.Format + ")"
	default:
		return s.Type
	}
}

// rulesOf says in words what a schema asks of a value, of the items of a list and of the values of a map.
func rulesOf(s *apiextensionsv1.JSONSchemaProps) []string {
	var rules []string
	add := func(format string, args ...any) { rules = append(rules, cell(fmt.Sprintf(format, args...))) }
	if len(s.Enum) > 0 {
		values := make([]string, len(s.Enum))
		for i, value := range s.Enum {
			values[i] = "`" + strings.Trim(string(value.Raw), `"`) + "`"
		}
		add("one of %s", strings.Join(values, ", "))
	}
	if s.Minimum != nil {
		add("at least %v", *s.Minimum)
	}
	if s.Maximum != nil {
		add("at most %d", int64(*s.Maximum))
	}
	if s.MinLength != nil {
		add("not empty")
	}
	if s.MaxLength != nil {
		add("at most %d characters", *s.MaxLength)
	}
	if s.MinItems != nil {
		add("at least %d", *s.MinItems)
	}
	if s.MaxItems != nil {
		add("at most %d items", *s.MaxItems)
	}
	if s.MaxProperties != nil {
		add("at most %d entries", *s.MaxProperties)
	}
	if s.XListType != nil && *s.XListType == "set" {
		add("each once")
	}
	if s.Pattern != "" && !s.XIntOrString {
		add("matches `%s`", s.Pattern)
	}
	for _, rule := range s.XValidations {
		add("%s", rule.Message)
	}
	if s.Items != nil && s.Items.Schema != nil {
		for _, rule := range rulesOf(s.Items.Schema) {
			rules = append(rules, "each: "+rule)
		}
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		for _, rule := range rulesOf(s.AdditionalProperties.Schema) {
			rules = append(rules, "values: "+rule)
		}
	}
	return rules
}

// cell makes text fit for a table cell.
func cell(text string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", "\\|")
}

func code(texts []string) string {
	out := make([]string, len(texts))
	for i, text := range texts {
		out[i] = "`" + text + "`"
	}
	return strings.Join(out, ", ")
}

// labelPage lists what is known about labels, and every other key.
func labelPage(constants sources) string {
	var page strings.Builder
	page.WriteString("# Labels, annotations, taints, finalizers and tags\n\n## Node labels\n\n")
	page.WriteString("*well-known*: pods may ask for it although no pool names it. *restricted*: no pod may ask for " +
		"it. *numeric*: holds whole numbers,\n" +
		"so `Gt`, `Lt`, `Gte` and `Lte` make sense. *owned*: set by Karpenter, pools may neither set nor require it. " +
		"*closed*: a pool that\n" +
		"allows none of the values is refused. All other labels of the domains ")
	page.WriteString(code(slices.Concat(v1.Labels().RestrictedDomains, awsv1.Labels().RestrictedDomains)))
	page.WriteString(" are restricted.\n\n| Label | Flags | Values | Older keys | Meaning |\n|---|---|---|---|---|\n")
	for _, l := range label.NewVocabulary(v1.Labels(), awsv1.Labels()).Labels() {
		fmt.Fprintf(&page, "| `%s` | %s | %s | %s | %s |\n", l.Key, strings.Join(flags(l), ", "), code(l.Values),
			code(l.Aliases), cell(l.Doc))
	}
	for _, file := range keyFiles {
		for _, g := range constants[file] {
			if g.listed() {
				writeConstants(&page, g)
			}
		}
	}
	return page.String()
}

func flags(l label.Label) []string {
	var out []string
	for _, flag := range []struct {
		set  bool
		name string
	}{
		{l.WellKnown, "well-known"}, {l.Restricted, "restricted"}, {l.Numeric, "numeric"}, {l.Owned, "owned"},
		{l.Closed, "closed"}, {l.Reservation, "reservation"},
	} {
		if flag.set {
			out = append(out, flag.name)
		}
	}
	return out
}

// conditionPage lists the conditions of all kinds and their reasons.
func conditionPage(constants sources) string {
	var page strings.Builder
	page.WriteString("# Conditions and their reasons\n\nA condition has a `type`, a `status` (`True`, `False` or " +
		"`Unknown`), a `reason` in one word, a `message` for people, the\n" +
		"`observedGeneration` of the object that it is about, and the time of its last change of status. `Ready` is " +
		"`True` when all conditions\nthat it sums up are `True` for the object as it stands now.\n")
	for _, file := range conditionFiles {
		for _, g := range constants[file] {
			writeConstants(&page, g)
		}
	}
	return page.String()
}

func writeConstants(page *strings.Builder, g group) {
	title, rest, _ := strings.Cut(g.title, ".")
	fmt.Fprintf(page, "\n## %s\n\n", title)
	if rest = strings.TrimSpace(rest); rest != "" {
		fmt.Fprintf(page, "%s\n\n", rest)
	}
	page.WriteString("| Text | Meaning |\n|---|---|\n")
	for _, c := range g.constants {
		fmt.Fprintf(page, "| `%s` | %s |\n", c.value, cell(c.doc))
	}
}
