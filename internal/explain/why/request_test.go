package why

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// TestARequestIsToldAsItCounts: people are told to lower what kube-scheduler counts, but for what is not theirs.
func TestARequestIsToldAsItCounts(t *testing.T) {
	cpu := func(cores string) corev1.ResourceRequirements {
		return corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cores)}}
	}
	always := corev1.ContainerRestartPolicyAlways
	whole := cpu("5")
	for name, tc := range map[string]struct {
		spec corev1.PodSpec
		want string
	}{
		"containers together":                     {corev1.PodSpec{Containers: []corev1.Container{{Resources: cpu("1")}, {Resources: cpu("500m")}}}, "1500m"},
		"a step of the start beside its sidecars": {corev1.PodSpec{InitContainers: []corev1.Container{{Resources: cpu("1"), RestartPolicy: &always}, {Resources: cpu("3")}}, Containers: []corev1.Container{{Resources: cpu("1")}}}, "4"},
		"the pod as a whole":                      {corev1.PodSpec{Resources: &whole, Containers: []corev1.Container{{Resources: cpu("1")}}}, "5"},
		"without the overhead of a runtime":       {corev1.PodSpec{Overhead: cpu("1").Requests, Containers: []corev1.Container{{Resources: cpu("1")}}}, "1"},
	} {
		if got := requestOf(&tc.spec, corev1.ResourceCPU); got.String() != tc.want {
			t.Errorf("%s: %s, want %s", name, got.String(), tc.want)
		}
	}
}
