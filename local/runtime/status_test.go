package runtime

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestThePortOfThePage(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{
		{Name: "sidecar", Ports: []corev1.ContainerPort{{Name: "ui", ContainerPort: 8080}}},
		{Name: "controller", Ports: []corev1.ContainerPort{{Name: "http-metrics", ContainerPort: 8080}, {Name: "ui", ContainerPort: 8082}}},
	}}}
	for name, tc := range map[string]struct{ container, mapping, want string }{
		"where it is":                 {"controller", "8080:53211,8081:53212,8082:53213", "53213"},
		"of a port that begins alike": {"controller", "80821:53211", ""},
		"of a container that ended":   {"controller", "", ""},
		"of a container without one":  {"other", "8082:53213", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := portNamed(pod, tc.container, pagePort, tc.mapping); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
