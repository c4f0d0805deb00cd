package ebs

import (
	"errors"
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"karpenter.sh/karpenter/internal/aws/hardware"
)

// claim is one that waits for a volume of the class gp3; node is what kube-scheduler chose.
func claim(name, node string) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, UID: "1", Annotations: map[string]string{"volume.kubernetes.io/storage-provisioner": hardware.EBSDriver},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: new("gp3"), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("8Gi")}},
		},
	}
	if node != "" {
		c.Annotations["volume.kubernetes.io/selected-node"] = node
	}
	return c
}

func class(allowed ...string) *storagev1.StorageClass {
	s := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "gp3"}, Provisioner: hardware.EBSDriver, ReclaimPolicy: new(corev1.PersistentVolumeReclaimDelete)}
	if len(allowed) > 0 {
		s.AllowedTopologies = []corev1.TopologySelectorTerm{{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: allowed[0], Values: allowed[1:]}}}}
	}
	return s
}

func TestAVolumeIsWhereItsFirstPodGoes(t *testing.T) {
	zones := map[string]string{"node-a": "a", "node-b": "b", "node-c": "c", "node-c2": "c"}
	shared := func(mode corev1.PersistentVolumeMode) *corev1.PersistentVolumeClaim {
		c := claim("data", "node-a")
		c.Spec.VolumeMode, c.Spec.AccessModes = &mode, []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
		return c
	}
	for name, tc := range map[string]struct {
		claim *corev1.PersistentVolumeClaim
		class *storagev1.StorageClass
		zones []string // of which it is in one
		err   error
	}{
		"in the zone of the node that was chosen":                {claim("data", "node-b"), class(), []string{"b"}, nil},
		"nowhere when that node has gone":                        {claim("data", "node-x"), class(), nil, errMoved},
		"anywhere when nobody chooses":                           {claim("data", ""), class(), []string{"a", "b", "c"}, nil},
		"in a zone that the class allows when nobody chooses":    {claim("data", ""), class("topology.kubernetes.io/zone", "b"), []string{"b"}, nil},
		"also where the class names zones as it used to":         {claim("data", ""), class("topology.ebs.csi.aws.com/zone", "c"), []string{"c"}, nil},
		"a file system is for one node at a time":                {shared(corev1.PersistentVolumeFilesystem), class(), nil, errShared},
		"without a file system the nodes may see for themselves": {shared(corev1.PersistentVolumeBlock), class(), []string{"a"}, nil},
	} {
		v, err := makeVolume(tc.claim, tc.class, zones)
		if !errors.Is(err, tc.err) {
			t.Errorf("%s: %v, want %v", name, err, tc.err)
		}
		if err != nil {
			continue
		}
		zone := v.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values
		if len(zone) != 1 || !slices.Contains(tc.zones, zone[0]) {
			t.Errorf("%s: the zone is %v, want one of %v", name, zone, tc.zones)
		}
	}
	if _, err := makeVolume(claim("data", ""), class("topology.kubernetes.io/zone", "x"), zones); err == nil {
		t.Error("there is a volume in a zone that no node is in")
	}
	seen := map[string]bool{}
	for _, name := range []string{"data-db-0", "data-db-1", "data-db-2", "data-db-3", "data-db-4"} {
		v, err := makeVolume(claim(name, ""), class(), zones)
		if err != nil {
			t.Fatal(err)
		}
		seen[v.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values[0]] = true
	}
	if len(seen) < 2 {
		t.Errorf("the volumes of five claims are all in %v", slices.Collect(maps.Keys(seen)))
	}
}

func TestAVolumeGoesWithItsClaim(t *testing.T) {
	attachment := func(volume string) *storagev1.VolumeAttachment {
		return &storagev1.VolumeAttachment{Spec: storagev1.VolumeAttachmentSpec{Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume}}}
	}
	for name, tc := range map[string]struct {
		edit     func(*corev1.PersistentVolume)
		attached string
		want     bool
	}{
		"it goes when its claim has":              {func(*corev1.PersistentVolume) {}, "", true},
		"it stays while its claim is there":       {func(v *corev1.PersistentVolume) { v.Status.Phase = corev1.VolumeBound }, "", false},
		"it stays while it is attached":           {func(*corev1.PersistentVolume) {}, "v", false},
		"others that are attached do not hold it": {func(*corev1.PersistentVolume) {}, "w", true},
		"it stays where its class says so": {func(v *corev1.PersistentVolume) {
			v.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
		}, "", false},
		"one that somebody made by hand stays":                   {func(v *corev1.PersistentVolume) { v.Annotations = nil }, "", false},
		"one of another driver is no affair of this one":         {func(v *corev1.PersistentVolume) { v.Spec.CSI.Driver = "efs.csi.aws.com" }, "", false},
		"one that goes already is not asked to go a second time": {func(v *corev1.PersistentVolume) { v.DeletionTimestamp = new(metav1.Now()) }, "", false},
	} {
		v, err := makeVolume(claim("data", "n"), class(), map[string]string{"n": "a"})
		if err != nil {
			t.Fatal(err)
		}
		v.Name, v.Status.Phase = "v", corev1.VolumeReleased
		tc.edit(v)
		if got := unneeded(v, []*storagev1.VolumeAttachment{attachment(tc.attached)}); got != tc.want {
			t.Errorf("%s: it goes = %t", name, got)
		}
	}
}
