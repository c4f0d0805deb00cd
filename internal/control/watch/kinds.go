package watch

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	resourcev1alpha3 "k8s.io/api/resource/v1alpha3"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	autoscalingv1beta1 "karpenter.sh/karpenter/api/autoscaling/v1beta1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
	"karpenter.sh/karpenter/internal/cluster"
)

// served is a kind, and the source that it is read from.
type served struct {
	kind
	source func(API) source
}

// typed returns the source of a kind of Kubernetes itself. list makes an empty list of it.
func typed(list func() client.ObjectList) func(API) source {
	return func(api API) source { return server{api.Client, list} }
}

// untyped returns the source of a kind of custom resources.
func untyped(gvk schema.GroupVersionKind) func(API) source {
	return func(api API) source { return rawServer{api.REST, api.Client.RESTMapper(), gvk} }
}

// builtin returns the kinds of Kubernetes itself that are always read. Pods come last, so that their nodes are mostly in the store before
// them, and strings can be shared.
func builtin() []served {
	return []served{
		nodes(),
		object("CSINode", func() client.ObjectList { return &storagev1.CSINodeList{} },
			(*cluster.Draft).PutCSINode,
			func(d *cluster.Draft, r removed) { d.DeleteCSINode(r.Name) }),
		scoped("DaemonSet", func() client.ObjectList { return &appsv1.DaemonSetList{} }, cluster.DaemonSets),
		scoped("PodDisruptionBudget", func() client.ObjectList { return &policyv1.PodDisruptionBudgetList{} }, cluster.PDBs),
		scoped("PersistentVolumeClaim", func() client.ObjectList { return &corev1.PersistentVolumeClaimList{} }, cluster.PVCs),
		named("PersistentVolume", func() client.ObjectList { return &corev1.PersistentVolumeList{} }, cluster.PVs),
		named("StorageClass", func() client.ObjectList { return &storagev1.StorageClassList{} }, cluster.StorageClasses),
		// Without CSIDrivers every node counts as having every driver.
		minor(optional(named("CSIDriver", func() client.ObjectList { return &storagev1.CSIDriverList{} }, cluster.CSIDrivers))),
		named("Namespace", func() client.ObjectList { return &corev1.NamespaceList{} }, cluster.Namespaces),
		// The chart does not grant PriorityClasses: pods have their priority in their spec.
		minor(optional(named("PriorityClass", func() client.ObjectList { return &schedulingv1.PriorityClassList{} },
			cluster.PriorityClasses))),
		attachments(),
		pods(),
	}
}

func optional(l served) served {
	l.optional = true
	return l
}

func minor(l served) served {
	l.minor = true
	return l
}

// object returns a kind of which the store keeps the objects themselves.
func object[O client.Object](name string, list func() client.ObjectList, put func(*cluster.Draft, O),
	remove func(*cluster.Draft, removed)) served {
	return served{kind{
		name: name,
		// A page of a list is one array. An object is copied, so that it does not keep the whole page in memory.
		read: func(o runtime.Object) (client.Object, error) {
			c, ok := o.DeepCopyObject().(O)
			if !ok {
				return nil, fmt.Errorf("%T is no %s", o, name)
			}
			c.SetManagedFields(nil)
			return c, nil
		},
		put:    func(d *cluster.Draft, o client.Object) bool { put(d, o.(O)); return true },
		remove: remove,
	}, typed(list)}
}

// scoped returns a kind of objects in namespaces that the store keeps unchanged.
func scoped[O client.Object](name string, list func() client.ObjectList, k cluster.Scoped[O]) served {
	return object(name, list, k.Put, func(d *cluster.Draft, r removed) { k.Delete(d, r.Namespace, r.Name) })
}

// named returns a kind of objects without a namespace that the store keeps unchanged.
func named[O client.Object](name string, list func() client.ObjectList, k cluster.Named[O]) served {
	return object(name, list, k.Put, func(d *cluster.Draft, r removed) { k.Delete(d, r.Name) })
}

