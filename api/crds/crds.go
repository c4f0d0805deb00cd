// Package crds holds the CustomResourceDefinitions of all kinds of Karpenter, generated from the Go types, as YAML.
package crds

import "embed"

// Files holds one YAML file per kind, named <group>_<plural>.yaml.
//
//go:embed *.yaml
var Files embed.FS
