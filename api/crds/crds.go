// Package crds holds the CustomResourceDefinitions of all kinds of Karpenter, generated from the Go types, as YAML.
package crds

import "embed"

// Files holds one YAML file per kind, named <group>_<plural>.yaml.
//
//go:embed *.yaml
var Files embed.FS

// V1Beta1 holds the version v1beta1 of each kind that has it, named v1beta1/<group>_<plural>.yaml: an entry of the definition's versions.
// It is in a cluster only where the controller converts it.
//
//go:embed v1beta1/*.yaml
var V1Beta1 embed.FS
