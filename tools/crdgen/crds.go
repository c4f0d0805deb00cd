package main

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-tools/pkg/crd"
	"sigs.k8s.io/controller-tools/pkg/loader"
	"sigs.k8s.io/controller-tools/pkg/markers"
	"sigs.k8s.io/yaml"
)

// besideSource puts generated code next to the package that it belongs to.
type besideSource struct{}

func (besideSource) Open(pkg *loader.Package, name string) (io.WriteCloser, error) {
	return os.Create(filepath.Join(filepath.Dir(pkg.CompiledGoFiles[0]), name))
}

const (
	crdFolder   = "api/crds"
	chartFolder = "charts/karpenter-crd/templates"
	// firstFolder is in the controller's chart. Helm creates what is there on the first install and never touches it again.
	firstFolder = "charts/karpenter/crds"
	fileHeader  = "# Generated from the Go types under api by \"make gen\". Do not edit.\n"
)

// buildCRDs makes the CRDs of all API packages, ordered by name.
func buildCRDs() ([]apiextensionsv1.CustomResourceDefinition, error) {
	roots, err := loader.LoadRoots(patterns()...)
	if err != nil {
		return nil, err
	}
	registry := &markers.Registry{}
	if err := (crd.Generator{}).RegisterMarkers(registry); err != nil {
		return nil, err
	}
	if err := registerMarkers(registry); err != nil {
		return nil, err
	}
	parser := &crd.Parser{Collector: &markers.Collector{Registry: registry}, Checker: &loader.TypeChecker{}}
	crd.AddKnownTypes(parser)
	for _, root := range roots {
		parser.NeedPackage(root)
	}
	var out []apiextensionsv1.CustomResourceDefinition
	for _, kind := range crd.FindKubeKinds(parser, crd.FindMetav1(roots)) {
		parser.NeedCRDFor(kind, nil)
		definition := parser.CustomResourceDefinitions[kind]
		crd.FixTopLevelMetadata(definition)
		for i := range definition.Spec.Versions {
			crd.EditSchema(definition.Spec.Versions[i].Schema.OpenAPIV3Schema, joinLines{})
		}
		out = append(out, definition)
	}
	// Type checking stops at what the schemas need, so type errors are expected; the compiler reports real ones.
	if loader.PrintErrors(roots, packages.TypeError) {
		return nil, fmt.Errorf("the API packages have errors")
	}
	slices.SortFunc(out, func(a, b apiextensionsv1.CustomResourceDefinition) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}

// joinLines makes one line of each paragraph of a description: comments are wrapped for readers of the source, and kubectl
// explain wraps for itself.
type joinLines struct{}

func (j joinLines) Visit(schema *apiextensionsv1.JSONSchemaProps) crd.SchemaVisitor {
	if schema == nil {
		return j
	}
	paragraphs := strings.Split(schema.Description, "\n\n")
	for i, p := range paragraphs {
		paragraphs[i] = strings.Join(strings.Fields(p), " ")
	}
	schema.Description = strings.Join(paragraphs, "\n\n")
	return j
}

// crdFiles are the texts of the CRDs by path: each for the embedding package, for the chart of the CRDs, and for the controller's chart.
func crdFiles(crds []apiextensionsv1.CustomResourceDefinition) (map[string][]byte, error) {
	files := map[string][]byte{}
	for i := range crds {
		text, err := crdYAML(&crds[i])
		if err != nil {
			return nil, err
		}
		name := fmt.Sprintf("%s_%s.yaml", crds[i].Spec.Group, crds[i].Spec.Names.Plural)
		files[filepath.Join(crdFolder, name)] = text
		files[filepath.Join(firstFolder, name)] = text
		files[filepath.Join(chartFolder, name)] = asTemplate(text)
	}
	return files, nil
}

// olderFiles takes the versions that are not stored out of the CRDs and returns their texts by path. The controller adds them to the
// definitions in a cluster when it is there to convert them; a definition that names them without a converter cannot be read.
func olderFiles(crds []apiextensionsv1.CustomResourceDefinition) (map[string][]byte, error) {
	files := map[string][]byte{}
	for i := range crds {
		spec := &crds[i].Spec
		for _, version := range spec.Versions {
			if version.Storage {
				continue
			}
			text, err := yaml.Marshal(version)
			if err != nil {
				return nil, err
			}
			name := filepath.Join(crdFolder, version.Name, fmt.Sprintf("%s_%s.yaml", spec.Group, spec.Names.Plural))
			files[name] = append([]byte(fileHeader), text...)
		}
		spec.Versions = slices.DeleteFunc(spec.Versions,
			func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return !v.Storage })
	}
	return files, nil
}

// asTemplate makes a chart template of a CRD: the chart's value additionalAnnotations is put on every CRD, and what looks like
// template code in the CRD itself stays text. Helm keeps CRDs when the chart is uninstalled: with them would go every
// NodeClaim, hence every machine.
func asTemplate(text []byte) []byte {
	text = bytes.ReplaceAll(text, []byte("{{"), []byte("{{ \"{{\" }}"))
	return bytes.Replace(text, []byte("metadata:\n"), []byte("metadata:\n"+annotations), 1)
}

const annotations = `  annotations:
    {{- toYaml (merge (dict) (.Values.additionalAnnotations | default dict) (dict "helm.sh/resource-policy" "keep")) | nindent 4 }}
`

func crdYAML(definition *apiextensionsv1.CustomResourceDefinition) ([]byte, error) {
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(definition)
	if err != nil {
		return nil, err
	}
	delete(object, "status")
	if metadata, ok := object["metadata"].(map[string]any); ok {
		delete(metadata, "creationTimestamp")
	}
	text, err := yaml.Marshal(object)
	if err != nil {
		return nil, err
	}
	return bytes.Join([][]byte{[]byte(fileHeader), text}, nil), nil
}
