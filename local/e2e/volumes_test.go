package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
)

// disk is a claim for a gigabyte, of the default class unless one is given.
func disk(name string, class *string) corev1.PersistentVolumeClaim {
	return corev1.PersistentVolumeClaim{ObjectMeta: meta(name), Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: class,
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}}
}

// volumes are the EBS volumes of claims whose name begins so, by claim.
func volumes(ctx context.Context, prefix string) (map[string]corev1.PersistentVolume, error) {
	var list corev1.PersistentVolumeList
	err := shared.List(ctx, &list)
	all := map[string]corev1.PersistentVolume{}
	for _, v := range list.Items {
		if v.Spec.ClaimRef != nil && strings.HasPrefix(v.Spec.ClaimRef.Name, prefix) {
			all[v.Spec.ClaimRef.Name] = v
		}
	}
	return all, err
}

func zoneOf(v corev1.PersistentVolume) string {
	return v.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values[0]
}

// A machine of the type takes 25 volumes: two pods with thirteen each need two machines, however small the pods are.
func TestVolumesArePlacedWithTheirPodsAndHoldThem(t *testing.T) {
	together.enter(t)
	const name, each = "db", 13
	p := pool(name, "default", v1.CapacityTypeSpot)
	p.Spec.Template.Spec.Requirements = append(p.Spec.Template.Spec.Requirements,
		v1.NodeSelectorRequirementWithMinValues{Key: corev1.LabelInstanceTypeStable, Operator: "In", Values: []string{"m5.large"}})
	add(t, p)
	set := &appsv1.StatefulSet{ObjectMeta: meta(name), Spec: appsv1.StatefulSetSpec{
		Replicas: new(int32(2)), Selector: selector(name), Template: podOf(name, "100m"), PodManagementPolicy: appsv1.ParallelPodManagement,
		PersistentVolumeClaimRetentionPolicy: &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
			WhenDeleted: appsv1.DeletePersistentVolumeClaimRetentionPolicyType, WhenScaled: appsv1.RetainPersistentVolumeClaimRetentionPolicyType,
		},
	}}
	for i := range each {
		set.Spec.VolumeClaimTemplates = append(set.Spec.VolumeClaimTemplates, disk(fmt.Sprintf("data%d", i), nil))
	}
	add(t, set)
	begin := time.Now()
	before := running(t, name, 2)
	t.Logf("2 pods with %d volumes each ran after %s", each, time.Since(begin).Round(100*time.Millisecond))
	if before[0].Spec.NodeName == before[1].Spec.NodeName {
		t.Errorf("both pods, with %d volumes together, are on %s", 2*each, before[0].Spec.NodeName)
	}
	zones := map[string]string{}
	for _, pod := range before {
		zones[pod.Name] = checkDisks(t, pod, each)
	}

	// A node goes, and its pod comes back where its volumes are.
	gone := before[0]
	var node corev1.Node
	if err := shared.Get(t.Context(), client.ObjectKey{Name: gone.Spec.NodeName}, &node); err != nil {
		t.Fatal(err)
	}
	claim := &v1.NodeClaim{}
	claim.Name = node.OwnerReferences[0].Name
	begin = time.Now()
	if err := shared.Delete(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	eventually(t, func(ctx context.Context) (string, error) {
		if err := shared.Get(ctx, client.ObjectKeyFromObject(&node), &node); !apierrors.IsNotFound(err) {
			return "the node is there", err
		}
		return "", nil
	})
	for _, pod := range running(t, name, 2) {
		if zone := checkDisks(t, pod, each); zone != zones[pod.Name] {
			t.Errorf("%s came back to volumes in %s, its own are in %s", pod.Name, zone, zones[pod.Name])
		}
	}
	t.Logf("a pod had its volumes on another machine after %s", time.Since(begin).Round(100*time.Millisecond))

	shared.do(t, "kubectl", "delete", "statefulset", name)
	eventually(t, func(ctx context.Context) (string, error) {
		left, err := volumes(ctx, "data")
		if len(left) > 0 {
			return fmt.Sprintf("%d volumes outlived their claims", len(left)), err
		}
		return "", err
	})
}

// checkDisks fails unless all volumes of a pod are in the zone of its node and attached there. It returns the zone.
func checkDisks(t *testing.T, pod corev1.Pod, want int) string {
	t.Helper()
	var node corev1.Node
	var limits storagev1.CSINode
	var attachments storagev1.VolumeAttachmentList
	for _, err := range []error{
		shared.Get(t.Context(), client.ObjectKey{Name: pod.Spec.NodeName}, &node), shared.Get(t.Context(), client.ObjectKey{Name: pod.Spec.NodeName}, &limits),
		shared.List(t.Context(), &attachments),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	all, err := volumes(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	zone, has := node.Labels[corev1.LabelTopologyZone], 0
	for _, v := range pod.Spec.Volumes {
		if v.PersistentVolumeClaim == nil {
			continue
		}
		has++
		disk := all[v.PersistentVolumeClaim.ClaimName]
		if got := zoneOf(disk); got != zone {
			t.Errorf("%s is in %s, the volume of %s in %s", pod.Name, zone, v.PersistentVolumeClaim.ClaimName, got)
		}
		if !slices.ContainsFunc(attachments.Items, func(a storagev1.VolumeAttachment) bool {
			return *a.Spec.Source.PersistentVolumeName == disk.Name && a.Spec.NodeName == node.Name && a.Status.Attached
		}) {
			t.Errorf("%s runs, and the volume of %s is not attached to its node", pod.Name, v.PersistentVolumeClaim.ClaimName)
		}
	}
	if has != want {
		t.Errorf("%s has %d volumes, want %d", pod.Name, has, want)
	}
	if got := *limits.Spec.Drivers[0].Allocatable.Count; got != 25 {
		t.Errorf("%s takes %d volumes, want 25", node.Name, got)
	}
	return zone
}

func TestClassesSayWhenVolumesAreMade(t *testing.T) {
	together.enter(t)
	atOnce := &storagev1.StorageClass{Provisioner: "ebs.csi.aws.com", VolumeBindingMode: new(storagev1.VolumeBindingImmediate)}
	atOnce.Name = "at-once"
	add(t, atOnce)
	for name, class := range map[string]*string{"waits": nil, "at-once": new("at-once"), "nowhere": new("no-such-class")} {
		d := disk(name, class)
		add(t, &d)
	}
	pod := &corev1.Pod{ObjectMeta: meta("nowhere"), Spec: template("nowhere").Spec}
	pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "nowhere"}}}}
	add(t, pod)
	eventually(t, func(ctx context.Context) (string, error) {
		all, err := volumes(ctx, "")
		if _, made := all["at-once"]; !made {
			return "there is no volume for the claim whose class waits for nobody", err
		}
		for _, name := range []string{"waits", "nowhere"} {
			if _, made := all[name]; made {
				return "there is a volume for the claim " + name, nil
			}
		}
		return "", err
	})
	for what, want := range map[string]string{
		"persistentvolumeclaim/nowhere": `"no-such-class" not found`,
		"persistentvolumeclaim/waits":   "WaitForFirstConsumer",
		"pod/nowhere":                   "names storage class no-such-class, which does not exist",
	} {
		eventually(t, func(context.Context) (string, error) {
			if told := shared.do(t, "kubectl", "events", "--for", what); !strings.Contains(told, want) {
				return fmt.Sprintf("events of %s, want %q: %s", what, want, told), nil
			}
			return "", nil
		})
	}
}
