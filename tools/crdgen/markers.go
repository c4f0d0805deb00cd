package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdmarkers "sigs.k8s.io/controller-tools/pkg/crd/markers"
	"sigs.k8s.io/controller-tools/pkg/markers"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/label"
)

// The markers of this file say in the Go types what controller-gen's own markers cannot: rules that are made from the
// tables of the API packages, values of maps, and constraints on types that belong to Kubernetes.

func registerMarkers(registry *markers.Registry) error {
	for name, example := range map[string]any{
		"karpenter:labelKey":         labelKey{},
		"karpenter:labelKeys":        labelKeys{},
		"karpenter:mapValues":        mapValues{},
		"karpenter:taints":           taints{},
		"karpenter:sparseConditions": sparseConditions{},
		"karpenter:restrictedTags":   restrictedTags{},
	} {
		if err := register(registry, name, markers.DescribesField, example); err != nil {
			return err
		}
	}
	return register(registry, "karpenter:amiFamilyMatchesAlias", markers.DescribesType, amiFamilyMatchesAlias{})
}

func register(registry *markers.Registry, name string, target markers.TargetType, example any) error {
	definition, err := markers.MakeDefinition(name, target, example)
	if err != nil {
		return err
	}
	return registry.Register(definition)
}

// last makes a marker apply after controller-gen's own, so that rules stand in one order whatever order a map is walked in.
type last struct{}

func (last) ApplyPriority() crdmarkers.ApplyPriority { return crdmarkers.ApplyPriorityDefault + 1 }

func addRule(schema *apiextensionsv1.JSONSchemaProps, rule, message string) {
	schema.XValidations = append(schema.XValidations, apiextensionsv1.ValidationRule{Rule: rule, Message: message})
}

// keyRule is a CEL expression about a label key, written with %s where the key stands.
type keyRule struct{ expression, message string }

// keyRules are the rules on label keys that the named tables make. A schema compares texts: it refuses any domain that ends
// like a restricted one.
func keyRules(tables []string) ([]keyRule, error) {
	var rules []keyRule
	for _, name := range tables {
		table, err := tableNamed(name)
		if err != nil {
			return nil, err
		}
		for _, domain := range table.RestrictedDomains {
			rules = append(rules, keyRule{
				expression: fmt.Sprintf("%%[1]s in [%s] || !%%[1]s.find('^[^/]*').endsWith('%s')", quoted(allowed(table, domain)), domain),
				message:    fmt.Sprintf("label domain %q is restricted", domain),
			})
		}
		for _, l := range table.Labels {
			if l.Restricted {
				rules = append(rules, keyRule{
					expression: fmt.Sprintf("%%[1]s != '%s'", l.Key),
					message:    fmt.Sprintf("label %q is restricted", l.Key),
				})
			}
		}
	}
	return rules, nil
}

func tableNamed(name string) (label.Table, error) {
	switch name {
	case "core":
		return v1.Labels(), nil
	case "aws":
		return awsv1.Labels(), nil
	default:
		return label.Table{}, fmt.Errorf("no label table is called %q", name)
	}
}

// allowed lists the labels of a restricted domain that may be asked for.
func allowed(table label.Table, domain string) []string {
	var keys []string
	for _, l := range table.Labels {
		prefix, _, _ := strings.Cut(l.Key, "/")
		if strings.HasSuffix(prefix, domain) && (l.WellKnown || l.Requirable) {
			keys = append(keys, l.Key)
		}
	}
	slices.Sort(keys)
	return keys
}

func quoted(texts []string) string {
	out := make([]string, len(texts))
	for i, text := range texts {
		out[i] = "'" + text + "'"
	}
	return strings.Join(out, ", ")
}

// labelKey puts the rules of label tables on a text that is a label key.
type labelKey struct {
	last
	Tables []string `marker:"tables"`
}

func (m labelKey) ApplyToSchema(_ *crdmarkers.SchemaContext, schema *apiextensionsv1.JSONSchemaProps) error {
	rules, err := keyRules(m.Tables)
	if err != nil {
		return err
	}
	for _, r := range rules {
		addRule(schema, fmt.Sprintf(r.expression, "self"), r.message)
	}
	return nil
}

// labelKeys puts the rules of label tables on the keys of a map.
type labelKeys struct {
	last
	Tables []string `marker:"tables"`
}

func (m labelKeys) ApplyToSchema(_ *crdmarkers.SchemaContext, schema *apiextensionsv1.JSONSchemaProps) error {
	rules, err := keyRules(m.Tables)
	if err != nil {
		return err
	}
	for _, r := range rules {
		addRule(schema, fmt.Sprintf("self.all(k, %s)", fmt.Sprintf(r.expression, "k")), r.message)
	}
	return nil
}

// mapValues limits the values of a map.
type mapValues struct {
	last
	MaxLength int    `marker:"maxLength"`
	Pattern   string `marker:"pattern"`
}

