package podclass

import (
	"fmt"
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

// Pods in every state of a resize, as the VerticalPodAutoscaler leaves them, count for what they count for with kube-scheduler: asked for and
// not looked at, deferred, impossible, given and not yet real, real; by container, sidecar and pod; and statuses that no kubelet would write.
func TestRequestsOfResizedPodsEqualTheSchedulers(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 2))
	names := []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}
	list := func() corev1.ResourceList {
		out := corev1.ResourceList{}
		for _, name := range names {
			if r.IntN(4) > 0 {
				out[name] = *resource.NewQuantity(1+r.Int64N(4), resource.DecimalSI)
			}
		}
		return out
	}
	always := corev1.ContainerRestartPolicyAlways
	states := map[string]int{}
	in := NewInterner()
	for range 2000 {
		p := &corev1.Pod{}
		status := func(c corev1.Container) (out []corev1.ContainerStatus) {
			if r.IntN(4) == 0 {
				return nil
			}
			s := corev1.ContainerStatus{Name: c.Name}
			if r.IntN(5) > 0 {
				s.Resources = &corev1.ResourceRequirements{Requests: list()}
			}
			if r.IntN(3) > 0 {
				s.AllocatedResources = list()
			}
			return []corev1.ContainerStatus{s}
		}
		for i := range 1 + r.IntN(3) {
			c := corev1.Container{Name: fmt.Sprint("c", i), Resources: corev1.ResourceRequirements{Requests: list()}}
			p.Spec.Containers, p.Status.ContainerStatuses = append(p.Spec.Containers, c), append(p.Status.ContainerStatuses, status(c)...)
		}
		for i := range r.IntN(4) {
			c := corev1.Container{Name: fmt.Sprint("i", i), Resources: corev1.ResourceRequirements{Requests: list()}}
			if r.IntN(2) == 0 {
				c.RestartPolicy = &always
			}
			p.Spec.InitContainers, p.Status.InitContainerStatuses = append(p.Spec.InitContainers, c), append(p.Status.InitContainerStatuses, status(c)...)
		}
		if r.IntN(3) == 0 {
			p.Spec.Resources = &corev1.ResourceRequirements{Requests: list()}
			if r.IntN(3) > 0 {
				p.Status.Resources, p.Status.AllocatedResources = &corev1.ResourceRequirements{Requests: list()}, list()
			}
		}
		state := []string{"", corev1.PodReasonDeferred, corev1.PodReasonInfeasible, string(corev1.PodResizeInProgress)}[r.IntN(4)]
		if states[state]++; state == string(corev1.PodResizeInProgress) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodResizeInProgress, Status: corev1.ConditionTrue}}
		} else if state != "" {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: state}}
		}
		got := Requests(in.Class(p).Spec)
		want := helpers.PodRequests(p, helpers.PodResourcesOptions{UseStatusResources: true, InPlacePodLevelResourcesVerticalScalingEnabled: true})
		for _, name := range names {
			if a, b := got[name], want[name]; a.Cmp(b) != 0 {
				t.Fatalf("%s: %s, want %s, of %+v, %+v", name, a.String(), b.String(), p.Spec, p.Status)
			}
		}
	}
	if len(states) != 4 {
		t.Fatalf("states %v: the dice are wrong", states)
	}
}
