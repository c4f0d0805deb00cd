package compile

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	apilabel "karpenter.sh/karpenter/api/label"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/label"
	"karpenter.sh/karpenter/internal/core/reason"
)

var (
	later   = storagev1.VolumeBindingWaitForFirstConsumer
	atOnce  = storagev1.VolumeBindingImmediate
	zone    = corev1.LabelTopologyZone
	deleted = &metav1.Time{}
)

func storageClass(name, provisioner string, mode *storagev1.VolumeBindingMode, zones ...string) *storagev1.StorageClass {
	sc := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: provisioner, VolumeBindingMode: mode}
	for _, z := range zones {
		sc.AllowedTopologies = append(sc.AllowedTopologies, corev1.TopologySelectorTerm{
			MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: zone, Values: []string{z}}}})
	}
	return sc
}

func volumeIn(name string, zones ...string) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "ebs.csi.aws.com"}
	if len(zones) > 0 {
		pv.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
			{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: zone, Operator: corev1.NodeSelectorOpIn, Values: zones}}}}}}
	}
	return pv
}

// claimOf returns a claim for a bound volume, or for a new volume of a storage class.
func claimOf(class, volume string) *corev1.PersistentVolumeClaim {
	pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data"}}
	pvc.Spec.StorageClassName, pvc.Spec.VolumeName = &class, volume
	if volume != "" {
		pvc.Annotations = map[string]string{bindCompleted: "yes"}
	}
	return pvc
}

// readerOf returns a reader of a cluster with storage classes and volumes of every kind.
func readerOf(t *testing.T) *volumeReader {
	t.Helper()
	store := cluster.NewStore()
	store.Update(func(d *cluster.Draft) {
		for _, sc := range []*storagev1.StorageClass{
			storageClass("anywhere", "ebs.csi.aws.com", &later), storageClass("old", "kubernetes.io/aws-ebs", &later),
			storageClass("zonal", "ebs.csi.aws.com", &later, "a", "b"), storageClass("immediate", "ebs.csi.aws.com", &atOnce),
			storageClass("disks", noProvisioner, &later),
		} {
			cluster.StorageClasses.Put(d, sc)
		}
		labelled := volumeIn("labelled")
		labelled.Labels = map[string]string{zone: "a__b"}
		leaving := volumeIn("leaving", "a")
		leaving.DeletionTimestamp = deleted
		for _, pv := range []*corev1.PersistentVolume{volumeIn("in-a", "a"), volumeIn("free"), labelled, leaving} {
			cluster.PVs.Put(d, pv)
		}
	})
	return &volumeReader{snap: store.Snapshot(), known: apilabel.NewVocabulary(v1.Labels()), drivers: numbers[string]{}, ids: numbers[volumeKey]{}}
}

func TestClaimsThatCannotBePlanned(t *testing.T) {
	v := readerOf(t)
	unbound, lost, leaving := claimOf("", "in-a"), claimOf("anywhere", ""), claimOf("anywhere", "")
	unbound.Annotations, lost.Status.Phase, leaving.DeletionTimestamp = nil, corev1.ClaimLost, deleted
	for name, tc := range map[string]struct {
		claim *corev1.PersistentVolumeClaim
		want  reason.Flaw
	}{
		"the claim does not exist":         {claim: nil, want: reason.Missing},
		"the claim is being deleted":       {claim: leaving, want: reason.Leaving},
		"the claim lost its volume":        {claim: lost, want: reason.Lost},
		"its volume does not exist":        {claim: claimOf("", "none"), want: reason.VolumeMissing},
		"its volume is being deleted":      {claim: claimOf("", "leaving"), want: reason.VolumeLeaving},
		"binding is not complete":          {claim: unbound, want: reason.NotBound},
		"it names no storage class":        {claim: claimOf("", ""), want: reason.ClassNotNamed},
		"its storage class does not exist": {claim: claimOf("none", ""), want: reason.ClassMissing},
		"it is bound before any pod runs":  {claim: claimOf("immediate", ""), want: reason.BoundAtOnce},
		"it is bound":                      {claim: claimOf("", "in-a")},
		"it waits for its first pod":       {claim: claimOf("anywhere", "")},
	} {
		t.Run(name, func(t *testing.T) {
			if got := v.checkClaim(tc.claim, "data"); got.Flaw != tc.want || (got.Code == 0) != (tc.want == 0) {
				t.Errorf("checkClaim = %+v, want flaw %v", got, tc.want)
			}
		})
	}
}

func TestPlacesOfAVolume(t *testing.T) {
	v := readerOf(t)
	in := func(zones ...string) []label.Reqs { return []label.Reqs{label.Reqs{}.With(zone, label.Only(zones...))} }
	for name, tc := range map[string]struct {
		claim *corev1.PersistentVolumeClaim
		want  []label.Reqs
	}{
		"a volume says its zone by affinity":   {claim: claimOf("", "in-a"), want: in("a")},
		"a volume says its zones by label":     {claim: claimOf("", "labelled"), want: in("a", "b")},
		"a volume without either is anywhere":  {claim: claimOf("", "free")},
		"a storage class limits zones":         {claim: claimOf("zonal", ""), want: in("a", "b")},
		"a storage class allows every zone":    {claim: claimOf("anywhere", "")},
		"a missing storage class says nothing": {claim: claimOf("none", "")},
	} {
		t.Run(name, func(t *testing.T) {
			got, limited := v.claimTopology(tc.claim)
			if limited != (tc.want != nil) || limited && keysOf(got) != keysOf(tc.want) {
				t.Errorf("claimTopology = %v, %t, want %v", got, limited, tc.want)
			}
		})
	}
}