func (m mapValues) ApplyToSchema(_ *crdmarkers.SchemaContext, schema *apiextensionsv1.JSONSchemaProps) error {
	if schema.AdditionalProperties == nil || schema.AdditionalProperties.Schema == nil {
		return fmt.Errorf("karpenter:mapValues needs a map")
	}
	limit := int64(m.MaxLength)
	schema.AdditionalProperties.Schema.MaxLength = &limit
	schema.AdditionalProperties.Schema.Pattern = m.Pattern
	return nil
}

const qualifiedKey = `^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$`

// taints replaces what Kubernetes' own Taint type says in its comments by a schema that checks it.
type taints struct{ last }

func (taints) ApplyToSchema(_ *crdmarkers.SchemaContext, schema *apiextensionsv1.JSONSchemaProps) error {
	one := int64(1)
	schema.Items = &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &apiextensionsv1.JSONSchemaProps{
		Type:        "object",
		Description: "Taint keeps pods that do not tolerate it away from the node.",
		Required:    []string{"effect", "key"},
		Properties: map[string]apiextensionsv1.JSONSchemaProps{
			"key":   {Type: "string", MinLength: &one, Pattern: qualifiedKey, Description: "Key of the taint."},
			"value": {Type: "string", Pattern: qualifiedKey, Description: "Value of the taint."},
			"effect": {
				Type: "string", Enum: texts("NoSchedule", "PreferNoSchedule", "NoExecute"),
				Description: "Effect on pods that do not tolerate the taint: they are not scheduled to the node " +
					"(NoSchedule), only if there is no\nother (PreferNoSchedule), or they are also evicted from it (NoExecute).",
			},
			"timeAdded": {Type: "string", Format: "date-time", Description: "TimeAdded is when the taint was put on a node."},
		},
	}}
	return nil
}

func texts(values ...string) []apiextensionsv1.JSON {
	out := make([]apiextensionsv1.JSON, len(values))
	for i, value := range values {
		out[i] = apiextensionsv1.JSON{Raw: []byte(`"` + value + `"`)}
	}
	return out
}

// sparseConditions is a list of conditions that need neither a reason nor a message.
type sparseConditions struct{ last }

func (sparseConditions) ApplyToSchema(_ *crdmarkers.SchemaContext, schema *apiextensionsv1.JSONSchemaProps) error {
	var (
		zero                            = 0.0
		typeMax, reasonMax, messageMax  = int64(316), int64(1024), int64(32768)
		conditionType, conditionMessage = qualifiedKey, "Message says it in words for people."
	)
	schema.Items = &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &apiextensionsv1.JSONSchemaProps{
		Type:        "object",
		Description: "Condition is one thing that is observed of the object.",
		Required:    []string{"lastTransitionTime", "status", "type"},
		Properties: map[string]apiextensionsv1.JSONSchemaProps{
			"type":   {Type: "string", MaxLength: &typeMax, Pattern: conditionType, Description: "Type of the condition."},
			"status": {Type: "string", Enum: texts("True", "False", "Unknown"), Description: "Status of the condition."},
			"reason": {
				Type: "string", MaxLength: &reasonMax, Pattern: `^([A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?)?$`,
				Description: "Reason is one word that says why the condition has its status.",
			},
			"message": {Type: "string", MaxLength: &messageMax, Description: conditionMessage},
			"observedGeneration": {
				Type: "integer", Format: "int64", Minimum: &zero,
				Description: "ObservedGeneration is the generation of the object that the condition is about.",
			},
			"lastTransitionTime": {Type: "string", Format: "date-time",
				Description: "LastTransitionTime is when the status last changed."},
		},
	}}
	return nil
}

// restrictedTags refuses tag keys that the controller sets itself.
type restrictedTags struct{ last }

func (restrictedTags) ApplyToSchema(_ *crdmarkers.SchemaContext, schema *apiextensionsv1.JSONSchemaProps) error {
	for _, key := range awsv1.RestrictedTags() {
		addRule(schema, fmt.Sprintf("self.all(k, k != '%s')", key), fmt.Sprintf("tag %q is set by the controller", key))
	}
	addRule(schema, fmt.Sprintf("self.all(k, !k.startsWith('%s'))", awsv1.RestrictedTagPrefix),
		fmt.Sprintf("tags that begin with %q are set by the controller", awsv1.RestrictedTagPrefix))
	return nil
}

// amiFamilyMatchesAlias makes one rule for each family that an alias can name.
type amiFamilyMatchesAlias struct{ last }

func (amiFamilyMatchesAlias) ApplyToSchema(_ *crdmarkers.SchemaContext, schema *apiextensionsv1.JSONSchemaProps) error {
	families := awsv1.AliasFamilies()
	for _, word := range slices.Sorted(maps.Keys(families)) {
		addRule(schema,
			fmt.Sprintf("!has(self.amiFamily) || self.amiFamily in ['%s', '%s'] || !self.amiSelectorTerms.exists(t, "+
				"has(t.alias) && t.alias.startsWith('%s@'))",
				families[word], awsv1.AMIFamilyCustom, word),
			fmt.Sprintf("amiFamily must be %s or %s with an alias of family %s", families[word], awsv1.AMIFamilyCustom, word))
	}
	return nil
}
