package devices

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"karpenter.sh/karpenter/internal/kit/selector"
	"karpenter.sh/karpenter/local/join"
)

// publishing runs drivers beside a test, over an API server in memory.
func publishing(t *testing.T, test func(t *testing.T, client *fake.Clientset), objects ...runtime.Object) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(objects...)
		d := New(client, slog.New(slog.NewTextHandler(io.Discard, nil)))
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { d.Run(ctx) })
		test(t, client)
		stop()
		running.Wait()
	})
}

// node is a machine that is ready.
func node(machine string, edits ...func(*corev1.Node)) *corev1.Node {
	n := join.Node(join.Machine{Node: "n", Labels: map[string]string{corev1.LabelInstanceTypeStable: machine}}, time.Now())
	n.UID = "n-1"
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	for _, edit := range edits {
		edit(n)
	}
	return n
}

// published says which devices of which drivers there are.
func published(t *testing.T, client *fake.Clientset) string {
	t.Helper()
	time.Sleep(2 * moment)
	synctest.Wait()
	list, err := client.ResourceV1().ResourceSlices().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, s := range list.Items {
		if *s.Spec.NodeName != "n" || s.Spec.Pool.ResourceSliceCount != 1 || len(s.OwnerReferences) != 1 || s.OwnerReferences[0].UID == "" {
			t.Errorf("slice %s is %+v of %+v", s.Name, s.Spec.Pool, s.OwnerReferences)
		}
		out = append(out, fmt.Sprintf("%d of %s", len(s.Spec.Devices), s.Spec.Driver))
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

func TestWhoPublishesWhat(t *testing.T) {
	for name, tc := range map[string]struct {
		node *corev1.Node
		want string
	}{
		"GPUs":                      {node("g4dn.12xlarge"), "4 of gpu.nvidia.com"},
		"Trainium":                  {node("trn1.32xlarge"), "16 of neuron.aws.com"},
		"a machine without devices": {node("m5.large"), ""},
		"a machine of nobody knows": {node("x1.huge"), ""},
		"a node that is not ready": {node("g4dn.xlarge", func(n *corev1.Node) {
			n.Status.Conditions[0].Status = corev1.ConditionFalse
		}), ""},
		"a node whose kubelet is not played": {node("g4dn.xlarge", func(n *corev1.Node) { n.Annotations = nil }), ""},
	} {
		t.Run(name, func(t *testing.T) {
			publishing(t, func(t *testing.T, client *fake.Clientset) {
				if got := published(t, client); got != tc.want {
					t.Errorf("published %q, want %q", got, tc.want)
				}
			}, tc.node)
		})
	}
}

// What was promised of a device holds once it is there, and what was not known is there as well.
func TestDevicesAreAsTheyWerePromised(t *testing.T) {
	publishing(t, func(t *testing.T, client *fake.Clientset) {
		published(t, client)
		s, err := client.ResourceV1().ResourceSlices().Get(t.Context(), "n-gpu.nvidia.com", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		for i := range s.Spec.Devices {
			d := &s.Spec.Devices[i]
			for _, expression := range []string{
				"device.attributes['gpu.nvidia.com'].type == 'gpu' && device.attributes['gpu.nvidia.com'].architecture == 'Turing'",
				"device.attributes['gpu.nvidia.com'].driverVersion.compareTo(semver('0.9.0')) > 0",
				"device.attributes['gpu.nvidia.com'].productName == 'NVIDIA T4' && device.attributes['gpu.nvidia.com'].minor >= 0",
				"device.attributes['resource.kubernetes.io'].pcieRoot == 'simulated'",
				"device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('15Gi')) > 0 && device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('16Gi')) < 0",
			} {
				if yes, err := selector.Selects(expression, s.Spec.Driver, d); !yes || err != nil {
					t.Errorf("%s: %s: %t, %v", d.Name, expression, yes, err)
				}
			}
			seen[*d.Attributes["uuid"].StringValue] = true
		}
		if len(seen) != 4 {
			t.Errorf("%d devices have identities of their own, want 4", len(seen))
		}
	}, node("g4dn.12xlarge"))
}

// A slice that somebody deletes comes again; one of an earlier node by the same name is made anew once it was collected; and what the server
// refuses for a while is tried again.
func TestSlicesComeBack(t *testing.T) {
	publishing(t, func(t *testing.T, client *fake.Clientset) {
		const want = "1 of gpu.nvidia.com"
		slices := client.ResourceV1().ResourceSlices()
		if got := published(t, client); got != want {
			t.Fatalf("published %q, want %q", got, want)
		}
		if err := slices.Delete(t.Context(), "n-gpu.nvidia.com", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if got := published(t, client); got != want {
			t.Errorf("after it was deleted: %q, want %q", got, want)
		}

		var mu sync.Mutex
		refused := 0
		client.PrependReactor("create", "resourceslices", func(clienttesting.Action) (bool, runtime.Object, error) {
			mu.Lock()
			defer mu.Unlock()
			refused++
			return refused < 3, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "resourceslices"}, "n", nil)
		})
		if err := slices.Delete(t.Context(), "n-gpu.nvidia.com", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		published(t, client)
		if got := published(t, client); got != want {
			t.Errorf("after it was refused twice: %q, want %q", got, want)
		}
	}, node("g4dn.xlarge"))
}

// A slice of somebody else by the name of ours stays.
func TestASliceThatIsThereStays(t *testing.T) {
	theirs := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "n-gpu.nvidia.com", OwnerReferences: []metav1.OwnerReference{{Kind: "Node", Name: "n", UID: "n-0"}}}}
	theirs.Spec = resourcev1.ResourceSliceSpec{Driver: "theirs", NodeName: new("n"), Pool: resourcev1.ResourcePool{Name: "n", ResourceSliceCount: 1}}
	publishing(t, func(t *testing.T, client *fake.Clientset) {
		if got := published(t, client); got != "0 of theirs" {
			t.Errorf("published %q", got)
		}
	}, node("g4dn.xlarge"), theirs)
}