// nodes returns the kind Node. A Node of which only the heartbeat differs is not news. The store copies what it keeps of Nodes.
func nodes() served {
	return served{kind{
		name:   "Node",
		put:    func(d *cluster.Draft, o client.Object) bool { return d.PutNode(o.(*corev1.Node)) },
		remove: func(d *cluster.Draft, r removed) { d.DeleteNode(r.Name) },
	}, typed(func() client.ObjectList { return &corev1.NodeList{} })}
}

func pods() served {
	return served{kind{
		name:   "Pod",
		put:    func(d *cluster.Draft, o client.Object) bool { d.PutPod(o.(*corev1.Pod)); return true },
		remove: func(d *cluster.Draft, r removed) { d.DeletePod(cluster.PodKey(r.NamespacedName)) },
	}, typed(func() client.ObjectList { return &corev1.PodList{} })}
}

// attachments returns the kind VolumeAttachment. The store keeps attachments by the name of their node, which is the tag.
func attachments() served {
	l := object("VolumeAttachment", func() client.ObjectList { return &storagev1.VolumeAttachmentList{} },
		cluster.Attachments.Put,
		func(d *cluster.Draft, r removed) { cluster.Attachments.Delete(d, r.tag, r.Name) })
	l.tag = func(o client.Object) string { return o.(*storagev1.VolumeAttachment).Spec.NodeName }
	return l
}

// owners returns the kinds whose pod selectors default spread constraints need. The chart grants them if there are such constraints.
func owners() []served {
	return []served{
		minor(scoped("Service", func() client.ObjectList { return &corev1.ServiceList{} }, cluster.Services)),
		owner("ReplicaSet", func() client.ObjectList { return &appsv1.ReplicaSetList{} },
			func(o *appsv1.ReplicaSet) *metav1.LabelSelector { return o.Spec.Selector }),
		owner("StatefulSet", func() client.ObjectList { return &appsv1.StatefulSetList{} },
			func(o *appsv1.StatefulSet) *metav1.LabelSelector { return o.Spec.Selector }),
		owner("ReplicationController", func() client.ObjectList { return &corev1.ReplicationControllerList{} },
			func(o *corev1.ReplicationController) *metav1.LabelSelector {
				return &metav1.LabelSelector{MatchLabels: o.Spec.Selector}
			}),
	}
}

// owner returns a kind of which the store keeps only the pod selector, by UID.
func owner[O client.Object](name string, list func() client.ObjectList, selector func(O) *metav1.LabelSelector) served {
	return minor(served{kind{
		name: name,
		put: func(d *cluster.Draft, o client.Object) bool {
			d.PutOwnerSelector(o.GetUID(), selector(o.(O)).DeepCopy())
			return true
		},
		tag:    func(o client.Object) string { return string(o.GetUID()) },
		remove: func(d *cluster.Draft, r removed) { d.DeleteOwnerSelector(types.UID(r.tag)) },
	}, typed(list)})
}

// own returns Karpenter's kinds that are always read.
func own() []served {
	claims := custom("NodeClaim", v1.GroupVersion.WithKind("NodeClaim"), (*cluster.Draft).PutClaim,
		func(d *cluster.Draft, r removed) { d.DeleteClaim(r.Name) })
	claims.known = (*cluster.Draft).KnowsClaim
	return []served{
		custom("NodePool", v1.GroupVersion.WithKind("NodePool"), news(cluster.Pools.Put),
			func(d *cluster.Draft, r removed) { cluster.Pools.Delete(d, r.Name) }),
		claims,
		// Without DisruptionPlans no step can be approved, and everything else goes on.
		optional(minor(custom("DisruptionPlan", v1alpha1.GroupVersion.WithKind("DisruptionPlan"), news((*cluster.Draft).PutDisruptionPlan),
			func(d *cluster.Draft, r removed) { d.DeleteDisruptionPlan(r.Name) }))),
	}
}

// overlays are read where the gate NodeOverlay is on. Without them prices are the cloud's: nothing becomes unsafe to remove.
func overlays() served {
	return minor(optional(custom("NodeOverlay", v1alpha1.GroupVersion.WithKind("NodeOverlay"), news(cluster.Overlays.Put),
		func(d *cluster.Draft, r removed) { cluster.Overlays.Delete(d, r.Name) })))
}

