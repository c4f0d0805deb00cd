package cluster

import (
	"iter"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	autoscalingv1beta1 "karpenter.sh/karpenter/api/autoscaling/v1beta1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
	"karpenter.sh/karpenter/internal/kit/bounded"
)

// The kinds of which the store keeps the API objects themselves. Example: PDBs.Put(draft, o) adds a PodDisruptionBudget, and
// PDBs.In(snapshot, namespace) yields those of a namespace. A kind that is not watched has no objects.
var (
	Pools    = named(func(o *objects) *objectRows[*v1.NodePool] { return &o.pools })
	Overlays = named(func(o *objects) *objectRows[*v1alpha1.NodeOverlay] { return &o.overlays })
	// Commitments are there with the feature gate CommitmentDiscounts.
	Commitments = named(func(o *objects) *objectRows[*v1alpha1.CommitmentDiscount] { return &o.commitments })
	// Rollouts are there with the feature gate RolloutPolicies.
	Rollouts = named(func(o *objects) *objectRows[*v1alpha1.RolloutPolicy] { return &o.rollouts })
	Buffers  = Scoped[*autoscalingv1beta1.CapacityBuffer]{
		rows: func(o *objects) *objectRows[*autoscalingv1beta1.CapacityBuffer] { return &o.buffers },
		gone: (*Draft).DropSpares,
	}
	Quotas       = named(func(o *objects) *objectRows[*autoscalingv1beta1.CapacityQuota] { return &o.quotas })
	PodTemplates = scoped(func(o *objects) *objectRows[*corev1.PodTemplate] { return &o.podTemplates })
	DaemonSets   = scoped(func(o *objects) *objectRows[*appsv1.DaemonSet] { return &o.daemonSets })
	PDBs         = scoped(func(o *objects) *objectRows[*policyv1.PodDisruptionBudget] { return &o.pdbs })
	PVCs         = Scoped[*corev1.PersistentVolumeClaim]{
		rows: func(o *objects) *objectRows[*corev1.PersistentVolumeClaim] { return &o.pvcs },
		read: claimOfClass,
	}
	PVs             = named(func(o *objects) *objectRows[*corev1.PersistentVolume] { return &o.pvs })
	StorageClasses  = named(func(o *objects) *objectRows[*storagev1.StorageClass] { return &o.storageClasses })
	CSIDrivers      = named(func(o *objects) *objectRows[*storagev1.CSIDriver] { return &o.csiDrivers })
	Namespaces      = named(func(o *objects) *objectRows[*corev1.Namespace] { return &o.namespaces })
	PriorityClasses = named(func(o *objects) *objectRows[*schedulingv1.PriorityClass] { return &o.priorityClasses })
	Services        = scoped(func(o *objects) *objectRows[*corev1.Service] { return &o.services })
	Attachments     = scoped(func(o *objects) *objectRows[*storagev1.VolumeAttachment] { return &o.attachments })
	ResourceClaims  = scoped(func(o *objects) *objectRows[*resourcev1.ResourceClaim] { return &o.resourceClaims })
	ClaimTemplates  = scoped(func(o *objects) *objectRows[*resourcev1.ResourceClaimTemplate] { return &o.claimTemplates })
	DeviceClasses   = named(func(o *objects) *objectRows[*resourcev1.DeviceClass] { return &o.deviceClasses })
	// DeviceTaintRules are there where the API server serves them, in the version that is newest in the module k8s.io/api.
	DeviceTaintRules = named(func(o *objects) *objectRows[*resourcev1beta2.DeviceTaintRule] { return &o.deviceTaintRules })
	ResourceSlices   = named(func(o *objects) *objectRows[*resourcev1.ResourceSlice] { return &o.resourceSlices })

	// These are read with foresight only.
	CronJobs      = scoped(func(o *objects) *objectRows[*batchv1.CronJob] { return &o.cronJobs })
	Deployments   = scoped(func(o *objects) *objectRows[*appsv1.Deployment] { return &o.deployments })
	Autoscalers   = scoped(func(o *objects) *objectRows[*autoscalingv2.HorizontalPodAutoscaler] { return &o.autoscalers })
	ScaledObjects = scoped(func(o *objects) *objectRows[*ScaledObject] { return &o.scaledObjects })
)

