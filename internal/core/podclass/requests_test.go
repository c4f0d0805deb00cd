package podclass

import (
	"math/rand/v2"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	helpers "k8s.io/component-helpers/resource"
)

func cpu(text string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(text)}}
}

func container(text string) corev1.Container { return corev1.Container{Resources: cpu(text)} }

func sidecar(text string) corev1.Container {
	always := corev1.ContainerRestartPolicyAlways
	return corev1.Container{Resources: cpu(text), RestartPolicy: &always}
}

func TestRequests(t *testing.T) {
	podLevel := cpu("3")
	limits := corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("5")}}
	for name, tc := range map[string]struct {
		spec corev1.PodSpec
		want string
	}{
		"containers add up":                                 {corev1.PodSpec{Containers: []corev1.Container{container("1"), container("2")}}, "3"},
		"sidecars add to containers":                        {corev1.PodSpec{Containers: []corev1.Container{container("1")}, InitContainers: []corev1.Container{sidecar("2")}}, "3"},
		"the largest init container counts alone":           {corev1.PodSpec{Containers: []corev1.Container{container("1")}, InitContainers: []corev1.Container{container("4"), container("2")}}, "4"},
		"an init container runs beside the sidecars before": {corev1.PodSpec{Containers: []corev1.Container{container("1")}, InitContainers: []corev1.Container{sidecar("2"), container("3")}}, "5"},
		"but not beside the sidecars after it":              {corev1.PodSpec{Containers: []corev1.Container{container("1")}, InitContainers: []corev1.Container{container("3"), sidecar("1")}}, "3"},
		"overhead comes on top":                             {corev1.PodSpec{Containers: []corev1.Container{container("1")}, Overhead: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("250m")}}, "1250m"},
		"pod-level requests replace the sum":                {corev1.PodSpec{Containers: []corev1.Container{container("1")}, Resources: &podLevel}, "3"},
		"pod-level limits stand in for pod-level requests":  {corev1.PodSpec{Containers: []corev1.Container{container("1")}, Resources: &limits}, "5"},
		"a pod without requests asks for nothing":           {corev1.PodSpec{Containers: []corev1.Container{{}}}, "0"},
	} {
		t.Run(name, func(t *testing.T) {
			got := Requests(&tc.spec)
			want := resource.MustParse(tc.want)
			if q := got[corev1.ResourceCPU]; q.Cmp(want) != 0 {
				t.Errorf("CPU %s, want %s", q.String(), tc.want)
			}
		})
	}
}

// The twin is what kube-scheduler calls. It takes no pod-level limits for requests, which the API server has made of them.
func TestRequestsEqualTheSchedulers(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 1))
	names := []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, "hugepages-2Mi", "example.com/gpu", corev1.ResourceEphemeralStorage}
	list := func() corev1.ResourceList {
		out := corev1.ResourceList{}
		for _, name := range names {
			if r.IntN(2) == 0 {
				out[name] = *resource.NewMilliQuantity(500*r.Int64N(8), resource.DecimalSI)
			}
		}
		return out
	}
	always := corev1.ContainerRestartPolicyAlways
	for range 2000 {
		spec := corev1.PodSpec{}
		for range 1 + r.IntN(3) {
			spec.Containers = append(spec.Containers, corev1.Container{Resources: corev1.ResourceRequirements{Requests: list()}})
		}
		for range r.IntN(4) {
			c := corev1.Container{Resources: corev1.ResourceRequirements{Requests: list()}}
			if r.IntN(2) == 0 {
				c.RestartPolicy = &always
			}
			spec.InitContainers = append(spec.InitContainers, c)
		}
		if r.IntN(3) == 0 {
			spec.Overhead = list()
		}
		if r.IntN(3) == 0 {
			spec.Resources = &corev1.ResourceRequirements{Requests: list()}
		}
		before := spec.DeepCopy()
		got, want := Requests(&spec), helpers.PodRequests(&corev1.Pod{Spec: spec}, helpers.PodResourcesOptions{})
		for _, name := range names {
			if a, b := got[name], want[name]; a.Cmp(b) != 0 {
				t.Fatalf("%s: %s, want %s, of %+v", name, a.String(), b.String(), spec)
			}
		}
		if !equality.Semantic.DeepEqual(before, &spec) {
			t.Fatal("asking changes the pod")
		}
	}
}