// keysOf returns the identity of a list of requirements.
func keysOf(list []label.Reqs) string {
	out := ""
	for _, r := range list {
		out += r.Key() + ";"
	}
	return out
}

func TestDriverOfAClaim(t *testing.T) {
	v := readerOf(t)
	for name, tc := range map[string]struct {
		claim *corev1.PersistentVolumeClaim
		want  string
	}{
		"no claim":                       {claim: nil},
		"the volume names it":            {claim: claimOf("", "in-a"), want: "ebs.csi.aws.com"},
		"the volume does not exist":      {claim: claimOf("", "none")},
		"the storage class names it":     {claim: claimOf("anywhere", ""), want: "ebs.csi.aws.com"},
		"an old provisioner is replaced": {claim: claimOf("old", ""), want: "ebs.csi.aws.com"},
		"no storage class":               {claim: claimOf("none", "")},
	} {
		t.Run(name, func(t *testing.T) {
			if got := DriverOf(v.snap, tc.claim); got != tc.want {
				t.Errorf("DriverOf = %q, want %q", got, tc.want)
			}
		})
	}
}

func TestAlternativesOfTwoVolumes(t *testing.T) {
	in := func(zones ...string) label.Reqs { return label.Reqs{}.With(zone, label.Only(zones...)) }
	a, b, ab := in("a"), in("b"), in("a", "b")
	for name, tc := range map[string]struct {
		first, second []label.Reqs
		want          []label.Reqs
	}{
		"the first says nothing":             {second: []label.Reqs{a}, want: []label.Reqs{a}},
		"contradictions are dropped":         {first: []label.Reqs{a, b}, second: []label.Reqs{a}, want: []label.Reqs{a}},
		"equal combinations are kept once":   {first: []label.Reqs{a, ab}, second: []label.Reqs{a}, want: []label.Reqs{a}},
		"one contradiction stays if all are": {first: []label.Reqs{a}, second: []label.Reqs{b}, want: []label.Reqs{a.And(b)}},
		"each combination is an alternative": {first: []label.Reqs{a, b}, second: []label.Reqs{ab}, want: []label.Reqs{a, b}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := cross(tc.first, tc.second); keysOf(got) != keysOf(tc.want) {
				t.Errorf("cross = %v, want %v", got, tc.want)
			}
		})
	}
}

func TestDisksThatSuitAClaim(t *testing.T) {
	claim := claimOf("disks", "")
	claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("10Gi")}
	claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	kind := diskKind{class: "disks", claim: claim}
	for name, tc := range map[string]struct {
		edit func(*corev1.PersistentVolume)
		want bool
	}{
		"a free disk":              {edit: func(*corev1.PersistentVolume) {}, want: true},
		"a disk of another class":  {edit: func(pv *corev1.PersistentVolume) { pv.Spec.StorageClassName = "other" }},
		"a disk that is bound":     {edit: func(pv *corev1.PersistentVolume) { pv.Spec.ClaimRef = &corev1.ObjectReference{} }},
		"a disk that is not ready": {edit: func(pv *corev1.PersistentVolume) { pv.Status.Phase = corev1.VolumePending }},
		"a disk that is deleted":   {edit: func(pv *corev1.PersistentVolume) { pv.DeletionTimestamp = deleted }},
		"a disk that is too small": {edit: func(pv *corev1.PersistentVolume) {
			pv.Spec.Capacity[corev1.ResourceStorage] = resource.MustParse("9Gi")
		}},
		"a disk of another mode":     {edit: func(pv *corev1.PersistentVolume) { block := corev1.PersistentVolumeBlock; pv.Spec.VolumeMode = &block }},
		"a disk with another access": {edit: func(pv *corev1.PersistentVolume) { pv.Spec.AccessModes = nil }},
	} {
		t.Run(name, func(t *testing.T) {
			pv := &corev1.PersistentVolume{}
			pv.Spec.StorageClassName, pv.Status.Phase, pv.Spec.AccessModes = "disks", corev1.VolumeAvailable, claim.Spec.AccessModes
			pv.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("10Gi")}
			tc.edit(pv)
			if got := kind.suits(pv); got != tc.want {
				t.Errorf("suits = %t, want %t", got, tc.want)
			}
		})
	}
}

// A claim for a disk counts against the disks that suit it and against all disks of its class.
func TestAClaimForADiskCountsTwice(t *testing.T) {
	v := readerOf(t)
	claim := claimOf("disks", "")
	if !v.wantsDisk(claim) || v.wantsDisk(claimOf("anywhere", "")) || v.wantsDisk(nil) {
		t.Error("wantsDisk is wrong about a storage class without provisioner")
	}
	first, again := v.mountsOfDisk(claim), v.mountsOfDisk(claim)
	if len(first) != 2 || first[0].Driver == first[1].Driver || !slices.Equal(first, again) || len(v.disks) != 2 {
		t.Errorf("mounts = %v, then %v, %d kinds of disks", first, again, len(v.disks))
	}
}
