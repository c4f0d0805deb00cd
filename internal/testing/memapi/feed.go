package memapi

import (
	"context"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	autoscalingv1beta1 "karpenter.sh/karpenter/api/autoscaling/v1beta1"
	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	"karpenter.sh/karpenter/api/condition"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
	"karpenter.sh/karpenter/internal/cluster"
)

// Scheme knows the kinds that loops work with.
func Scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1.AddToScheme,
		v1alpha1.AddToScheme, autoscalingv1beta1.AddToScheme, awsv1.AddToScheme} {
		if err := add(s); err != nil {
			panic(err)
		}
	}
	return s
}

// Feed keeps a store in step with the server, lag behind it, until ctx ends. As from a real server, heartbeats are no news.
func (s *Server) Feed(ctx context.Context, store *cluster.Store, lag time.Duration) {
	s.FeedDeaf(ctx, store, lag, func(Event) bool { return false })
}

// FeedDeaf is Feed without the events to which deaf says yes.
func (s *Server) FeedDeaf(ctx context.Context, store *cluster.Store, lag time.Duration, deaf func(Event) bool) {
	s.Watch(ctx, lag,
		func(e Event) {
			if !deaf(e) {
				store.Observe(func(d *cluster.Draft) bool { return apply(d, e) })
			}
		},
		func() { store.Update(func(d *cluster.Draft) { d.Synced(true) }) })
}

// apply makes one change in a draft, and reports whether anybody need look at it. Kinds that a store does not hold are ignored.
func apply(d *cluster.Draft, e Event) (news bool) {
	if e.Deleted {
		remove(d, e)
		return true
	}
	switch o := copyOf(e.Object).(type) {
	case *corev1.Pod:
		d.PutPod(o)
	case *corev1.Node:
		return d.PutNode(o)
	case *v1.NodeClaim:
		d.PutClaim(o)
	case *v1.NodePool:
		cluster.Pools.Put(d, o)
	case *v1alpha1.DisruptionPlan:
		d.PutDisruptionPlan(o)
	case *autoscalingv1beta1.CapacityBuffer:
		cluster.Buffers.Put(d, o)
	case *autoscalingv1beta1.CapacityQuota:
		cluster.Quotas.Put(d, o)
	case *v1alpha1.RolloutPolicy:
		cluster.Rollouts.Put(d, o)
	case *corev1.PodTemplate:
		cluster.PodTemplates.Put(d, o)
	case *awsv1.EC2NodeClass:
		d.PutNodeClass(nodeClass(o))
	case *appsv1.DaemonSet:
		cluster.DaemonSets.Put(d, o)
	case *policyv1.PodDisruptionBudget:
		cluster.PDBs.Put(d, o)
	case *corev1.PersistentVolumeClaim:
		cluster.PVCs.Put(d, o)
	case *corev1.PersistentVolume:
		cluster.PVs.Put(d, o)
	case *storagev1.StorageClass:
		cluster.StorageClasses.Put(d, o)
	case *storagev1.CSIDriver:
		cluster.CSIDrivers.Put(d, o)
	case *resourcev1.ResourceClaim:
		cluster.ResourceClaims.Put(d, o)
	case *resourcev1.ResourceClaimTemplate:
		cluster.ClaimTemplates.Put(d, o)
	case *resourcev1.DeviceClass:
		cluster.DeviceClasses.Put(d, o)
	case *resourcev1.ResourceSlice:
		cluster.ResourceSlices.Put(d, o)
	case *resourcev1beta2.DeviceTaintRule:
		cluster.DeviceTaintRules.Put(d, o)
	case *storagev1.VolumeAttachment:
		cluster.Attachments.Put(d, o)
	case *storagev1.CSINode:
		d.PutCSINode(o)
	case *corev1.Namespace:
		cluster.Namespaces.Put(d, o)
	case *schedulingv1.PriorityClass:
		cluster.PriorityClasses.Put(d, o)
	case *batchv1.CronJob:
		cluster.CronJobs.Put(d, o)
	case *v1alpha1.CommitmentDiscount:
		cluster.Commitments.Put(d, o)
	case *v1alpha1.NodeOverlay:
		cluster.Overlays.Put(d, o)
	}
	return true
}