// objects are the tables of these kinds.
type objects struct {
	pools           objectRows[*v1.NodePool]
	buffers         objectRows[*autoscalingv1beta1.CapacityBuffer]
	quotas          objectRows[*autoscalingv1beta1.CapacityQuota]
	podTemplates    objectRows[*corev1.PodTemplate]
	daemonSets      objectRows[*appsv1.DaemonSet]
	pdbs            objectRows[*policyv1.PodDisruptionBudget]
	pvcs            objectRows[*corev1.PersistentVolumeClaim]
	pvs             objectRows[*corev1.PersistentVolume]
	storageClasses  objectRows[*storagev1.StorageClass]
	csiDrivers      objectRows[*storagev1.CSIDriver]
	namespaces      objectRows[*corev1.Namespace]
	priorityClasses objectRows[*schedulingv1.PriorityClass]
	services        objectRows[*corev1.Service]
	attachments     objectRows[*storagev1.VolumeAttachment] // scoped by the node they are attached to
	deviceKinds
	gatedKinds
	announcing
}

// deviceKinds are the tables of dynamic resource allocation.
type deviceKinds struct {
	resourceClaims   objectRows[*resourcev1.ResourceClaim]
	claimTemplates   objectRows[*resourcev1.ResourceClaimTemplate]
	deviceClasses    objectRows[*resourcev1.DeviceClass]
	resourceSlices   objectRows[*resourcev1.ResourceSlice]
	deviceTaintRules objectRows[*resourcev1beta2.DeviceTaintRule]
}

// gatedKinds are the tables of Karpenter's own kinds that need a feature gate.
type gatedKinds struct {
	overlays    objectRows[*v1alpha1.NodeOverlay]
	commitments objectRows[*v1alpha1.CommitmentDiscount]
	rollouts    objectRows[*v1alpha1.RolloutPolicy]
}

// announcing are the tables of kinds that announce pods.
type announcing struct {
	cronJobs      objectRows[*batchv1.CronJob]
	deployments   objectRows[*appsv1.Deployment]
	autoscalers   objectRows[*autoscalingv2.HorizontalPodAutoscaler]
	scaledObjects objectRows[*ScaledObject]
}

func newObjects(now *epoch) objects {
	return objects{
		pools:           objectTable[*v1.NodePool](now),
		buffers:         objectTable[*autoscalingv1beta1.CapacityBuffer](now),
		quotas:          objectTable[*autoscalingv1beta1.CapacityQuota](now),
		podTemplates:    objectTable[*corev1.PodTemplate](now),
		daemonSets:      objectTable[*appsv1.DaemonSet](now),
		pdbs:            objectTable[*policyv1.PodDisruptionBudget](now),
		pvcs:            objectTable[*corev1.PersistentVolumeClaim](now),
		pvs:             objectTable[*corev1.PersistentVolume](now),
		storageClasses:  objectTable[*storagev1.StorageClass](now),
		csiDrivers:      objectTable[*storagev1.CSIDriver](now),
		namespaces:      objectTable[*corev1.Namespace](now),
		priorityClasses: objectTable[*schedulingv1.PriorityClass](now),
		services:        objectTable[*corev1.Service](now),
		attachments:     newTable(now, attachmentKey, compareObjects),
		deviceKinds: deviceKinds{
			resourceClaims:   objectTable[*resourcev1.ResourceClaim](now),
			claimTemplates:   objectTable[*resourcev1.ResourceClaimTemplate](now),
			deviceClasses:    objectTable[*resourcev1.DeviceClass](now),
			resourceSlices:   objectTable[*resourcev1.ResourceSlice](now),
			deviceTaintRules: objectTable[*resourcev1beta2.DeviceTaintRule](now),
		},
		gatedKinds: gatedKinds{
			overlays:    objectTable[*v1alpha1.NodeOverlay](now),
			commitments: objectTable[*v1alpha1.CommitmentDiscount](now),
			rollouts:    objectTable[*v1alpha1.RolloutPolicy](now),
		},
		announcing: announcing{
			cronJobs:      objectTable[*batchv1.CronJob](now),
			deployments:   objectTable[*appsv1.Deployment](now),
			autoscalers:   objectTable[*autoscalingv2.HorizontalPodAutoscaler](now),
			scaledObjects: objectTable[*ScaledObject](now),
		},
	}
}

