// Package ebs is the CSI driver of EBS volumes as the local cluster has it. Volumes are objects of the API and
// nothing else: a pod that wants one gets it in the zone where its first pod goes, it is attached as soon as
// kube-controller-manager asks for that, and it goes with its claim.
//
// Binding, deciding what is attached where, and the limit of each machine are the affair of Kubernetes itself, as
// everywhere. Package kubelet starts a pod once this package has said that its volumes are attached.
package ebs

import (
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/storage/volume"

	"karpenter.sh/karpenter/internal/aws/hardware"
)

// awsZone is how the driver's older releases, and storage classes made for them, call a zone.
const awsZone = "topology." + hardware.EBSDriver + "/zone"

// OnNode is the driver on a machine that takes so many volumes.
func OnNode(machine string, volumes int) []storagev1.CSINodeDriver {
	return []storagev1.CSINodeDriver{{
		Name: hardware.EBSDriver, NodeID: machine, TopologyKeys: []string{awsZone, corev1.LabelTopologyZone},
		Allocatable: &storagev1.VolumeNodeResources{Count: new(int32(volumes))},
	}}
}

// asked reports whether kube-controller-manager wants a volume of us for the claim.
func asked(c *corev1.PersistentVolumeClaim) bool {
	return c.Annotations[volume.AnnStorageProvisioner] == hardware.EBSDriver && c.Spec.VolumeName == "" && c.DeletionTimestamp == nil
}

// errMoved says that the node which a claim's pod was to go to is gone.
var errMoved = errors.New("the node that was chosen for it is gone")

// errShared says what EBS volumes are not for.
var errShared = errors.New("an EBS volume with a file system is for one node at a time: ReadWriteMany is not possible")

// placed returns the zone for a claim's volume: that of the node which kube-scheduler chose, or any where the class does not wait for one.
// Claims of one StatefulSet should be spread then, so their names decide.
func placed(c *corev1.PersistentVolumeClaim, class *storagev1.StorageClass, zones map[string]string) (string, error) {
	if node := c.Annotations[volume.AnnSelectedNode]; node != "" {
		zone, there := zones[node]
		if !there {
			return "", errMoved
		}
		return zone, nil
	}
	all := slices.DeleteFunc(slices.Compact(slices.Sorted(maps.Values(zones))), func(z string) bool { return !allowed(class, z) })
	if len(all) == 0 {
		return "", errors.New("no node is in a zone that the storage class allows")
	}
	h := fnv.New32a()
	h.Write([]byte(c.Namespace + "/" + c.Name))
	return all[h.Sum32()%uint32(len(all))], nil
}

// allowed reports whether volumes of the class may be in the zone.
func allowed(class *storagev1.StorageClass, zone string) bool {
	if len(class.AllowedTopologies) == 0 {
		return true
	}
	return slices.ContainsFunc(class.AllowedTopologies, func(term corev1.TopologySelectorTerm) bool {
		return !slices.ContainsFunc(term.MatchLabelExpressions, func(x corev1.TopologySelectorLabelRequirement) bool {
			return (x.Key == corev1.LabelTopologyZone || x.Key == awsZone) && !slices.Contains(x.Values, zone)
		})
	})
}

// makeVolume returns the volume for a claim.
func makeVolume(c *corev1.PersistentVolumeClaim, class *storagev1.StorageClass,
	zones map[string]string) (*corev1.PersistentVolume, error) {
	if isBlock := c.Spec.VolumeMode != nil && *c.Spec.VolumeMode == corev1.PersistentVolumeBlock; !isBlock &&
		slices.Contains(c.Spec.AccessModes, corev1.ReadWriteMany) {
		return nil, errShared
	}
	zone, err := placed(c, class, zones)
	if err != nil {
		return nil, err
	}
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name:        "pvc-" + string(c.UID), // a second attempt finds what the first one made
			Annotations: map[string]string{volume.AnnDynamicallyProvisioned: hardware.EBSDriver},
		},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: c.Spec.Resources.Requests[corev1.ResourceStorage]},
			AccessModes:                   c.Spec.AccessModes,
			VolumeMode:                    c.Spec.VolumeMode,
			PersistentVolumeReclaimPolicy: *class.ReclaimPolicy,
			StorageClassName:              class.Name,
			MountOptions:                  class.MountOptions,
			ClaimRef: &corev1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: c.Namespace, Name: c.Name, UID: c.UID,
				ResourceVersion: c.ResourceVersion,
			},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: hardware.EBSDriver, VolumeHandle: handle(c), FSType: "ext4",
			}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelTopologyZone,
					Operator: corev1.NodeSelectorOpIn, Values: []string{zone}}},
			}}}},
		},
	}, nil
}

// handle is EC2's name of a claim's volume.
func handle(c *corev1.PersistentVolumeClaim) string {
	h := fnv.New64a()
	h.Write([]byte(c.UID))
	return fmt.Sprintf("vol-0%016x", h.Sum64())
}

// unneeded reports whether a volume is to go: its claim is gone, its class wants no volume without one, and it is attached nowhere.
func unneeded(v *corev1.PersistentVolume, attachments []*storagev1.VolumeAttachment) bool {
	return ours(v) && v.Annotations[volume.AnnDynamicallyProvisioned] == hardware.EBSDriver && v.DeletionTimestamp == nil &&
		v.Status.Phase == corev1.VolumeReleased && v.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete &&
		!slices.ContainsFunc(attachments, func(a *storagev1.VolumeAttachment) bool { return of(a, v) })
}

func ours(v *corev1.PersistentVolume) bool {
	return v.Spec.CSI != nil && v.Spec.CSI.Driver == hardware.EBSDriver
}

func of(a *storagev1.VolumeAttachment, v *corev1.PersistentVolume) bool {
	return a.Spec.Source.PersistentVolumeName != nil && *a.Spec.Source.PersistentVolumeName == v.Name
}

// claimsOf are the names of the claims that a pod mounts.
func claimsOf(p *corev1.Pod) []string {
	var all []string
	for _, v := range p.Spec.Volumes {
		switch {
		case v.PersistentVolumeClaim != nil:
			all = append(all, v.PersistentVolumeClaim.ClaimName)
		case v.Ephemeral != nil:
			all = append(all, p.Name+"-"+v.Name)
		}
	}
	return all
}

// Query finds, in jq, whether a pod waits for its volumes.
const Query = `select((.spec.volumes // []) | any(.persistentVolumeClaim or .ephemeral)) | ` +
	`select((.status.conditions // []) | any(.type == "PodReadyToStartContainers" and .status == "True") | not) | .spec.nodeName`

// waits says the same as Query.
func waits(p *corev1.Pod) bool {
	return len(claimsOf(p)) > 0 && !slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReadyToStartContainers && c.Status == corev1.ConditionTrue
	})
}
