//go:build apiserver

package apiserver

import (
	"cmp"
	"errors"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// A constraint is one thing that a generated schema asks of one field. Every one of them has to be refused in some test, so a
// rule cannot come into the schemas unnoticed, and none can stand there without effect.
type constraint struct{ kind, field, what string }

// checkCoverage fails for each constraint of the kinds' schemas that no test ran into.
func checkCoverage(t *testing.T, kinds map[string]string, refused map[constraint]bool) {
	t.Helper()
	all := map[constraint]bool{}
	for kind := range kinds {
		schema := schemas[kind]
		for _, part := range []string{"spec", "status"} {
			if property, ok := schema.Properties[part]; ok {
				walk(kind, part, &property, all)
			}
		}
		for _, name := range schema.Required {
			all[constraint{kind, name, "required"}] = true
		}
	}
	t.Logf("the schemas hold %d constraints", len(all))
	for _, c := range slices.SortedFunc(maps.Keys(all), func(a, b constraint) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.field, b.field), cmp.Compare(a.what, b.what))
	}) {
		if !refused[c] {
			t.Errorf("no test is refused by %s of %s %s", c.what, c.kind, c.field)
		}
	}
}

// walk collects the constraints of a schema. List items are written [], map values {}.
func walk(kind, field string, s *apiextensionsv1.JSONSchemaProps, into map[constraint]bool) {
	add := func(present bool, what string) {
		if present {
			into[constraint{kind, field, what}] = true
		}
	}
	add(s.Pattern != "", "pattern")
	add(len(s.Enum) > 0, "enum")
	add(s.Minimum != nil, "minimum")
	add(s.Maximum != nil, "maximum")
	add(s.MinLength != nil, "minLength")
	add(s.MaxLength != nil, "maxLength")
	add(s.MinItems != nil, "minItems")
	add(s.MaxItems != nil, "maxItems")
	add(s.MaxProperties != nil, "maxProperties")
	add(s.XListType != nil && *s.XListType != "atomic", "unique")
	for _, v := range s.XValidations {
		add(true, v.Message)
	}
	for _, name := range s.Required {
		property := s.Properties[name]
		if property.Default == nil { // what is defaulted cannot be missing
			into[constraint{kind, field + "." + name, "required"}] = true
		}
	}
	for name, property := range s.Properties {
		walk(kind, field+"."+name, &property, into)
	}
	if s.Items != nil && s.Items.Schema != nil {
		walk(kind, field+"[]", s.Items.Schema, into)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		walk(kind, field+"{}", s.AdditionalProperties.Schema, into)
	}
}

var (
	index   = regexp.MustCompile(`\[[0-9]+\]`)
	mapKeys = regexp.MustCompile(`^(.*\b(?:labels|limits|capacity|allocatable|requests|resources|systemReserved|kubeReserved))(?:\.[^\[]+|\[.*\])$`)
)

// noteRefusal records which constraints an answer of the server names.
func noteRefusal(kind string, err error, refused map[constraint]bool) {
	var status *apierrors.StatusError
	if !errors.As(err, &status) {
		return
	}
	for _, cause := range causes(status) {
		field := index.ReplaceAllString(cause.Field, "[]")
		if schemaAt(schemas[kind], field) == nil { // no field, so a key of a map
			field = mapKeys.ReplaceAllString(field, "$1{}")
		}
		for _, what := range named(cause.Message) {
			refused[constraint{kind, field, what}] = true
		}
		for _, rule := range validations(schemas[kind], field) {
			if strings.Contains(cause.Message, rule) {
				refused[constraint{kind, field, rule}] = true
			}
		}
		// Uniqueness is reported for the item that comes second.
		if strings.Contains(cause.Message, "Duplicate value") {
			refused[constraint{kind, strings.TrimSuffix(field, "[]"), "unique"}] = true
		}
	}
}

// named says which kinds of constraint a message of the server is about.
func named(message string) []string {
	var out []string
	for text, what := range map[string]string{
		"Required value":                  "required",
		"Unsupported value":               "enum",
		"should match":                    "pattern",
		"greater than or equal to":        "minimum",
		"less than or equal to":           "maximum",
		"Too long":                        "maxLength",
		"should be at least 1 chars long": "minLength",
		"should have at least":            "minItems",
		"must have at most":               "maxItems",
		"Too many":                        "maxItems",
	} {
		if strings.Contains(message, text) {
			out = append(out, what)
		}
	}
	if strings.Contains(message, "must have at most") || strings.Contains(message, "Too many") {
		out = append(out, "maxProperties")
	}
	return out
}

// validations returns the messages of the CEL rules of one field.
func validations(s *apiextensionsv1.JSONSchemaProps, field string) []string {
	at := schemaAt(s, field)
	if at == nil {
		return nil
	}
	var out []string
	for _, v := range at.XValidations {
		out = append(out, v.Message)
	}
	return out
}

// schemaAt returns the schema of one field, nil if there is no such field.
func schemaAt(s *apiextensionsv1.JSONSchemaProps, field string) *apiextensionsv1.JSONSchemaProps {
	for field != "" && s != nil {
		field = strings.TrimPrefix(field, ".")
		switch {
		case strings.HasPrefix(field, "[]"):
			field = field[2:]
			if s.Items == nil {
				return nil
			}
			s = s.Items.Schema
		case strings.HasPrefix(field, "{}"):
			field = field[2:]
			if s.AdditionalProperties == nil {
				return nil
			}
			s = s.AdditionalProperties.Schema
		default:
			end := strings.IndexAny(field, ".[{")
			if end < 0 {
				end = len(field)
			}
			property, ok := s.Properties[field[:end]]
			if !ok {
				return nil
			}
			field, s = field[end:], &property
		}
	}
	return s
}
