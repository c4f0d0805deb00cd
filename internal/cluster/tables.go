package cluster

import (
	"cmp"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	autoscalingv1beta1 "karpenter.sh/karpenter/api/autoscaling/v1beta1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
)

// The tables of a picture. A draft changes its own; a snapshot has a copy of them, which shares all pages and is only read.
type tables struct {
	pods            table[PodKey, *Pod]
	unbound         table[PodKey, *Pod]
	repelling       table[PodKey, *Pod]
	labels          table[countKey, LabelCount]
	daemonPods      table[types.UID, daemonPod]
	seats           table[seatKey, Seat]
	held            table[PodKey, PodKey]
	nodes           table[rowKey, *Node]
	machineSum      sum // of all rows of nodes, for Digest
	byProvider      table[string, providerRow]
	byClaim         table[string, claimRow]
	pools           table[string, *v1.NodePool]
	overlays        table[string, *v1alpha1.NodeOverlay]
	buffers         table[objectKey, *autoscalingv1beta1.CapacityBuffer]
	templates       table[objectKey, *corev1.PodTemplate]
	spares          table[objectKey, *Spares]
	disruptionPlans table[string, *v1alpha1.DisruptionPlan]
	classes         table[v1.NodeClassReference, *NodeClass]
	daemonSets      table[objectKey, *appsv1.DaemonSet]
	pdbs            table[objectKey, *policyv1.PodDisruptionBudget]
	pvcs            table[objectKey, *corev1.PersistentVolumeClaim]
	pvs             table[objectKey, *corev1.PersistentVolume]
	storageClasses  table[objectKey, *storagev1.StorageClass]
	namespaces      table[objectKey, *corev1.Namespace]
	priorityClasses table[objectKey, *schedulingv1.PriorityClass]
	services        table[objectKey, *corev1.Service]
	attachments     table[objectKey, *storagev1.VolumeAttachment]
	resourceClaims  table[objectKey, *resourcev1.ResourceClaim]
	claimTemplates  table[objectKey, *resourcev1.ResourceClaimTemplate]
	deviceClasses   table[objectKey, *resourcev1.DeviceClass]
	resourceSlices  table[objectKey, *resourcev1.ResourceSlice]
	selectors       table[types.UID, ownerSelector]
	broken          table[brokenKey, Broken]
}

func newTables(now *epoch) tables {
	return tables{
		pods:            podTable(now),
		unbound:         podTable(now),
		repelling:       podTable(now),
		labels:          newTable(now, func(c LabelCount) countKey { return countKey{c.Namespace, c.Labels.ID, c.Node} }, compareCounts),
		daemonPods:      newTable(now, func(d daemonPod) types.UID { return d.owner }, cmp.Compare[types.UID]),
		seats:           newTable(now, Seat.key, compareSeats),
		held:            newTable(now, func(k PodKey) PodKey { return k }, PodKey.Compare),
		nodes:           newTable(now, (*Node).key, compareRows),
		byProvider:      newTable(now, func(r providerRow) string { return r.id }, strings.Compare),
		byClaim:         newTable(now, func(r claimRow) string { return r.claim }, strings.Compare),
		pools:           newTable(now, func(p *v1.NodePool) string { return p.Name }, strings.Compare),
		overlays:        newTable(now, func(o *v1alpha1.NodeOverlay) string { return o.Name }, strings.Compare),
		buffers:         objectTable[*autoscalingv1beta1.CapacityBuffer](now),
		templates:       objectTable[*corev1.PodTemplate](now),
		spares:          newTable(now, (*Spares).key, compareObjects),
		disruptionPlans: newTable(now, func(p *v1alpha1.DisruptionPlan) string { return p.Name }, strings.Compare),
		classes:         newTable(now, (*NodeClass).ref, compareRefs),
		daemonSets:      objectTable[*appsv1.DaemonSet](now),
		pdbs:            objectTable[*policyv1.PodDisruptionBudget](now),
		pvcs:            objectTable[*corev1.PersistentVolumeClaim](now),
		pvs:             objectTable[*corev1.PersistentVolume](now),
		storageClasses:  objectTable[*storagev1.StorageClass](now),
		namespaces:      objectTable[*corev1.Namespace](now),
		priorityClasses: objectTable[*schedulingv1.PriorityClass](now),
		services:        objectTable[*corev1.Service](now),
		resourceClaims:  objectTable[*resourcev1.ResourceClaim](now),
		claimTemplates:  objectTable[*resourcev1.ResourceClaimTemplate](now),
		deviceClasses:   objectTable[*resourcev1.DeviceClass](now),
		resourceSlices:  objectTable[*resourcev1.ResourceSlice](now),
		attachments:     newTable(now, attachmentKey, compareObjects),
		selectors:       newTable(now, func(o ownerSelector) types.UID { return o.owner }, cmp.Compare[types.UID]),
		broken:          newTable(now, func(b Broken) brokenKey { return brokenKey{b.Kind, b.Namespace, b.Name} }, compareBroken),
	}
}

// objectTable is a table of API objects by namespace and name.
func objectTable[V metav1.Object](now *epoch) table[objectKey, V] {
	return newTable(now, func(o V) objectKey { return objectKey{o.GetNamespace(), o.GetName()} }, compareObjects)
}

func podTable(now *epoch) table[PodKey, *Pod] { return newTable(now, (*Pod).Key, PodKey.Compare) }
