package join

import (
	"io"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

func machine() Machine {
	return Machine{
		Node:        "i-1.local",
		ProviderID:  "cloud:///a/i-1",
		Labels:      map[string]string{corev1.LabelTopologyZone: "a", corev1.LabelArchStable: "arm64"},
		Taints:      []corev1.Taint{{Key: "unregistered", Effect: corev1.TaintEffectNoExecute}},
		Capacity:    corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")},
		Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1900m")},
		InternalIP:  "10.0.0.1",
		Version:     "v1.36.3",
		Drivers:     []storagev1.CSINodeDriver{{Name: "disks", NodeID: "i-1", TopologyKeys: []string{"topology.disks.io/zone"}}},
	}
}

func TestANodeArrivesAsARealOneDoes(t *testing.T) {
	n := Node(machine(), time.Unix(1e9, 0))
	if n.Name != "i-1.local" || n.Spec.ProviderID != "cloud:///a/i-1" || n.Labels[corev1.LabelHostname] != "i-1.local" || n.Labels[corev1.LabelTopologyZone] != "a" {
		t.Errorf("node = %s %s %v", n.Name, n.Spec.ProviderID, n.Labels)
	}
	if n.Labels["topology.disks.io/zone"] != "a" {
		t.Errorf("labels = %v, want the zone under the key of the driver for disks too", n.Labels)
	}
	if len(n.Spec.Taints) != 1 || n.Spec.Taints[0].Key != "unregistered" {
		t.Errorf("taints = %v, want those of the machine", n.Spec.Taints)
	}
	if n.Status.Capacity.Cpu().String() != "2" || n.Status.Allocatable.Cpu().String() != "1900m" {
		t.Errorf("capacity %v, allocatable %v", n.Status.Capacity, n.Status.Allocatable)
	}
	if n.Status.NodeInfo.Architecture != "arm64" || n.Status.NodeInfo.OperatingSystem != "linux" || n.Status.NodeInfo.KubeletVersion != "v1.36.3" {
		t.Errorf("node info = %+v", n.Status.NodeInfo)
	}
	if n.Annotations[Annotation] != AnnotationValue {
		t.Error("nobody would play its kubelet")
	}
	for _, c := range n.Status.Conditions {
		if c.Status != corev1.ConditionFalse {
			t.Errorf("%s = %s, want a healthy node that is not ready", c.Type, c.Status)
		}
	}
}

func TestBootDelaysStayWithinTheirSpread(t *testing.T) {
	boot := Boot{Delay: 2 * time.Second, Spread: time.Second}
	shortest, longest := time.Hour, time.Duration(0)
	for i := range 1000 {
		name := time.Duration(i).String()
		d := boot.Of(name)
		if d != boot.Of(name) {
			t.Fatalf("%s has two delays", name)
		}
		shortest, longest = min(shortest, d), max(longest, d)
	}
	if shortest < time.Second || longest > 3*time.Second {
		t.Errorf("delays from %s to %s, want 1s to 3s", shortest, longest)
	}
	if shortest > 1100*time.Millisecond || longest < 2900*time.Millisecond {
		t.Errorf("delays from %s to %s, want them over the whole spread", shortest, longest)
	}
	if got := (Boot{Delay: time.Minute}).Of("x"); got != time.Minute {
		t.Errorf("without a spread the delay is %s, want 1m", got)
	}
}

// world is an API server in memory with one Nodes.
func world(objects ...runtime.Object) (*fake.Clientset, *Nodes) {
	client := fake.NewClientset(objects...)
	return client, New(client, slog.New(slog.NewTextHandler(io.Discard, nil)))
}

func TestMachinesBecomeNodesAndGo(t *testing.T) {
	client, nodes := world()
	nodes.Booted(t.Context(), machine())
	nodes.Wait()
	nodes.Booted(t.Context(), machine()) // again, as after a restart
	nodes.Wait()
	if _, err := client.CoreV1().Nodes().Get(t.Context(), "i-1.local", metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	csi, err := client.StorageV1().CSINodes().Get(t.Context(), "i-1.local", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(csi.Spec.Drivers) != 1 || csi.Spec.Drivers[0].NodeID != "i-1" || csi.OwnerReferences[0].Name != "i-1.local" {
		t.Errorf("CSINode = %+v, want one with the machine's driver that goes with its node", csi)
	}
	nodes.Gone(t.Context(), "i-1.local", "cloud:///a/i-1")
	nodes.Gone(t.Context(), "i-1.local", "cloud:///a/i-1")
	nodes.Wait()
	if _, err := client.CoreV1().Nodes().Get(t.Context(), "i-1.local", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the node outlived its machine: %v", err)
	}
}

func TestANameTakenOverIsNotRemoved(t *testing.T) {
	client, nodes := world(Node(machine(), time.Unix(0, 0)))
	nodes.Gone(t.Context(), "i-1.local", "cloud:///a/i-0")
	nodes.Wait()
	if _, err := client.CoreV1().Nodes().Get(t.Context(), "i-1.local", metav1.GetOptions{}); err != nil {
		t.Errorf("the node of another machine was removed: %v", err)
	}
}

func TestASilentKubeletKeepsItsNode(t *testing.T) {
	client, nodes := world(Node(machine(), time.Unix(0, 0)))
	nodes.Silence(t.Context(), "i-1.local")
	nodes.Silence(t.Context(), "not there")
	nodes.Wait()
	n, err := client.CoreV1().Nodes().Get(t.Context(), "i-1.local", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, played := n.Annotations[Annotation]; played {
		t.Error("the kubelet still plays")
	}
}

func TestNodesOfMachinesThatWentUnseenAreForgotten(t *testing.T) {
	gone, there, foreign := machine(), machine(), machine()
	gone.Node, gone.ProviderID = "gone", "cloud:///a/gone"
	foreign.Node, foreign.ProviderID = "foreign", "cloud:///a/foreign"
	theirs := Node(foreign, time.Unix(0, 0))
	theirs.Annotations = map[string]string{Annotation: AnnotationValue} // which another provider made
	control := machine()
	control.Node, control.ProviderID = "control-a", ""
	client, nodes := world(Node(gone, time.Unix(0, 0)), Node(there, time.Unix(0, 0)), Node(control, time.Unix(0, 0)), theirs)
	if err := nodes.Forget(t.Context(), func(id string) bool { return id == there.ProviderID }); err != nil {
		t.Fatal(err)
	}
	nodes.Wait()
	left, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(left.Items) != 3 {
		t.Errorf("%d nodes are left, want the one with a machine, the one that never had any, and the one that is not ours", len(left.Items))
	}
}

func TestJoiningIsTriedUntilItSucceeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, nodes := world()
		attempts := 0
		client.PrependReactor("create", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
			attempts++
			if attempts < 4 {
				return true, nil, apierrors.NewServiceUnavailable("starting")
			}
			return false, nil, nil
		})
		begin := time.Now()
		nodes.Booted(t.Context(), machine())
		nodes.Wait()
		if _, err := client.CoreV1().Nodes().Get(t.Context(), "i-1.local", metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
		if took := time.Since(begin); took != 3*time.Second {
			t.Errorf("took %s, want a second between attempts", took)
		}
	})
}

// A machine that may not register, as where an admission policy refuses it, must not register after it is gone either.
func TestAMachineThatIsGoneStopsTrying(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, nodes := world()
		refused := true
		client.PrependReactor("create", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
			if refused {
				return true, nil, apierrors.NewForbidden(corev1.Resource("nodes"), "i-1.local", nil)
			}
			return false, nil, nil
		})
		nodes.Booted(t.Context(), machine())
		nodes.Booted(t.Context(), machine())
		time.Sleep(5 * time.Second)
		nodes.Gone(t.Context(), "i-1.local", machine().ProviderID)
		synctest.Wait()
		refused = false
		time.Sleep(5 * time.Second)
		if _, err := client.CoreV1().Nodes().Get(t.Context(), "i-1.local", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("the node of a machine that is gone: %v, want none", err)
		}
		nodes.Booted(t.Context(), machine()) // it was started again
		nodes.Wait()
		if _, err := client.CoreV1().Nodes().Get(t.Context(), "i-1.local", metav1.GetOptions{}); err != nil {
			t.Errorf("the node of a machine that was started again: %v", err)
		}
	})
}
