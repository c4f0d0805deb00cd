// Package charts holds the Helm charts, so that a program can install Karpenter without a checkout beside it.
package charts

import "embed"

// Files holds the folders karpenter and karpenter-crd.
//
//go:embed all:karpenter all:karpenter-crd
var Files embed.FS
