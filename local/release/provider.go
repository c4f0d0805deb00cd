package release

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"sigs.k8s.io/yaml"
)

// A provider is what a local cluster needs for one provider of machines: names of files in objects, "" for none.
type provider struct {
	values      string // of the chart karpenter
	definitions string // that the charts do not have
	first       string // a node class, a node pool, and a Deployment to play with
}

// AWS is the provider that this project's own controller has.
const AWS = "aws"

// providers are those that a local cluster can run, by name. The controllers of others are executables of their own, karpenter-NAME, which
// run this project's core over a provider that was written for Karpenter.
var providers = map[string]provider{
	AWS:            {first: "first.yaml"},
	"aws-upstream": {first: "first.yaml", values: "aws-upstream-values.yaml"},
	"kwok":         {first: "kwok.yaml", values: "kwok-values.yaml", definitions: "kwok-definitions.yaml"},
}

// find returns a provider by its name; "" is AWS.
func find(name string) (provider, error) {
	if name == "" {
		name = AWS
	}
	p, known := providers[name]
	if !known {
		return p, fmt.Errorf("there is no provider %q for a local cluster; choose one of %s", name,
			strings.Join(slices.Sorted(maps.Keys(providers)), ", "))
	}
	return p, nil
}

// withValues returns the values of the chart karpenter for the provider, with those that are given.
func (p provider) withValues(given map[string]any) (map[string]any, error) {
	if p.values == "" {
		return given, nil
	}
	text, err := objects.ReadFile("objects/" + p.values)
	if err != nil {
		return nil, err
	}
	var own map[string]any
	if err := yaml.Unmarshal(text, &own); err != nil {
		return nil, fmt.Errorf("read %s: %w", p.values, err)
	}
	return loader.MergeMaps(own, given), nil
}
