package podclass

import (
	"fmt"
	"math/rand/v2"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// naiveKey is everything that a class keeps, in the API's binary form, with quantities in one spelling.
func naiveKey(pod *corev1.Pod) string {
	spec := cut(pod)
	spec = *spec.DeepCopy()
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			for _, amounts := range []corev1.ResourceList{list[i].Resources.Requests, list[i].Resources.Limits} {
				for name, q := range amounts {
					amounts[name] = resource.MustParse(q.AsDec().String())
				}
			}
		}
	}
	b, err := spec.Marshal()
	if err != nil {
		panic(err)
	}
	return pod.Namespace + "\x00" + string(b)
}

// randomPod draws from few values, so that equal pods are frequent.
func randomPod(r *rand.Rand) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: string('a' + rune(r.IntN(2)))}}
	some := func(edit func()) {
		if r.IntN(12) == 0 {
			edit()
		}
	}
	list := func() corev1.ResourceList {
		out := corev1.ResourceList{}
		for _, name := range []corev1.ResourceName{"cpu", "memory"} {
			some(func() {
				amounts := []string{"1", "1000m", "1e3", "1k", "1Ki", "1024", "500m", "0.5", "1n", "1000000n", "10E", "0", "-1"}
				out[name] = resource.MustParse(amounts[r.IntN(len(amounts))])
			})
		}
		return out
	}
	always := corev1.ContainerRestartPolicyAlways
	container := func() corev1.Container {
		c := corev1.Container{Name: fmt.Sprint(r.IntN(2)), Resources: corev1.ResourceRequirements{Requests: list(), Limits: list()}}
		some(func() { c.RestartPolicy = &always })
		some(func() {
			actions := []corev1.ContainerRestartRuleAction{"Restart", "RestartAllContainers"}
			c.RestartPolicyRules = []corev1.ContainerRestartRule{{Action: actions[r.IntN(2)]}}
		})
		some(func() { c.Ports = []corev1.ContainerPort{{HostPort: int32(r.IntN(2)), ContainerPort: 80}} })
		some(func() { c.Resources.Claims = []corev1.ResourceClaim{{Name: "gpu"}} })
		return c
	}
	for range 1 + r.IntN(2) {
		p.Spec.Containers = append(p.Spec.Containers, container())
	}
	some(func() { p.Spec.InitContainers = []corev1.Container{container()} })
	some(func() { p.Spec.NodeSelector = map[string]string{"a": fmt.Sprint(r.IntN(2)), "b": "1"} })
	some(func() { p.Spec.SchedulerName = "x" })
	some(func() { p.Spec.PriorityClassName = "x" })
	some(func() { n := int32(r.IntN(2)); p.Spec.Priority = &n })
	some(func() { p.Spec.HostNetwork = true })
	some(func() { no := false; p.Spec.HostNetwork, p.Spec.HostUsers = r.IntN(2) == 0, &no })
	some(func() { p.Spec.Tolerations = []corev1.Toleration{{Key: fmt.Sprint(r.IntN(2))}} })
	some(func() { p.Spec.Overhead = corev1.ResourceList{"cpu": resource.MustParse("1")} })
	some(func() { p.Spec.OS = &corev1.PodOS{Name: "linux"} })
	some(func() {
		p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{TopologyKey: "zone", MaxSkew: int32(r.IntN(2))}}
	})
	some(func() {
		p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	})
	some(func() {
		p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}}}
	})
	some(func() {
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{Weight: int32(r.IntN(2))}}}}
	})
	some(func() { p.Spec.Resources = &corev1.ResourceRequirements{Requests: list()} })
	some(func() {
		p.Status.Resources, p.Status.AllocatedResources = &corev1.ResourceRequirements{Requests: list()}, list()
	})
	return p
}

func TestKeysAreEqualExactlyWhenInputsAre(t *testing.T) {
	in := NewInterner()
	r := rand.New(rand.NewPCG(1, 2))
	byKey, byInput := map[string]string{}, map[string]string{}
	repeated := 0
	for range 50_000 {
		p := randomPod(r)
		key, input := string(in.keyOf(p)), naiveKey(p)
		if old, ok := byKey[key]; ok && old != input {
			t.Fatalf("one key for two inputs:\n%q\n%q", old, input)
		}
		if old, ok := byInput[input]; ok {
			repeated++
			if old != key {
				t.Fatalf("two keys for one input:\n%q\n%q\n%+v", old, key, p.Spec)
			}
		}
		byKey[key], byInput[input] = input, key
	}
	if repeated < 1000 || len(byKey) < 1000 {
		t.Fatalf("%d inputs, %d of them again: the dice are wrong", len(byKey), repeated)
	}
}
