package ebs

import (
	"context"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"karpenter.sh/karpenter/internal/aws/hardware"
)

// driving runs a driver beside a test, over an API server in memory with these objects, a node in zone a and the class gp3.
func driving(t *testing.T, objects []runtime.Object, test func(t *testing.T, client *fake.Clientset)) {
	synctest.Test(t, func(t *testing.T) {
		client := memory(objects...)
		d, err := New(client, slog.New(slog.NewTextHandler(io.Discard, nil)))
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { d.Run(ctx) })
		test(t, client)
		stop()
		running.Wait()
	})
}

func memory(objects ...runtime.Object) *fake.Clientset {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{corev1.LabelTopologyZone: "a"}}}
	return fake.NewClientset(append(objects, node, class())...)
}

// settle lets the driver do what it has to, and waits for a second.
func settle() {
	time.Sleep(time.Second)
	synctest.Wait()
}

// volumes are those that there are.
func volumes(t *testing.T, client *fake.Clientset) []corev1.PersistentVolume {
	t.Helper()
	all, err := client.CoreV1().PersistentVolumes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return all.Items
}

func TestTheLifeOfAVolume(t *testing.T) {
	c := claim("data", "n")
	driving(t, []runtime.Object{c}, func(t *testing.T, client *fake.Clientset) {
		settle()
		made := volumes(t, client)
		if len(made) != 1 || made[0].Spec.ClaimRef.UID != c.UID || made[0].Spec.Capacity.Storage().String() != "8Gi" {
			t.Fatalf("volumes = %+v, want one of 8Gi for the claim", made)
		}
		v := made[0]

		// What kube-controller-manager does.
		c.Spec.VolumeName, c.Status.Phase = v.Name, corev1.ClaimBound
		update(t, client.CoreV1().PersistentVolumeClaims("default").Update, c)
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p"},
			Spec: corev1.PodSpec{NodeName: "n", Volumes: []corev1.Volume{{VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
			}}}},
		}
		create(t, client.CoreV1().Pods("default").Create, pod)
		settle()
		if p := get(t, client.CoreV1().Pods("default").Get, "p"); !waits(p) {
			t.Error("the pod may start before its volume is attached")
		}
		elsewhere := attachment("elsewhere", v.Name, "m")
		create(t, client.StorageV1().VolumeAttachments().Create, elsewhere)
		settle()
		if p := get(t, client.CoreV1().Pods("default").Get, "p"); !waits(p) {
			t.Error("the pod may start where its volume is attached to another node")
		}
		create(t, client.StorageV1().VolumeAttachments().Create, attachment("here", v.Name, "n"))
		settle()
		if a := get(t, client.StorageV1().VolumeAttachments().Get, "here"); !a.Status.Attached {
			t.Error("the volume is not attached")
		}
		if p := get(t, client.CoreV1().Pods("default").Get, "p"); waits(p) {
			t.Error("the pod waits for a volume that is attached")
		}

		v.Status.Phase = corev1.VolumeReleased
		update(t, client.CoreV1().PersistentVolumes().Update, &v)
		settle()
		if len(volumes(t, client)) != 1 {
			t.Error("a volume that is attached was deleted")
		}
		for _, name := range []string{"here", "elsewhere"} {
			if err := client.StorageV1().VolumeAttachments().Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		settle()
		if left := volumes(t, client); len(left) != 0 {
			t.Errorf("%d volumes are left, want none without its claim", len(left))
		}
	})
}

func attachment(name, volume, node string) *storagev1.VolumeAttachment {
	return &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       storagev1.VolumeAttachmentSpec{Attacher: hardware.EBSDriver, NodeName: node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume}},
	}
}

