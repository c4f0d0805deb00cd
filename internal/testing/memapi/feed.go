package memapi

import (
	"context"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
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
		d.PutPool(o)
	case *v1alpha1.DisruptionPlan:
		d.PutDisruptionPlan(o)
	case *autoscalingv1beta1.CapacityBuffer:
		d.PutBuffer(o)
	case *corev1.PodTemplate:
		d.PutPodTemplate(o)
	case *awsv1.EC2NodeClass:
		d.PutNodeClass(nodeClass(o))
	case *appsv1.DaemonSet:
		d.PutDaemonSet(o)
	case *policyv1.PodDisruptionBudget:
		d.PutPDB(o)
	case *corev1.PersistentVolumeClaim:
		d.PutPVC(o)
	case *corev1.PersistentVolume:
		d.PutPV(o)
	case *storagev1.StorageClass:
		d.PutStorageClass(o)
	case *resourcev1.ResourceClaim:
		d.PutResourceClaim(o)
	case *resourcev1.ResourceClaimTemplate:
		d.PutResourceClaimTemplate(o)
	case *resourcev1.DeviceClass:
		d.PutDeviceClass(o)
	case *resourcev1.ResourceSlice:
		d.PutResourceSlice(o)
	case *storagev1.VolumeAttachment:
		d.PutVolumeAttachment(o)
	case *storagev1.CSINode:
		d.PutCSINode(o)
	case *corev1.Namespace:
		d.PutNamespace(o)
	case *schedulingv1.PriorityClass:
		d.PutPriorityClass(o)
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
		d.DeletePool(o.Name)
	case *v1alpha1.DisruptionPlan:
		d.DeleteDisruptionPlan(o.Name)
	case *autoscalingv1beta1.CapacityBuffer:
		d.DeleteBuffer(o.Namespace, o.Name)
	case *corev1.PodTemplate:
		d.DeletePodTemplate(o.Namespace, o.Name)
	case *awsv1.EC2NodeClass:
		class := nodeClass(o)
		d.DeleteNodeClass(v1.NodeClassReference{Group: class.Group, Kind: class.Kind, Name: class.Name})
	case *appsv1.DaemonSet:
		d.DeleteDaemonSet(o.Namespace, o.Name)
	case *policyv1.PodDisruptionBudget:
		d.DeletePDB(o.Namespace, o.Name)
	case *corev1.PersistentVolumeClaim:
		d.DeletePVC(o.Namespace, o.Name)
	case *corev1.PersistentVolume:
		d.DeletePV(o.Name)
	case *storagev1.StorageClass:
		d.DeleteStorageClass(o.Name)
	case *resourcev1.ResourceClaim:
		d.DeleteResourceClaim(o.Namespace, o.Name)
	case *resourcev1.ResourceClaimTemplate:
		d.DeleteResourceClaimTemplate(o.Namespace, o.Name)
	case *resourcev1.DeviceClass:
		d.DeleteDeviceClass(o.Name)
	case *resourcev1.ResourceSlice:
		d.DeleteResourceSlice(o.Name)
	case *storagev1.VolumeAttachment:
		d.DeleteVolumeAttachment(o.Spec.NodeName, o.Name)
	case *storagev1.CSINode:
		d.DeleteCSINode(o.Name)
	case *corev1.Namespace:
		d.DeleteNamespace(o.Name)
	case *schedulingv1.PriorityClass:
		d.DeletePriorityClass(o.Name)
	}
}

func nodeClass(o *awsv1.EC2NodeClass) *cluster.NodeClass {
	gvk := schema.GroupVersionKind{Group: awsv1.GroupVersion.Group, Kind: "EC2NodeClass"}
	return &cluster.NodeClass{
		Group: gvk.Group, Kind: gvk.Kind, Name: o.Name, UID: o.UID, Generation: o.Generation,
		Deleting: o.DeletionTimestamp != nil, Ready: condition.Get(o, condition.Ready),
	}
}
