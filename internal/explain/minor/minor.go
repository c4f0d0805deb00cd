// Package minor says which features of Karpenter a minor of Kubernetes is too old for. They are off then, whatever the settings say.
package minor

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/version"
)

// A Feature of Karpenter needs a minor of Kubernetes.
type Feature struct {
	name  string
	since uint // 1.since
}

// Hints returns the feature of hints to kube-scheduler, which accepts status.nominatedNodeName of others since 1.35.
func Hints() Feature { return Feature{"hints to kube-scheduler", 35} }

// Devices returns the feature of planning for devices. It reads resource.k8s.io/v1, which is served since 1.34.
func Devices() Feature { return Feature{"devices by resource claims", 34} }

// Parse reads a version such as v1.36.3, 1.36 or v1.36.3-eks-1234.
func Parse(text string) (*version.Version, error) {
	v, err := version.ParseGeneric(text)
	if err != nil {
		return nil, fmt.Errorf("read the server's version: %w", err)
	}
	return v, nil
}

// In reports whether a cluster of this version has what the feature needs.
func (f Feature) In(v *version.Version) bool { return v.AtLeast(version.MajorMinor(1, f.since)) }

// Off returns which of the features are off in a cluster of this version, each with the minor that it needs.
func Off(v *version.Version, features ...Feature) []string {
	var off []string
	for _, f := range features {
		if !f.In(v) {
			off = append(off, fmt.Sprintf("%s (from 1.%d on)", f.name, f.since))
		}
	}
	return off
}
