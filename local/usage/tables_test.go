package usage

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/metrics/pkg/apis/metrics"
)

func in(namespace string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Namespace, p.Name, p.Spec.NodeName, p.Labels = namespace, "web-"+namespace, "node-"+namespace, map[string]string{"of": namespace}
	}
}

func node(name string, ready corev1.ConditionStatus) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}},
	}
}

// world has a pod on a node in namespaces a and b, one that does not run yet, and a node that has stopped.
func world() *fake.Clientset {
	waiting := pod(amounts{"1", "1Gi"}, amounts{})
	waiting.Namespace, waiting.Name, waiting.Status.Phase = "a", "waiting", corev1.PodPending
	return fake.NewClientset(
		with(pod(amounts{"200m", "64Mi"}, amounts{}), in("a")), with(pod(amounts{"300m", "64Mi"}, amounts{}), in("b")), waiting,
		node("node-a", corev1.ConditionTrue), node("node-b", corev1.ConditionTrue), node("stopped", corev1.ConditionUnknown), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "new"}},
	)
}

func TestPodsAreListedByNamespaceAndLabel(t *testing.T) {
	for name, tc := range map[string]struct {
		namespace, selector string
		want                []string
	}{
		"all that run":              {"", "", []string{"a/web-a", "b/web-b"}},
		"those of a namespace":      {"a", "", []string{"a/web-a"}},
		"those with a label":        {"", "of=b", []string{"b/web-b"}},
		"none with another's label": {"a", "of=b", nil},
	} {
		t.Run(name, func(t *testing.T) {
			selector, err := labels.Parse(tc.selector)
			if err != nil {
				t.Fatal(err)
			}
			ctx := request.WithNamespace(t.Context(), tc.namespace)
			found, err := pods{client: world()}.List(ctx, &internalversion.ListOptions{LabelSelector: selector})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, m := range found.(*metrics.PodMetricsList).Items {
				got = append(got, m.Namespace+"/"+m.Name)
				if m.Timestamp.IsZero() || m.Window.Duration <= 0 || m.Labels["of"] != m.Namespace {
					t.Errorf("%s lacks its time or its labels: %+v", m.Name, m)
				}
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("listed %v, want %v", got, tc.want)
			}
		})
	}
}

func TestOnePodOrNone(t *testing.T) {
	ctx := request.WithNamespace(t.Context(), "a")
	got, err := pods{client: world()}.Get(ctx, "web-a", nil)
	if err != nil || got.(*metrics.PodMetrics).Containers[0].Usage.Cpu().MilliValue() != 200 {
		t.Errorf("got %v, %v", got, err)
	}
	for _, name := range []string{"waiting", "nobody", "web-b"} {
		if _, err := (pods{client: world()}).Get(ctx, name, nil); !apierrors.IsNotFound(err) {
			t.Errorf("pod %s: %v, want that it is not found", name, err)
		}
	}
}

func TestNodesThatAreReadyHaveTheSumOfTheirPods(t *testing.T) {
	found, err := nodes{client: world()}.List(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int64{}
	for _, m := range found.(*metrics.NodeMetricsList).Items {
		got[m.Name] = m.Usage.Cpu().MilliValue()
	}
	if len(got) != 2 || got["node-a"] != 220 || got["node-b"] != 320 {
		t.Errorf("nodes use %v millicpu", got)
	}
}

func TestOneNodeOrNone(t *testing.T) {
	s := nodes{client: world()}
	one, err := s.Get(t.Context(), "node-b", nil)
	if err != nil || one.(*metrics.NodeMetrics).Usage.Cpu().MilliValue() != 320 {
		t.Errorf("got %v, %v", one, err)
	}
	for _, name := range []string{"stopped", "new", "nobody"} {
		if _, err := s.Get(t.Context(), name, nil); !apierrors.IsNotFound(err) {
			t.Errorf("node %s: %v, want that it is not found", name, err)
		}
	}
}
