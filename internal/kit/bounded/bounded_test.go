package bounded

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestWithin(t *testing.T) {
	for name, tc := range map[string]struct {
		text, want string
		outside    bool
	}{
		"a usual amount":                {"100m", "100m", false},
		"an amount of memory":           {"64Gi", "64Gi", false},
		"a fraction":                    {"0.123456789", "123456789n", false},
		"the largest usual amount":      {"8Ei", "9223372036854775807", false},
		"forty million digits":          {"1e40000000", "1e18", true},
		"as many below zero":            {"-1e40000000", "-1e18", true},
		"a zero with a scale":           {"0e40000000", "0", true},
		"a number of a thousand digits": {"1" + string(make1000('0')), "1E", true},
	} {
		t.Run(name, func(t *testing.T) {
			got, outside := within(resource.MustParse(tc.text))
			if outside != tc.outside || got.String() != tc.want {
				t.Errorf("within = %s, %t; want %s, %t", got.String(), outside, tc.want, tc.outside)
			}
		})
	}
}

func make1000(c byte) []byte {
	out := make([]byte, 1000)
	for i := range out {
		out[i] = c
	}
	return out
}

func hostile() corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1e40000000")}
}

// TestEveryQuantityOfAPod sets one quantity of a pod beyond the limits, in each place that has one.
func TestEveryQuantityOfAPod(t *testing.T) {
	requests := corev1.ResourceRequirements{Requests: hostile()}
	for name, edit := range map[string]func(p *corev1.Pod){
		"a request": func(p *corev1.Pod) { p.Spec.Containers = []corev1.Container{{Resources: requests}} },
		"a limit": func(p *corev1.Pod) {
			p.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Limits: hostile()}}}
		},
		"of an init container": func(p *corev1.Pod) { p.Spec.InitContainers = []corev1.Container{{Resources: requests}} },
		"the overhead":         func(p *corev1.Pod) { p.Spec.Overhead = hostile() },
		"of the whole pod":     func(p *corev1.Pod) { p.Spec.Resources = &requests },
		"an ephemeral volume":  func(p *corev1.Pod) { p.Spec.Volumes = []corev1.Volume{ephemeral()} },
		"what is allocated": func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{AllocatedResources: hostile()}}
		},
		"what runs":                func(p *corev1.Pod) { p.Status.ContainerStatuses = []corev1.ContainerStatus{{Resources: &requests}} },
		"of an init container now": func(p *corev1.Pod) { p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Resources: &requests}} },
		"allocated to the pod":     func(p *corev1.Pod) { p.Status.AllocatedResources = hostile() },
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}}
			edit(pod)
			out := Pod(pod)
			if out == pod {
				t.Fatal("the pod is taken for usual")
			}
			if again := Pod(out); again != out && len(out.Spec.Volumes) == 0 {
				t.Error("the copy is not within the limits")
			}
			if Object(out) != out {
				t.Error("the copy holds a quantity outside of the limits")
			}
			if Object(pod) == pod {
				t.Error("the object that was given has been changed")
			}
		})
	}
}

func ephemeral() corev1.Volume {
	claim := &corev1.PersistentVolumeClaimTemplate{Spec: corev1.PersistentVolumeClaimSpec{Resources: corev1.VolumeResourceRequirements{Requests: hostile()}}}
	return corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: claim}}}
}

func TestAUsualPodIsNotCopied(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("1")}}}}}}
	if Pod(pod) != pod {
		t.Error("it was copied")
	}
}

func FuzzWithin(f *testing.F) {
	for _, seed := range []string{"1", "1e40000000", "0e2000000000", "-3.5Gi", "1e-9", "9999999999999999999999E"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		begin := time.Now()
		q, err := ParseQuantity(text)
		if err != nil {
			return
		}
		got, _ := within(q)
		_ = got.Cmp(resource.MustParse("1"))
		got.Add(resource.MustParse("1"))
		if took := time.Since(begin); took > time.Second {
			t.Errorf("%q took %v", text, took)
		}
	})
}