// objectRows are objects by namespace and name.
type objectRows[V object] = table[objectKey, V]

type object interface {
	metav1.Object
	runtime.Object
}

// A Scoped kind has objects in namespaces. VolumeAttachments count as being in the node that they attach to.
type Scoped[V object] struct {
	rows func(*objects) *objectRows[V]
	read func(V) V                              // returns what is kept of an object; nil: all of it
	gone func(d *Draft, namespace, name string) // removes what else ends with an object; nil: nothing
}

func scoped[V object](rows func(*objects) *objectRows[V]) Scoped[V] { return Scoped[V]{rows: rows} }

// Put adds or replaces an object.
func (k Scoped[V]) Put(d *Draft, o V) {
	if k.read != nil {
		o = k.read(o)
	}
	k.rows(&d.objects).put(bounded.Object(o))
}

// Delete removes an object.
func (k Scoped[V]) Delete(d *Draft, namespace, name string) {
	k.rows(&d.objects).delete(objectKey{namespace, name})
	if k.gone != nil {
		k.gone(d, namespace, name)
	}
}

// Get returns an object, or nil.
func (k Scoped[V]) Get(s *Snapshot, namespace, name string) V {
	o, _ := k.rows(&s.objects).get(objectKey{namespace, name})
	return o
}

// All yields the objects by namespace and name.
func (k Scoped[V]) All(s *Snapshot) iter.Seq[V] { return k.rows(&s.objects).all() }

// In yields the objects of one namespace by name.
func (k Scoped[V]) In(s *Snapshot, namespace string) iter.Seq[V] {
	return func(yield func(V) bool) {
		t := k.rows(&s.objects)
		for o := range t.from(objectKey{namespace, ""}) {
			if t.order.key(o).scope != namespace || !yield(o) {
				return
			}
		}
	}
}

// A Named kind has objects of the whole cluster.
type Named[V object] struct{ kind Scoped[V] }

func named[V object](rows func(*objects) *objectRows[V]) Named[V] { return Named[V]{scoped(rows)} }

// Put adds or replaces an object.
func (k Named[V]) Put(d *Draft, o V) { k.kind.Put(d, o) }

// Delete removes an object.
func (k Named[V]) Delete(d *Draft, name string) { k.kind.Delete(d, "", name) }

// Get returns an object, or nil.
func (k Named[V]) Get(s *Snapshot, name string) V { return k.kind.Get(s, "", name) }

// All yields the objects by name.
func (k Named[V]) All(s *Snapshot) iter.Seq[V] { return k.kind.All(s) }

// claimOfClass returns a claim whose storage class is in its field. A class that an annotation names, as before Kubernetes 1.6, goes
// before the class in the field, as for the rest of Kubernetes.
func claimOfClass(o *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
	if class, annotated := o.Annotations[corev1.BetaStorageClassAnnotation]; annotated {
		claim := *o
		claim.Spec.StorageClassName = &class
		o = &claim
	}
	return o
}

func attachmentKey(a *storagev1.VolumeAttachment) objectKey {
	return objectKey{a.Spec.NodeName, a.Name}
}
