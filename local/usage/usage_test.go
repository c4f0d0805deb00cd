package usage

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// amounts are CPU and memory as people write them.
type amounts struct{ cpu, memory string }

func (a amounts) list() corev1.ResourceList {
	all := corev1.ResourceList{}
	if a.cpu != "" {
		all[corev1.ResourceCPU] = resource.MustParse(a.cpu)
	}
	if a.memory != "" {
		all[corev1.ResourceMemory] = resource.MustParse(a.memory)
	}
	return all
}

// pod is one that runs, with a container for each request.
func pod(says amounts, requests ...amounts) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Annotations: map[string]string{}}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	if says.cpu != "" {
		p.Annotations["kwok.x-k8s.io/usage-cpu"] = says.cpu
	}
	if says.memory != "" {
		p.Annotations["kwok.x-k8s.io/usage-memory"] = says.memory
	}
	for i, r := range requests {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{
			Name: string(rune('a' + i)), Resources: corev1.ResourceRequirements{Requests: r.list()},
		})
	}
	return p
}

// with changes a pod.
func with(p *corev1.Pod, edit func(*corev1.Pod)) *corev1.Pod {
	edit(p)
	return p
}

func initContainer(policy *corev1.ContainerRestartPolicy) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{{
			Name: "before", RestartPolicy: policy,
			Resources: corev1.ResourceRequirements{Requests: amounts{"10m", "10Mi"}.list()},
		}}
	}
}

func same(got, want corev1.ResourceList) bool {
	if len(got) != len(want) {
		return false
	}
	for name, amount := range want {
		if g := got[name]; g.Cmp(amount) != 0 {
			return false
		}
	}
	return true
}

func TestWhatContainersUse(t *testing.T) {
	for name, tc := range map[string]struct {
		pod  *corev1.Pod
		want []amounts
	}{
		"what the annotations say": {
			pod(amounts{"200m", "64Mi"}, amounts{"100m", "1Gi"}), []amounts{{"200m", "64Mi"}}},
		"each container uses what they say": {
			pod(amounts{"200m", "64Mi"}, amounts{"100m", "1Gi"}, amounts{}), []amounts{{"200m", "64Mi"}, {"200m", "64Mi"}}},
		"half of the requests where they say nothing": {
			pod(amounts{}, amounts{"100m", "1Gi"}, amounts{"3", "1Mi"}), []amounts{{"50m", "512Mi"}, {"1500m", "512Ki"}}},
		"one annotation leaves the other resource alone": {
			pod(amounts{cpu: "1"}, amounts{"100m", "1Gi"}), []amounts{{"1", "512Mi"}}},
		"something even without requests": {
			pod(amounts{}, amounts{}), []amounts{{"1m", "1Mi"}}},
		"nothing where the annotation says so": {
			pod(amounts{"0", "0"}, amounts{"100m", "1Gi"}), []amounts{{"0", "0"}}},
		"words and negative amounts say nothing": {
			pod(amounts{"much", "-5Mi"}, amounts{"100m", "1Gi"}), []amounts{{"50m", "512Mi"}}},
		"a pod that does not run yet uses nothing": {
			with(pod(amounts{"200m", "64Mi"}, amounts{"100m", "1Gi"}), func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }), nil},
		"nor does one that is done": {
			with(pod(amounts{"200m", "64Mi"}, amounts{"100m", "1Gi"}), func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }), nil},
		"a container that ran before the others uses nothing any more": {
			with(pod(amounts{}, amounts{"100m", "1Gi"}), initContainer(nil)), []amounts{{"50m", "512Mi"}}},
		"one that runs beside them does": {
			with(pod(amounts{}, amounts{"100m", "1Gi"}), initContainer(new(corev1.ContainerRestartPolicyAlways))), []amounts{{"50m", "512Mi"}, {"5m", "5Mi"}}},
	} {
		t.Run(name, func(t *testing.T) {
			got := Of(tc.pod)
			if len(got) != len(tc.want) {
				t.Fatalf("%d containers use something, want %d: %v", len(got), len(tc.want), got)
			}
			for i, want := range tc.want {
				if !same(got[i].Usage, want.list()) {
					t.Errorf("container %s uses %v, want %v", got[i].Name, got[i].Usage, want)
				}
			}
		})
	}
}

func TestANodeUsesWhatItsPodsDoAndALittleMore(t *testing.T) {
	done := with(pod(amounts{"4", "4Gi"}, amounts{}), func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
	pods := []corev1.Pod{*pod(amounts{"200m", "64Mi"}, amounts{}, amounts{}), *pod(amounts{}, amounts{"100m", "1Gi"}), *done}
	for range 2 { // and nothing of it stays
		if got, want := OfNode(pods), (amounts{"470m", "840Mi"}).list(); !same(got, want) {
			t.Errorf("the node uses %v, want %v", got, want)
		}
	}
	if got, want := OfNode(nil), (amounts{"20m", "200Mi"}).list(); !same(got, want) {
		t.Errorf("an empty node uses %v, want %v", got, want)
	}
}
