package main

import (
	"fmt"
	"os"
	"regexp"

	"karpenter.sh/karpenter/internal/kit/version"
)

// versionLine are the two places of a Chart.yaml that say a version: the chart's, and that of the program it installs.
var versionLine = regexp.MustCompile(`(?m)^(version|appVersion): .*$`)

// chartVersions are the Chart.yaml files with the version of internal/kit/version, which the program and its image have as well.
func chartVersions() (map[string][]byte, error) {
	out := map[string][]byte{}
	for _, path := range []string{"charts/karpenter/Chart.yaml", "charts/karpenter-crd/Chart.yaml"} {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		if n := len(versionLine.FindAll(text, -1)); n != 2 {
			return nil, fmt.Errorf("%s says a version in %d lines, want version and appVersion", path, n)
		}
		out[path] = versionLine.ReplaceAll(text, []byte("${1}: "+version.Number()))
	}
	return out, nil
}
