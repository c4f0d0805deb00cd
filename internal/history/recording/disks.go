package recording

import (
	"encoding/json"
	"fmt"
	"iter"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"karpenter.sh/karpenter/internal/cluster"
)

// bound marks the volume of a claim as existing.
const bound = "pv.kubernetes.io/bind-completed"

type seenKey struct{ kind, namespace, name string }

// Disks are the volumes that pods name with their claims and classes, each as it was first seen. Later versions show
// what Karpenter and kube-scheduler did during the recording.
type Disks struct {
	Claims  []*corev1.PersistentVolumeClaim
	Volumes []*corev1.PersistentVolume
	Classes []*storagev1.StorageClass

	seen map[seenKey]bool
}

// add notes an object if it is a claim, volume or StorageClass and was not seen yet.
func (d *Disks) add(kind string, raw json.RawMessage) error {
	var o interface {
		runtime.Object
		metav1.Object
	}
	switch kind {
	case "PersistentVolumeClaim":
		o = &corev1.PersistentVolumeClaim{}
	case "PersistentVolume":
		o = &corev1.PersistentVolume{}
	case "StorageClass":
		o = &storagev1.StorageClass{}
	default:
		return nil
	}
	if err := json.Unmarshal(raw, o); err != nil {
		return err
	}
	if o.GetName() == "" {
		return fmt.Errorf("the %s has no name", kind)
	}
	key := seenKey{kind, o.GetNamespace(), o.GetName()}
	if d.seen[key] {
		return nil
	}
	if d.seen == nil {
		d.seen = map[seenKey]bool{}
	}
	d.seen[key] = true
	switch o := o.(type) {
	case *corev1.PersistentVolumeClaim:
		d.Claims = append(d.Claims, o)
	case *corev1.PersistentVolume:
		d.Volumes = append(d.Volumes, o)
	case *storagev1.StorageClass:
		d.Classes = append(d.Classes, o)
	}
	return nil
}

// disksOf yields what a recording holds about the disks of a pod, with a key for each: where they are and where they may
// be created, and nothing about their content or access.
func disksOf(snap *cluster.Snapshot, p *cluster.Pod) iter.Seq2[string, any] {
	return func(yield func(string, any) bool) {
		for _, name := range p.VolumeClaims() {
			claim := cluster.PVCs.Get(snap, p.Namespace, name)
			if claim == nil {
				continue
			}
			c := &corev1.PersistentVolumeClaim{TypeMeta: metav1.TypeMeta{APIVersion: "v1",
				Kind: "PersistentVolumeClaim"}, ObjectMeta: metav1.ObjectMeta{Namespace: claim.Namespace, Name: claim.Name}}
			c.Spec.StorageClassName, c.Spec.VolumeName, c.Spec.AccessModes, c.Spec.Resources =
				claim.Spec.StorageClassName, claim.Spec.VolumeName, claim.Spec.AccessModes, claim.Spec.Resources
			c.Status.Phase = claim.Status.Phase
			if done, there := claim.Annotations[bound]; there {
				c.Annotations = map[string]string{bound: done}
			}
			if !yield("c/"+c.Namespace+"/"+c.Name, c) {
				return
			}
			if pv := cluster.PVs.Get(snap, claim.Spec.VolumeName); pv != nil && !yield("v/"+pv.Name, recordedVolume(pv)) {
				return
			}
			if claim.Spec.StorageClassName == nil {
				continue
			}
			if sc := cluster.StorageClasses.Get(snap, *claim.Spec.StorageClassName); sc != nil {
				s := &storagev1.StorageClass{TypeMeta: metav1.TypeMeta{APIVersion: "storage.k8s.io/v1",
					Kind: "StorageClass"}, ObjectMeta: metav1.ObjectMeta{Name: sc.Name}}
				s.Provisioner, s.VolumeBindingMode, s.AllowedTopologies = sc.Provisioner, sc.VolumeBindingMode, sc.AllowedTopologies
				if !yield("s/"+s.Name, s) {
					return
				}
			}
		}
	}
}

// recordedVolume returns the part of a volume that a recording holds.
func recordedVolume(pv *corev1.PersistentVolume) *corev1.PersistentVolume {
	out := &corev1.PersistentVolume{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolume"},
		ObjectMeta: metav1.ObjectMeta{Name: pv.Name}}
	out.Spec.NodeAffinity, out.Spec.StorageClassName, out.Spec.AccessModes, out.Spec.Capacity = pv.Spec.NodeAffinity,
		pv.Spec.StorageClassName, pv.Spec.AccessModes, pv.Spec.Capacity
	if pv.Spec.CSI != nil {
		out.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: pv.Spec.CSI.Driver}
	}
	return out
}

// claimVolumes returns the volumes that need a claim, without other details.
func claimVolumes(volumes []corev1.Volume) []corev1.Volume {
	var out []corev1.Volume
	for i := range volumes {
		switch v := &volumes[i]; {
		case v.PersistentVolumeClaim != nil:
			out = append(out, corev1.Volume{Name: v.Name,
				VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: v.PersistentVolumeClaim}})
		case v.Ephemeral != nil:
			out = append(out, corev1.Volume{Name: v.Name, VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}})
		}
	}
	return out
}
