// Package crds holds the CustomResourceDefinitions of all kinds of Karpenter, generated from the Go types, as YAML.
package crds

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// Files holds one YAML file per kind, named <group>_<plural>.yaml.
//
//go:embed *.yaml
var Files embed.FS

// older holds the version v1beta1 of each kind that has it, named v1beta1/<group>_<plural>.yaml: an entry of the definition's versions.
//
//go:embed v1beta1/*.yaml
var older embed.FS

// Older returns the version v1beta1 of the definition with this name, nil if it has none. It is in a cluster only where the controller
// converts it.
func Older(name string) (*apiextensionsv1.CustomResourceDefinitionVersion, error) {
	plural, group, _ := strings.Cut(name, ".")
	text, err := older.ReadFile(fmt.Sprintf("v1beta1/%s_%s.yaml", group, plural))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	v := &apiextensionsv1.CustomResourceDefinitionVersion{}
	if err := yaml.UnmarshalStrict(text, v); err != nil {
		return nil, fmt.Errorf("embedded version of %s: %w", name, err)
	}
	return v, nil
}

// Definitions returns all definitions, by file name.
func Definitions() ([]*apiextensionsv1.CustomResourceDefinition, error) {
	entries, err := Files.ReadDir(".")
	if err != nil {
		return nil, err
	}
	var out []*apiextensionsv1.CustomResourceDefinition
	for _, entry := range entries {
		text, err := Files.ReadFile(entry.Name())
		if err != nil {
			return nil, err
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(text, crd); err != nil {
			return nil, fmt.Errorf("embedded CRD %s: %w", entry.Name(), err)
		}
		out = append(out, crd)
	}
	return out, nil
}