func remove(d *cluster.Draft, e Event) {
	switch o := e.Object.(type) {
	case *corev1.Pod:
		d.DeletePod(cluster.PodKey{Namespace: o.Namespace, Name: o.Name})
	case *corev1.Node:
		d.DeleteNode(o.Name)
	case *v1.NodeClaim:
		d.DeleteClaim(o.Name)
	case *v1.NodePool:
		cluster.Pools.Delete(d, o.Name)
	case *v1alpha1.DisruptionPlan:
		d.DeleteDisruptionPlan(o.Name)
	case *autoscalingv1beta1.CapacityBuffer:
		cluster.Buffers.Delete(d, o.Namespace, o.Name)
	case *autoscalingv1beta1.CapacityQuota:
		cluster.Quotas.Delete(d, o.Name)
	case *v1alpha1.RolloutPolicy:
		cluster.Rollouts.Delete(d, o.Name)
	case *corev1.PodTemplate:
		cluster.PodTemplates.Delete(d, o.Namespace, o.Name)
	case *awsv1.EC2NodeClass:
		class := nodeClass(o)
		d.DeleteNodeClass(v1.NodeClassReference{Group: class.Group, Kind: class.Kind, Name: class.Name})
	case *appsv1.DaemonSet:
		cluster.DaemonSets.Delete(d, o.Namespace, o.Name)
	case *policyv1.PodDisruptionBudget:
		cluster.PDBs.Delete(d, o.Namespace, o.Name)
	case *corev1.PersistentVolumeClaim:
		cluster.PVCs.Delete(d, o.Namespace, o.Name)
	case *corev1.PersistentVolume:
		cluster.PVs.Delete(d, o.Name)
	case *storagev1.StorageClass:
		cluster.StorageClasses.Delete(d, o.Name)
	case *storagev1.CSIDriver:
		cluster.CSIDrivers.Delete(d, o.Name)
	case *resourcev1.ResourceClaim:
		cluster.ResourceClaims.Delete(d, o.Namespace, o.Name)
	case *resourcev1.ResourceClaimTemplate:
		cluster.ClaimTemplates.Delete(d, o.Namespace, o.Name)
	case *resourcev1.DeviceClass:
		cluster.DeviceClasses.Delete(d, o.Name)
	case *resourcev1.ResourceSlice:
		cluster.ResourceSlices.Delete(d, o.Name)
	case *resourcev1beta2.DeviceTaintRule:
		cluster.DeviceTaintRules.Delete(d, o.Name)
	case *storagev1.VolumeAttachment:
		cluster.Attachments.Delete(d, o.Spec.NodeName, o.Name)
	case *storagev1.CSINode:
		d.DeleteCSINode(o.Name)
	case *corev1.Namespace:
		cluster.Namespaces.Delete(d, o.Name)
	case *schedulingv1.PriorityClass:
		cluster.PriorityClasses.Delete(d, o.Name)
	case *batchv1.CronJob:
		cluster.CronJobs.Delete(d, o.Namespace, o.Name)
	case *v1alpha1.CommitmentDiscount:
		cluster.Commitments.Delete(d, o.Name)
	case *v1alpha1.NodeOverlay:
		cluster.Overlays.Delete(d, o.Name)
	}
}

func nodeClass(o *awsv1.EC2NodeClass) *cluster.NodeClass {
	gvk := schema.GroupVersionKind{Group: awsv1.GroupVersion.Group, Kind: "EC2NodeClass"}
	deleted := time.Time{}
	if o.DeletionTimestamp != nil {
		deleted = o.DeletionTimestamp.Time
	}
	return &cluster.NodeClass{
		Deleted: deleted, Finalizers: o.Finalizers, Group: gvk.Group, Kind: gvk.Kind, Name: o.Name, UID: o.UID, Generation: o.Generation,
		Deleting: o.DeletionTimestamp != nil, Ready: condition.Get(o, condition.Ready), Conditions: o.Status.Conditions,
	}
}
