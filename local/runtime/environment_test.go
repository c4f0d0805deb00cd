package runtime

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

func TestEnvironment(t *testing.T) {
	list := func(cpu, memory string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
	}
	field := func(path string) *corev1.EnvVarSource {
		return &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}
	}
	number := func(of, divisor string) *corev1.EnvVarSource {
		return &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: of, Divisor: resource.MustParse(divisor)}}
	}
	inMap := func(name, key string, optional bool) *corev1.EnvVarSource {
		return &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: name}, Key: key, Optional: &optional}}
	}
	object := metav1.ObjectMeta{Namespace: "kube-system", Name: "there"}
	client := fake.NewClientset(
		&corev1.ConfigMap{ObjectMeta: object, Data: map[string]string{"COLOUR": "blue"}},
		&corev1.Secret{ObjectMeta: object, Data: map[string][]byte{"KEY": []byte("hidden")}},
	)
	for name, tc := range map[string]struct {
		c    corev1.Container
		want environment
		err  string
	}{
		"values, and those that refer to values before them": {
			c:    corev1.Container{Env: []corev1.EnvVar{{Name: "A", Value: "1"}, {Name: "B", Value: "$(A)2 $(C) $$(A)"}}},
			want: environment{"A": "1", "B": "12 $(C) $(A)"},
		},
		"the machine's are there, unless the pod says otherwise": {
			c:    corev1.Container{Env: []corev1.EnvVar{{Name: "AWS_REGION", Value: "eu-west-1"}}},
			want: environment{"AWS_REGION": "eu-west-1"},
		},
		"fields of the pod": {
			c: corev1.Container{Env: []corev1.EnvVar{
				{Name: "NAMESPACE", ValueFrom: field("metadata.namespace")}, {Name: "NODE", ValueFrom: field("spec.nodeName")},
				{Name: "IP", ValueFrom: field("status.podIP")}, {Name: "LABEL", ValueFrom: field("metadata.labels['app']")},
			}},
			want: environment{"NAMESPACE": "kube-system", "NODE": "control-a", "IP": "10.245.0.1", "LABEL": "karpenter"},
		},
		"resources, limits being the node's where there are none": {
			c: corev1.Container{
				Resources: corev1.ResourceRequirements{Requests: list("1500m", "1Gi")},
				Env:       []corev1.EnvVar{{Name: "CPU", ValueFrom: number("requests.cpu", "1m")}, {Name: "MEMORY", ValueFrom: number("limits.memory", "0")}},
			},
			want: environment{"CPU": "1500", "MEMORY": "7516192768"},
		},
		"limits are those of Go's runtime": {
			c:    corev1.Container{Resources: corev1.ResourceRequirements{Limits: list("2500m", "256Mi")}},
			want: environment{"GOMEMLIMIT": "268435456", "GOMAXPROCS": "3"},
		},
		"less than two CPUs are two to Go's runtime": {
			c:    corev1.Container{Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}}},
			want: environment{"GOMAXPROCS": "2"},
		},
		"what the pod says of Go's runtime counts more than limits": {
			c:    corev1.Container{Resources: corev1.ResourceRequirements{Limits: list("4", "1Gi")}, Env: []corev1.EnvVar{{Name: "GOMEMLIMIT", Value: "7"}, {Name: "GOMAXPROCS", Value: "1"}}},
			want: environment{"GOMEMLIMIT": "7", "GOMAXPROCS": "1"},
		},
		"all of a ConfigMap and of a Secret": {
			c: corev1.Container{EnvFrom: []corev1.EnvFromSource{
				{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "there"}}},
				{Prefix: "S_", SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "there"}}},
				{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "gone"}, Optional: new(true)}},
			}},
			want: environment{"COLOUR": "blue", "S_KEY": "hidden"},
		},
		"keys, of which some may be missing": {
			c: corev1.Container{Env: []corev1.EnvVar{
				{Name: "A", ValueFrom: inMap("there", "COLOUR", false)}, {Name: "B", ValueFrom: inMap("there", "x", true)}, {Name: "C", ValueFrom: inMap("gone", "x", true)},
			}},
			want: environment{"A": "blue"},
		},
		"a key that must not be missing": {
			c: corev1.Container{Name: "c", Env: []corev1.EnvVar{{Name: "B", ValueFrom: inMap("there", "x", false)}}}, err: "variable B of container c: there is no key x",
		},
		"a ConfigMap that must not be missing": {
			c: corev1.Container{EnvFrom: []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "gone"}}}}}, err: "not found",
		},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "karpenter-1", Labels: map[string]string{"app": "karpenter"}},
				Spec:       corev1.PodSpec{NodeName: "control-a", Containers: []corev1.Container{tc.c}},
				Status:     corev1.PodStatus{PodIP: "10.245.0.1", HostIP: "10.0.255.1"},
			}
			got := environment{"AWS_REGION": "us-east-1"}
			err := source{client: client, pod: pod, node: Node{Allocatable: list("2", "7Gi")}}.add(t.Context(), &pod.Spec.Containers[0], got)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("error = %v, want one that says %q", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			want := environment{"AWS_REGION": "us-east-1", "HOSTNAME": "karpenter-1"}
			maps.Copy(want, tc.want)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// What somebody has in their shell is not what a container finds.
func TestTheShellIsNotTheContainer(t *testing.T) {
	t.Setenv("LOG_LEVEL", "debug")
	t.Setenv("PATH", "/bin")
	got := machine([]string{"AWS_REGION=here"})
	if _, leaks := got["LOG_LEVEL"]; leaks || got["PATH"] != "/bin" || got["AWS_REGION"] != "here" {
		t.Errorf("a process finds %v", got)
	}
}

func TestPortsAreMoved(t *testing.T) {
	e := environment{"METRICS_PORT": "8080", "HEALTH_PROBE_PORT": "8081", "UI_PORT": "9000", "MEMORY_LIMIT": "8080"}
	e.move(map[int32]int{8080: 50001, 8081: 50002})
	want := environment{"METRICS_PORT": "50001", "HEALTH_PROBE_PORT": "50002", "UI_PORT": "9000", "MEMORY_LIMIT": "8080"}
	if !maps.Equal(e, want) {
		t.Errorf("moved to %v, want %v", e, want)
	}
}
