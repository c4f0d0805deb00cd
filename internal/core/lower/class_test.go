package lower

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"karpenter.sh/karpenter/internal/core/quantity"
)

func cpu(text string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(text)}}
}

func container(text string) corev1.Container { return corev1.Container{Resources: cpu(text)} }

func sidecar(text string) corev1.Container {
	always := corev1.ContainerRestartPolicyAlways
	return corev1.Container{Resources: cpu(text), RestartPolicy: &always}
}

func TestPodRequests(t *testing.T) {
	podLevel := cpu("3")
	limits := corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("5")}}
	for name, tc := range map[string]struct {
		spec corev1.PodSpec
		want string
	}{
		"containers add up":                                  {corev1.PodSpec{Containers: []corev1.Container{container("1"), container("2")}}, "3"},
		"sidecars add to containers":                         {corev1.PodSpec{Containers: []corev1.Container{container("1")}, InitContainers: []corev1.Container{sidecar("2")}}, "3"},
		"the largest init container counts alone":            {corev1.PodSpec{Containers: []corev1.Container{container("1")}, InitContainers: []corev1.Container{container("4"), container("2")}}, "4"},
		"an init container runs beside the sidecars before":  {corev1.PodSpec{Containers: []corev1.Container{container("1")}, InitContainers: []corev1.Container{sidecar("2"), container("3")}}, "5"},
		"but not beside the sidecars after it":               {corev1.PodSpec{Containers: []corev1.Container{container("1")}, InitContainers: []corev1.Container{container("3"), sidecar("1")}}, "3"},
		"overhead comes on top":                              {corev1.PodSpec{Containers: []corev1.Container{container("1")}, Overhead: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("250m")}}, "1250m"},
		"pod-level requests replace the sum":                 {corev1.PodSpec{Containers: []corev1.Container{container("1")}, Resources: &podLevel}, "3"},
		"pod-level limits stand in for pod-level requests":   {corev1.PodSpec{Containers: []corev1.Container{container("1")}, Resources: &limits}, "5"},
		"a pod without requests asks for nothing but a slot": {corev1.PodSpec{Containers: []corev1.Container{{}}}, "0"},
	} {
		t.Run(name, func(t *testing.T) {
			got := podRequests(&tc.spec)
			want := resource.MustParse(tc.want)
			if q := got[corev1.ResourceCPU]; q.Cmp(want) != 0 {
				t.Errorf("CPU %s, want %s", q.String(), tc.want)
			}
			if q := got[corev1.ResourcePods]; q.Value() != 1 {
				t.Errorf("pods %s", q.String())
			}
		})
	}
}

func TestQuantitiesRound(t *testing.T) {
	for name, tc := range map[string]struct {
		resource corev1.ResourceName
		text     string
		up, down int64
	}{
		"CPU counts thousandths":               {corev1.ResourceCPU, "1500m", 1500, 1500},
		"parts of a thousandth round":          {corev1.ResourceCPU, "1500500u", 1501, 1500},
		"bytes are bytes":                      {corev1.ResourceMemory, "1Ki", 1024, 1024},
		"parts of a byte round":                {corev1.ResourceMemory, "1500m", 2, 1},
		"absurd amounts are merely too large":  {corev1.ResourceMemory, "1e30", quantity.Max, quantity.Max},
		"absurd CPU is merely too large":       {corev1.ResourceCPU, "1e18", quantity.Max, quantity.Max},
		"absurd negative amounts do not wrap":  {corev1.ResourceMemory, "-1e30", -quantity.Max, -quantity.Max},
		"the largest integer does not wrap":    {"x/y", "9223372036854775807", quantity.Max, quantity.Max},
		"extended resources count whole units": {"x/y", "3", 3, 3},
	} {
		t.Run(name, func(t *testing.T) {
			q := resource.MustParse(tc.text)
			if got := up(tc.resource, &q); got != tc.up {
				t.Errorf("up = %d, want %d", got, tc.up)
			}
			if got := down(tc.resource, &q); got != tc.down {
				t.Errorf("down = %d, want %d", got, tc.down)
			}
		})
	}
}