// commitments are read where the gate CommitmentDiscounts is on. Without them machines are planned for as if there were none.
func commitments() served {
	return minor(optional(custom("CommitmentDiscount", v1alpha1.GroupVersion.WithKind("CommitmentDiscount"), news(cluster.Commitments.Put),
		func(d *cluster.Draft, r removed) { cluster.Commitments.Delete(d, r.Name) })))
}

// rollouts are read if the gate RolloutPolicies is on. A server without the kind has no policies. If they can no longer be read,
// nothing is disrupted.
func rollouts() served {
	return optional(custom("RolloutPolicy", v1alpha1.GroupVersion.WithKind("RolloutPolicy"), news(cluster.Rollouts.Put),
		func(d *cluster.Draft, r removed) { cluster.Rollouts.Delete(d, r.Name) }))
}

// buffers are read if the gate CapacityBuffer is on, with the PodTemplates that define their pods. If they can no longer be read, the
// room that is kept stays the same.
func buffers() []served {
	return []served{
		minor(scoped("PodTemplate", func() client.ObjectList { return &corev1.PodTemplateList{} }, cluster.PodTemplates)),
		minor(optional(custom("CapacityBuffer", autoscalingv1beta1.GroupVersion.WithKind("CapacityBuffer"),
			news(cluster.Buffers.Put),
			func(d *cluster.Draft, r removed) { cluster.Buffers.Delete(d, r.Namespace, r.Name) }))),
	}
}

// announcing are the kinds that announce pods, for foresight, if the server has them and allows to read them. Their changes are not news,
// because the loops that use them look often enough.
func announcing() []served {
	quiet := func(l served) served {
		put := l.put
		l.put = func(d *cluster.Draft, o client.Object) bool { put(d, o); return false }
		return minor(optional(l))
	}
	return []served{
		quiet(scoped("CronJob", func() client.ObjectList { return &batchv1.CronJobList{} }, cluster.CronJobs)),
		quiet(scoped("Deployment", func() client.ObjectList { return &appsv1.DeploymentList{} }, cluster.Deployments)),
		quiet(scoped("HorizontalPodAutoscaler", func() client.ObjectList { return &autoscalingv2.HorizontalPodAutoscalerList{} },
			cluster.Autoscalers)),
		quiet(custom("ScaledObject", schema.GroupVersionKind{Group: "keda.sh", Version: "v1alpha1", Kind: "ScaledObject"},
			news(cluster.ScaledObjects.Put),
			func(d *cluster.Draft, r removed) { cluster.ScaledObjects.Delete(d, r.Namespace, r.Name) })),
	}
}

// quotas are read where the gate CapacityQuota is on. A server that does not have the kind limits nothing by it.
func quotas() served {
	return optional(custom("CapacityQuota", autoscalingv1beta1.GroupVersion.WithKind("CapacityQuota"), news(cluster.Quotas.Put),
		func(d *cluster.Draft, r removed) { cluster.Quotas.Delete(d, r.Name) }))
}

// ofDevices makes a kind optional, and needed only for plans with resource claims.
func ofDevices(l served) served {
	l.optional, l.devices = true, true
	return l
}

// devices are read where resource claims are planned for. On a server that does not have them no pod can use them.
func devices() []served {
	return []served{
		ofDevices(scoped("ResourceClaim", func() client.ObjectList { return &resourcev1.ResourceClaimList{} }, cluster.ResourceClaims)),
		ofDevices(scoped("ResourceClaimTemplate", func() client.ObjectList { return &resourcev1.ResourceClaimTemplateList{} },
			cluster.ClaimTemplates)),
		ofDevices(named("DeviceClass", func() client.ObjectList { return &resourcev1.DeviceClassList{} }, cluster.DeviceClasses)),
		ofDevices(named("ResourceSlice", func() client.ObjectList { return &resourcev1.ResourceSliceList{} }, cluster.ResourceSlices)),
		taintRules(resourcev1beta2.SchemeGroupVersion),
		taintRules(resourcev1alpha3.SchemeGroupVersion),
	}
}

