package runtime

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestPlays(t *testing.T) {
	for image, want := range map[string]bool{
		"karpenter/controller:1.2.3":                                             true,
		"public.ecr.aws/karpenter/controller:1.8.0@sha256:abc":                   true,
		"123456789012.dkr.ecr.us-east-1.amazonaws.com/mine/karpenter/controller": true,
		"ghcr.io/somebody/karpenter:0.1.0":                                       true,
		"karpenter/kwok:1":                                                       true,
		"karpenter/aws-upstream:1":                                               true,
		"karpenter":                                                              true,
		"registry.k8s.io/ingress-nginx/controller:v1.14":                         false,
		"karpenter/other":                                                        false,
		"karpenter-dashboard:1":                                                  false,
		"not-karpenter:1":                                                        false,
		"pause":                                                                  false,
	} {
		if got := plays(&corev1.Container{Image: image}); got != want {
			t.Errorf("%s runs as a process: %t, want %t", image, got, want)
		}
	}
}

func TestExecutable(t *testing.T) {
	for image, want := range map[string]string{
		"karpenter":                  "",
		"karpenter/controller:1.2.3": "",
		"karpenter/kwok:1":           "karpenter-kwok",
		"ghcr.io/somebody/karpenter/aws-upstream@sha256:abc": "karpenter-aws-upstream",
		"pause": "",
	} {
		if got := executable(image); got != want {
			t.Errorf("the executable of %s is %q, want %q", image, got, want)
		}
	}
}