func TestNodesAreToldThatTheDriverIsThere(t *testing.T) {
	driving(t, nil, func(t *testing.T, client *fake.Clientset) {
		settle()
		n := get(t, client.CoreV1().Nodes().Get, "n")
		n.Spec.Taints = []corev1.Taint{{Key: "ebs.csi.aws.com/agent-not-ready", Effect: corev1.TaintEffectNoExecute}, {Key: "team", Effect: corev1.TaintEffectNoSchedule}}
		update(t, client.CoreV1().Nodes().Update, n)
		settle()
		if n := get(t, client.CoreV1().Nodes().Get, "n"); len(n.Spec.Taints) != 1 || n.Spec.Taints[0].Key != "team" {
			t.Errorf("taints = %v, want the one that is not the driver's", n.Spec.Taints)
		}
	})
}

func TestNobodyElsesClaimsGetVolumes(t *testing.T) {
	waiting, foreign, bound := claim("waiting", ""), claim("foreign", "n"), claim("bound", "n")
	waiting.Annotations = nil // until kube-scheduler has chosen a node for its pod
	foreign.Annotations["volume.kubernetes.io/storage-provisioner"] = "efs.csi.aws.com"
	bound.Spec.VolumeName = "by-hand"
	waiting.UID, foreign.UID, bound.UID = "a", "b", "c"
	driving(t, []runtime.Object{waiting, foreign, bound}, func(t *testing.T, client *fake.Clientset) {
		settle()
		if made := volumes(t, client); len(made) != 0 {
			t.Errorf("volumes = %+v, want none", made)
		}
	})
}

func TestANodeThatWentBeforeItsVolumeWasMadeIsChosenAgain(t *testing.T) {
	driving(t, []runtime.Object{claim("data", "gone")}, func(t *testing.T, client *fake.Clientset) {
		settle()
		c := get(t, client.CoreV1().PersistentVolumeClaims("default").Get, "data")
		if node, chosen := c.Annotations["volume.kubernetes.io/selected-node"]; chosen {
			t.Errorf("the claim still waits for %s", node)
		}
	})
}

func TestWhyThereIsNoVolumeIsToldOnce(t *testing.T) {
	c := claim("data", "n")
	c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	driving(t, []runtime.Object{c}, func(t *testing.T, client *fake.Clientset) {
		settle()
		create(t, client.CoreV1().PersistentVolumes().Create, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "wakes"}})
		settle()
		told, err := client.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(told.Items) != 1 || told.Items[0].Reason != "ProvisioningFailed" || !strings.Contains(told.Items[0].Message, "ReadWriteMany") || told.Items[0].Count > 1 {
			t.Errorf("events = %+v, want one that names ReadWriteMany", told.Items)
		}
	})
}

func TestWhatFailsIsTriedAgainASecondLater(t *testing.T) {
	driving(t, nil, func(t *testing.T, client *fake.Clientset) {
		settle()
		var attempts atomic.Int32
		client.PrependReactor("create", "persistentvolumes", func(clienttesting.Action) (bool, runtime.Object, error) {
			if attempts.Add(1) < 4 {
				return true, nil, apierrors.NewServiceUnavailable("starting")
			}
			return false, nil, nil
		})
		create(t, client.CoreV1().PersistentVolumeClaims("default").Create, claim("data", "n"))
		time.Sleep(2900 * time.Millisecond)
		if n := len(volumes(t, client)); n != 0 {
			t.Errorf("%d volumes after less than three seconds, want a second between attempts", n)
		}
		settle()
		if n := len(volumes(t, client)); n != 1 {
			t.Errorf("%d volumes, want one", n)
		}
	})
}

func create[T any](t *testing.T, do func(context.Context, T, metav1.CreateOptions) (T, error), o T) {
	t.Helper()
	if _, err := do(t.Context(), o, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func update[T any](t *testing.T, do func(context.Context, T, metav1.UpdateOptions) (T, error), o T) {
	t.Helper()
	if _, err := do(t.Context(), o, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func get[T any](t *testing.T, do func(context.Context, string, metav1.GetOptions) (T, error), name string) T {
	t.Helper()
	o, err := do(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return o
}