// taintRules returns the kind DeviceTaintRule in one version. All versions that the server serves are read; an object that is read
// twice is the same. A rule of Kubernetes 1.34 (v1alpha3) may select devices in a way that later versions do not know. Its selector is
// empty or nil after decoding then, and the rule is left out.
func taintRules(version schema.GroupVersion) served {
	return ofDevices(custom("DeviceTaintRule "+version.Version, version.WithKind("DeviceTaintRule"),
		func(d *cluster.Draft, r *resourcev1beta2.DeviceTaintRule) bool {
			s := r.Spec.DeviceSelector
			if version != resourcev1alpha3.SchemeGroupVersion || s != nil && *s != (resourcev1beta2.DeviceTaintSelector{}) {
				cluster.DeviceTaintRules.Put(d, r)
			}
			return true
		}, func(d *cluster.Draft, r removed) { cluster.DeviceTaintRules.Delete(d, r.Name) }))
}

// custom returns a kind of custom resources, which are decoded into a T.
func custom[T any, P interface {
	*T
	client.Object
}](name string, gvk schema.GroupVersionKind, put func(*cluster.Draft, P) (news bool), remove func(*cluster.Draft, removed)) served {
	return served{kind{
		name: name,
		read: func(raw runtime.Object) (client.Object, error) {
			o := P(new(T))
			if err := decode(raw, o); err != nil {
				return nil, err
			}
			o.SetManagedFields(nil)
			return o, nil
		},
		put:    func(d *cluster.Draft, o client.Object) bool { return put(d, o.(P)) },
		remove: remove,
	}, untyped(gvk)}
}

// news returns a put function for which every object is news.
func news[P client.Object](put func(*cluster.Draft, P)) func(*cluster.Draft, P) bool {
	return func(d *cluster.Draft, o P) bool { put(d, o); return true }
}

func decode(raw runtime.Object, o client.Object) error {
	r, ok := raw.(*rawObject)
	if !ok {
		return fmt.Errorf("%T is decoded already", raw)
	}
	return r.decode(o)
}

// nodeClass returns a provider's kind of node class. The store keeps only what all node classes have in common.
func nodeClass(gvk schema.GroupVersionKind) served {
	ref := func(name string) v1.NodeClassReference {
		return v1.NodeClassReference{Group: gvk.Group, Kind: gvk.Kind, Name: name}
	}
	return served{kind{
		name: gvk.Kind,
		read: func(raw runtime.Object) (client.Object, error) {
			o := &classObject{}
			return o, decode(raw, o)
		},
		put: func(d *cluster.Draft, o client.Object) bool {
			d.PutNodeClass(o.(*classObject).class(gvk.GroupKind()))
			return true
		},
		remove:   func(d *cluster.Draft, r removed) { d.DeleteNodeClass(ref(r.Name)) },
		optional: true,
	}, untyped(gvk)}
}

// classObject is what every node class has.
type classObject struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Status            struct {
		Conditions []metav1.Condition `json:"conditions,omitempty"`
	} `json:"status,omitempty"`
}

// DeepCopyObject makes a classObject an object; it is never copied.
func (o *classObject) DeepCopyObject() runtime.Object {
	c := *o
	return &c
}

// class returns the row of a node class.
func (o *classObject) class(kind schema.GroupKind) *cluster.NodeClass {
	c := &cluster.NodeClass{
		Group: kind.Group, Kind: kind.Kind, Name: o.Name, UID: o.UID,
		Generation: o.Generation, Deleting: o.DeletionTimestamp != nil,
		Conditions: o.Status.Conditions, Finalizers: o.Finalizers,
	}
	if c.Deleting {
		c.Deleted = o.DeletionTimestamp.Time
	}
	for i := range o.Status.Conditions {
		if o.Status.Conditions[i].Type == v1.ConditionTypeReady {
			c.Ready = &o.Status.Conditions[i]
		}
	}
	return c
}
