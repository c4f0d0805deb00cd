package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	"karpenter.sh/karpenter/api/crds"
)

// runtimeObject is spelled out so that list items can be walked.
type runtimeObject = runtime.Object

// A crdSchema checks and completes objects of one custom resource as the API server would.
type crdSchema struct {
	structural *structuralschema.Structural
	props      validation.SchemaValidator
	rules      *cel.Validator
}

// customSchemas reads the embedded CRDs.
func customSchemas() (map[schema.GroupVersionKind]*crdSchema, error) {
	out := map[schema.GroupVersionKind]*crdSchema{}
	definitions, err := crds.Definitions()
	if err != nil {
		return nil, err
	}
	for _, crd := range definitions {
		for i := range crd.Spec.Versions {
			v := &crd.Spec.Versions[i]
			s, err := newSchema(v)
			if err != nil {
				return nil, fmt.Errorf("CRD %s: %w", crd.Name, err)
			}
			out[schema.GroupVersionKind{Group: crd.Spec.Group, Version: v.Name, Kind: crd.Spec.Names.Kind}] = s
		}
	}
	return out, nil
}

// newSchema compiles the schema of one version of a definition, with its CEL rules.
func newSchema(v *apiextensionsv1.CustomResourceDefinitionVersion) (*crdSchema, error) {
	var internal apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(v.Schema.OpenAPIV3Schema,
		&internal, nil); err != nil {
		return nil, err
	}
	structural, err := structuralschema.NewStructural(&internal)
	if err != nil {
		return nil, err
	}
	props, _, err := validation.NewSchemaValidator(&internal)
	if err != nil {
		return nil, err
	}
	return &crdSchema{structural: structural, props: props, rules: cel.NewValidator(structural, true, celconfig.PerCallLimit)}, nil
}

// check fills in the defaults of d and refuses what the API server would refuse.
func (s *crdSchema) check(ctx context.Context, d *document) error {
	content := d.obj.Object
	var errs []error
	for _, path := range pruning.PruneWithOptions(content, s.structural, true,
		structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}) {
		errs = append(errs, d.at(d.lineOf(path), "%s %q: unknown field %s; check its spelling and indentation",
			d.obj.GetKind(), d.obj.GetName(), path))
	}
	defaulting.Default(content, s.structural)
	violations := validation.ValidateCustomResource(nil, content, s.props)
	if len(violations) == 0 {
		violations, _ = s.rules.Validate(ctx, nil, s.structural, content, nil, celconfig.RuntimeCELCostBudget)
	}
	for _, v := range violations {
		errs = append(errs, d.violation(v))
	}
	return errors.Join(errs...)
}

// violation returns a violation of the schema as an error with file, line and, where there is one, a hint.
func (d *document) violation(v *field.Error) error {
	path := strings.TrimPrefix(v.Field, "<nil>.")
	text := v.ErrorBody()
	if say := hint(path, v); say != "" {
		text = say
		if !ofWrongType(v) { // then the value is the name of its type
			text = fmt.Sprintf("%v: %s", v.BadValue, say)
		}
	}
	return d.at(d.lineOf(path), "%s %q: %s: %s", d.obj.GetKind(), d.obj.GetName(), path, text)
}

// hints say how to write fields whose schema is a regular expression, because the API server's message shows only the
// expression.
var hints = []struct{ suffix, say string }{
	{".consolidateAfter", "write hours, minutes and seconds, such as 30s, 24h or 1h30m, or Never; there are no days"},
	{".expireAfter", "write hours, minutes and seconds, such as 24h or 720h, or Never; there are no days"},
	{".terminationGracePeriod", "write hours, minutes and seconds, such as 30m or 48h; leave it out for no limit"},
	{"].duration", "write hours and minutes, such as 8h or 1h30m"},
	{"].nodes", "write a number of nodes, such as \"5\", or a part of them from 0% to 100%"},
	{"].schedule", "write the five fields of cron, such as 0 9 * * mon-fri, or @daily; times are UTC"},
	{".volumeSize", "write text in whole Gi, G, Ti or T, such as 100Gi"},
	{".nodeClassRef.group", "write the group without a version, such as " + awsv1.Group},
}

// hint returns what to write instead; "" if the message of the violation is clear by itself, or if no hint is known. "must be set
// together" is in the message of the rule of a NodePool's budgets about schedule and duration (api/karpenter/v1).
func hint(path string, v *field.Error) string {
	if v.Type == field.ErrorTypeRequired || strings.Contains(v.Detail, "must be set together") {
		return ""
	}
	for _, h := range hints {
		if strings.HasSuffix(path, h.suffix) {
			return h.say
		}
	}
	if ofWrongType(v) && strings.Contains(v.Detail, "type string") {
		return "it must be text; put it into quotes"
	}
	return ""
}

// ofWrongType reports whether a violation is about the type of a value.
func ofWrongType(v *field.Error) bool { return strings.Contains(v.Detail, "must be of type") }
