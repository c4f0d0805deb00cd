package replay

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"karpenter.sh/karpenter/internal/cluster"
)

// bound marks the volume of a claim as existing.
const bound = "pv.kubernetes.io/bind-completed"

// mount gives a pod those of its volumes whose claims are known. Other volumes are left out, because nothing says
// which zone they tie the pod to. A pod that was created anew gets a new claim for each ephemeral volume, like that
// of the first pod.
func (r *run) mount(p *pod) {
	volumes := p.life.Pod.Spec.Volumes
	if len(volumes) == 0 {
		return
	}
	snap := r.Store.Snapshot()
	var kept []corev1.Volume
	for _, v := range volumes {
		switch {
		case v.PersistentVolumeClaim != nil && cluster.PVCs.Get(snap, p.key.Namespace, v.PersistentVolumeClaim.ClaimName) != nil:
			kept = append(kept, v)
		case v.Ephemeral != nil:
			like := cluster.PVCs.Get(snap, p.key.Namespace, p.life.Pod.Name+"-"+v.Name)
			if like == nil {
				continue
			}
			kept = append(kept, v)
			if name := p.key.Name + "-" + v.Name; name != like.Name {
				c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: p.key.Namespace,
					Name: name}, Spec: *like.Spec.DeepCopy()}
				c.Spec.VolumeName = ""
				r.update(func(d *cluster.Draft) { cluster.PVCs.Put(d, c) })
			}
		}
	}
	p.volumes = kept
}

// unmount deletes the claims of ephemeral volumes that mount created for a pod.
func (r *run) unmount(p *pod) {
	for _, v := range p.volumes {
		if v.Ephemeral != nil && p.key.Name != p.life.Pod.Name {
			r.update(func(d *cluster.Draft) { cluster.PVCs.Delete(d, p.key.Namespace, p.key.Name+"-"+v.Name) })
		}
	}
}

// provision creates the volumes of a pod that do not exist yet, in the zone of the machine where it goes, as their
// driver would.
func (r *run) provision(p *pod, m *machine) {
	for _, v := range p.volumes {
		name := p.key.Name + "-" + v.Name
		if v.PersistentVolumeClaim != nil {
			name = v.PersistentVolumeClaim.ClaimName
		}
		snap := r.Store.Snapshot()
		claim := cluster.PVCs.Get(snap, p.key.Namespace, name)
		if claim == nil || claim.Spec.VolumeName != "" {
			continue
		}
		made := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "replay-" + p.key.Namespace + "-" + name}}
		made.Spec.AccessModes, made.Status.Phase = claim.Spec.AccessModes, corev1.VolumeBound
		made.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelTopologyZone,
				Operator: corev1.NodeSelectorOpIn, Values: []string{m.offer.zone}}},
		}}}}
		if claim.Spec.StorageClassName != nil {
			made.Spec.StorageClassName = *claim.Spec.StorageClassName
			if sc := cluster.StorageClasses.Get(snap, *claim.Spec.StorageClassName); sc != nil {
				made.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: sc.Provisioner, VolumeHandle: made.Name}
			}
		}
		c := claim.DeepCopy()
		c.Spec.VolumeName, c.Status.Phase = made.Name, corev1.ClaimBound
		c.Annotations = map[string]string{bound: "yes"}
		r.update(func(d *cluster.Draft) { cluster.PVs.Put(d, made); cluster.PVCs.Put(d, c) })
	}
}

// hasVolumes reports whether a pod has volumes that may tie it to a place. For such a pod only the engine knows where
// it may go.
func hasVolumes(volumes []corev1.Volume) bool {
	return slices.ContainsFunc(volumes, func(v corev1.Volume) bool { return v.PersistentVolumeClaim != nil || v.Ephemeral != nil })
}
