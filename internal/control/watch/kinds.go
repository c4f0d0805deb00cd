package watch

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
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

// served is a kind and where it is read.
type served struct {
	kind
	source func(API) source
}

// typed reads a kind of Kubernetes itself. list makes an empty list of it.
func typed(list func() client.ObjectList) func(API) source {
	return func(api API) source { return server{api.Client, list} }
}

// untyped reads a kind of custom resources.
func untyped(gvk schema.GroupVersionKind) func(API) source {
	return func(api API) source { return rawServer{api.REST, api.Client.RESTMapper(), gvk} }
}

// builtin are the kinds of Kubernetes itself. Pods come last: by then the nodes are there, and names can be shared.
func builtin() []served {
	return []served{
		nodes(),
		object("CSINode", func() client.ObjectList { return &storagev1.CSINodeList{} },
			(*cluster.Draft).PutCSINode,
			func(d *cluster.Draft, r removed) { d.DeleteCSINode(r.Name) }),
		object("DaemonSet", func() client.ObjectList { return &appsv1.DaemonSetList{} },
			(*cluster.Draft).PutDaemonSet,
			func(d *cluster.Draft, r removed) { d.DeleteDaemonSet(r.Namespace, r.Name) }),
		object("PodDisruptionBudget", func() client.ObjectList { return &policyv1.PodDisruptionBudgetList{} },
			(*cluster.Draft).PutPDB,
			func(d *cluster.Draft, r removed) { d.DeletePDB(r.Namespace, r.Name) }),
		object("PersistentVolumeClaim", func() client.ObjectList { return &corev1.PersistentVolumeClaimList{} },
			(*cluster.Draft).PutPVC,
			func(d *cluster.Draft, r removed) { d.DeletePVC(r.Namespace, r.Name) }),
		object("PersistentVolume", func() client.ObjectList { return &corev1.PersistentVolumeList{} },
			(*cluster.Draft).PutPV,
			func(d *cluster.Draft, r removed) { d.DeletePV(r.Name) }),
		object("StorageClass", func() client.ObjectList { return &storagev1.StorageClassList{} },
			(*cluster.Draft).PutStorageClass,
			func(d *cluster.Draft, r removed) { d.DeleteStorageClass(r.Name) }),
		object("Namespace", func() client.ObjectList { return &corev1.NamespaceList{} },
			(*cluster.Draft).PutNamespace,
			func(d *cluster.Draft, r removed) { d.DeleteNamespace(r.Name) }),
		// The chart does not grant these: a pod says its priority itself.
		minor(optional(object("PriorityClass", func() client.ObjectList { return &schedulingv1.PriorityClassList{} },
			(*cluster.Draft).PutPriorityClass,
			func(d *cluster.Draft, r removed) { d.DeletePriorityClass(r.Name) }))),
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

// object is a kind of which the store keeps the objects themselves.
func object[O client.Object](name string, list func() client.ObjectList, put func(*cluster.Draft, O),
	remove func(*cluster.Draft, removed)) served {
	return served{kind{
		name: name,
		// A page of a list is one array. Copies let go of it.
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

// nodes of which only the heartbeat differs are no news. The store copies what it keeps of them.
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

func attachments() served {
	l := object("VolumeAttachment", func() client.ObjectList { return &storagev1.VolumeAttachmentList{} },
		(*cluster.Draft).PutVolumeAttachment,
		func(d *cluster.Draft, r removed) { d.DeleteVolumeAttachment(r.tag, r.Name) })
	l.tag = func(o client.Object) string { return o.(*storagev1.VolumeAttachment).Spec.NodeName }
	return l
}

// owners are the kinds whose pod selectors default spread constraints need. The chart grants them where there are such constraints.
func owners() []served {
	return []served{
		minor(object("Service", func() client.ObjectList { return &corev1.ServiceList{} },
			(*cluster.Draft).PutService,
			func(d *cluster.Draft, r removed) { d.DeleteService(r.Namespace, r.Name) })),
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

// own are Karpenter's kinds.
func own() []served {
	claims := custom("NodeClaim", v1.GroupVersion.WithKind("NodeClaim"), (*cluster.Draft).PutClaim,
		func(d *cluster.Draft, r removed) { d.DeleteClaim(r.Name) })
	claims.known = (*cluster.Draft).KnowsClaim
	return []served{
		custom("NodePool", v1.GroupVersion.WithKind("NodePool"), news((*cluster.Draft).PutPool),
			func(d *cluster.Draft, r removed) { d.DeletePool(r.Name) }),
		claims,
		// Without them nothing is approved, and everything else goes on.
		optional(minor(custom("DisruptionPlan", v1alpha1.GroupVersion.WithKind("DisruptionPlan"), news((*cluster.Draft).PutDisruptionPlan),
			func(d *cluster.Draft, r removed) { d.DeleteDisruptionPlan(r.Name) }))),
	}
}

// overlays are read where the gate NodeOverlay is on. Without them prices are the cloud's: nothing becomes unsafe to remove.
func overlays() served {
	return minor(optional(custom("NodeOverlay", v1alpha1.GroupVersion.WithKind("NodeOverlay"), news((*cluster.Draft).PutOverlay),
		func(d *cluster.Draft, r removed) { d.DeleteOverlay(r.Name) })))
}

// buffers are read where the gate CapacityBuffer is on, with the templates that give their pods a shape. Without
// them room stays as it was.
func buffers() []served {
	return []served{
		minor(object("PodTemplate", func() client.ObjectList { return &corev1.PodTemplateList{} },
			(*cluster.Draft).PutPodTemplate,
			func(d *cluster.Draft, r removed) { d.DeletePodTemplate(r.Namespace, r.Name) })),
		minor(optional(custom("CapacityBuffer", autoscalingv1beta1.GroupVersion.WithKind("CapacityBuffer"),
			news((*cluster.Draft).PutBuffer),
			func(d *cluster.Draft, r removed) { d.DeleteBuffer(r.Namespace, r.Name) }))),
	}
}

func ofDevices(l served) served {
	l.optional, l.devices = true, true
	return l
}

// devices are read where resource claims are planned for. On a server that does not have them no pod can use them.
func devices() []served {
	return []served{
		ofDevices(object("ResourceClaim", func() client.ObjectList { return &resourcev1.ResourceClaimList{} },
			(*cluster.Draft).PutResourceClaim,
			func(d *cluster.Draft, r removed) { d.DeleteResourceClaim(r.Namespace, r.Name) })),
		ofDevices(object("ResourceClaimTemplate", func() client.ObjectList { return &resourcev1.ResourceClaimTemplateList{} },
			(*cluster.Draft).PutResourceClaimTemplate,
			func(d *cluster.Draft, r removed) { d.DeleteResourceClaimTemplate(r.Namespace, r.Name) })),
		ofDevices(object("DeviceClass", func() client.ObjectList { return &resourcev1.DeviceClassList{} },
			(*cluster.Draft).PutDeviceClass,
			func(d *cluster.Draft, r removed) { d.DeleteDeviceClass(r.Name) })),
		ofDevices(object("ResourceSlice", func() client.ObjectList { return &resourcev1.ResourceSliceList{} },
			(*cluster.Draft).PutResourceSlice,
			func(d *cluster.Draft, r removed) { d.DeleteResourceSlice(r.Name) })),
	}
}

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

// news puts what deserves a look whenever it comes.
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

// nodeClass is a provider's kind of node class.
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
