package replay

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/engine"
)

// diskWorld sells machines in zones a and b, those of b for less, and has a disk that is made where its pod goes.
func diskWorld(claims ...string) Variant {
	v := variant()
	for _, it := range v.Pools[0].Catalog.Types {
		it.Labels[corev1.LabelTopologyZone] = []string{"a", "b"}
		it.Offerings = append(it.Offerings, cloud.Offering{
			Labels: map[string]string{v1.CapacityTypeLabelKey: v1.CapacityTypeOnDemand, corev1.LabelTopologyZone: "b"}, Price: it.Offerings[0].Price * 9 / 10, Available: true,
		})
	}
	v.Store.Update(func(d *cluster.Draft) {
		cluster.StorageClasses.Put(d, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "ssd"}, Provisioner: "ebs.csi.aws.com", VolumeBindingMode: new(storagev1.VolumeBindingWaitForFirstConsumer)})
		for _, name := range claims {
			cluster.PVCs.Put(d, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: new("ssd")}})
		}
	})
	return v
}

func named(claim string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}}
	}
}

func ephemeral(p *corev1.Pod) {
	p.Spec.Volumes = []corev1.Volume{{Name: "tmp", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}}
}

// A disk is made where its pod goes first, in the cheap zone. When the pool wants another zone the machine is replaced, unless a disk keeps its pod
// where it is. When the machine has reached its age the pod is made anew: one whose disk lasts has no place then, one whose disk is made anew has.
func TestAPodGoesWhereItsDiskIs(t *testing.T) {
	for name, tc := range map[string]struct {
		edit        func(*corev1.Pod)
		drift, last float64 // dollars an hour after the edit, and in the end
	}{
		"a disk that lasts":            {named("data"), 0.09, 0},
		"a disk that nobody knows":     {named("other"), 0.1, 0.1},
		"a disk as long as its pod is": {ephemeral, 0.09, 0.1},
		"no disk":                      {func(*corev1.Pod) {}, 0.1, 0.1},
	} {
		t.Run(name, func(t *testing.T) {
			v := diskWorld("data", "a-tmp")
			v.Pools[0].Pool.Spec.Template.Spec.ExpireAfter = v1.After(time.Hour)
			after := v.Pools[0].Pool.DeepCopy()
			after.Spec.Template.Spec.Requirements = []v1.NodeSelectorRequirementWithMinValues{{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: []string{"a"}}}
			v.Edits = []Edit{{At: start.Add(15 * time.Minute), Pools: []engine.Pool{{Pool: after, Catalog: v.Pools[0].Catalog}}}}
			got := play(t, record(t, 7200, life("a", "1", 0, 0, tc.edit)), v, settings()).Curve // at 10, 30, 50, 70, 90 and 110 minutes
			if got[0].Price != 0.09 || got[2].Price != tc.drift || got[4].Price != tc.last || (got[4].Waiting == 1) != (tc.last == 0) {
				t.Errorf("%+v, want $%v an hour after the edit and $%v in the end", got, tc.drift, tc.last)
			}
		})
	}
}
