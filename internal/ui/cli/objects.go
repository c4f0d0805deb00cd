package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	autoscalingv1beta1 "karpenter.sh/karpenter/api/autoscaling/v1beta1"
	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
	"karpenter.sh/karpenter/internal/kit/identity"
)

// objects holds all objects that a plan is made from, of files and of a cluster.
type objects struct {
	pools   []*v1.NodePool
	classes []*awsv1.EC2NodeClass
	alphaObjects
	buffers         []*autoscalingv1beta1.CapacityBuffer
	claims          []*v1.NodeClaim
	nodes           []*corev1.Node
	pods            []*corev1.Pod
	namespaces      []*corev1.Namespace
	priorityClasses []*schedulingv1.PriorityClass
	services        []*corev1.Service
	runtimeClasses  []*nodev1.RuntimeClass
	apps            workloads
	volumes         storageObjects
	deviceObjects
	bufferTargets  map[types.NamespacedName]bufferTarget // what the buffers of a cluster name, by buffer
	ignored        map[string]int                        // how many objects there are of kinds that do not matter to a plan
	inFiles        map[string]bool                       // the objects that files hold, by objectKey
	clusterClasses map[string]*awsv1.EC2NodeClass        // the cluster's versions of the classes in files, by name
}

// alphaObjects are those of karpenter.sh/v1alpha1, and CapacityQuotas.
type alphaObjects struct {
	quotas      []*autoscalingv1beta1.CapacityQuota
	overlays    []*v1alpha1.NodeOverlay
	plans       []*v1alpha1.DisruptionPlan
	commitments []*v1alpha1.CommitmentDiscount
	rollouts    []*v1alpha1.RolloutPolicy
}

// workloads are the objects that own pods or protect them.
type workloads struct {
	deployments  []*appsv1.Deployment
	replicaSets  []*appsv1.ReplicaSet
	statefulSets []*appsv1.StatefulSet
	jobs         []*batchv1.Job
	daemonSets   []*appsv1.DaemonSet
	pdbs         []*policyv1.PodDisruptionBudget
	podTemplates []*corev1.PodTemplate
}

// storageObjects are what volumes are made of.
type storageObjects struct {
	pvcs           []*corev1.PersistentVolumeClaim
	pvs            []*corev1.PersistentVolume
	storageClasses []*storagev1.StorageClass
	csiNodes       []*storagev1.CSINode
	csiDrivers     []*storagev1.CSIDriver
}

// add puts an object into the list of its kind. It returns false for kinds that a plan does not depend on.
func (o *objects) add(obj runtime.Object) bool {
	switch x := obj.(type) {
	case *v1.NodePool:
		o.pools = append(o.pools, x)
	case *awsv1.EC2NodeClass:
		o.classes = append(o.classes, x)
	case *v1alpha1.NodeOverlay:
		o.overlays = append(o.overlays, x)
	case *v1alpha1.DisruptionPlan:
		o.plans = append(o.plans, x)
	case *v1alpha1.CommitmentDiscount:
		o.commitments = append(o.commitments, x)
	case *v1alpha1.RolloutPolicy:
		o.rollouts = append(o.rollouts, x)
	case *autoscalingv1beta1.CapacityQuota:
		o.quotas = append(o.quotas, x)
	case *autoscalingv1beta1.CapacityBuffer:
		o.buffers = append(o.buffers, x)
	case *corev1.PodTemplate:
		o.apps.podTemplates = append(o.apps.podTemplates, x)
	case *v1.NodeClaim:
		o.claims = append(o.claims, x)
	case *corev1.Node:
		o.nodes = append(o.nodes, x)
	case *corev1.Pod:
		o.pods = append(o.pods, x)
	case *appsv1.Deployment:
		o.apps.deployments = append(o.apps.deployments, x)
	case *appsv1.ReplicaSet:
		o.apps.replicaSets = append(o.apps.replicaSets, x)
	case *appsv1.StatefulSet:
		o.apps.statefulSets = append(o.apps.statefulSets, x)
	case *batchv1.Job:
		o.apps.jobs = append(o.apps.jobs, x)
	case *batchv1.CronJob:
		o.apps.jobs = append(o.apps.jobs, oneRun(x))
	case *appsv1.DaemonSet:
		o.apps.daemonSets = append(o.apps.daemonSets, x)
	case *policyv1.PodDisruptionBudget:
		o.apps.pdbs = append(o.apps.pdbs, x)
	case *corev1.PersistentVolumeClaim:
		o.volumes.pvcs = append(o.volumes.pvcs, x)
	case *corev1.PersistentVolume:
		o.volumes.pvs = append(o.volumes.pvs, x)
	case *storagev1.StorageClass:
		o.volumes.storageClasses = append(o.volumes.storageClasses, x)
	case *storagev1.CSINode:
		o.volumes.csiNodes = append(o.volumes.csiNodes, x)
	case *storagev1.CSIDriver:
		o.volumes.csiDrivers = append(o.volumes.csiDrivers, x)
	case *corev1.Namespace:
		o.namespaces = append(o.namespaces, x)
	case *schedulingv1.PriorityClass:
		o.priorityClasses = append(o.priorityClasses, x)
	case *corev1.Service:
		o.services = append(o.services, x)
	case *nodev1.RuntimeClass:
		o.runtimeClasses = append(o.runtimeClasses, x)
	case *resourcev1.ResourceClaim:
		o.resourceClaims = append(o.resourceClaims, x)
	case *resourcev1.ResourceClaimTemplate:
		o.claimTemplates = append(o.claimTemplates, x)
	case *resourcev1.DeviceClass:
		o.deviceClasses = append(o.deviceClasses, x)
	case *resourcev1.ResourceSlice:
		o.resourceSlices = append(o.resourceSlices, x)
	default:
		return false
	}
	return true
}

// planScheme returns a scheme with every kind that a plan may read.
func planScheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	return s, errors.Join(clientgoscheme.AddToScheme(s), v1.AddToScheme(s), v1alpha1.AddToScheme(s),
		autoscalingv1beta1.AddToScheme(s), awsv1.AddToScheme(s))
}

// typed turns documents into objects. It refuses what the API server would refuse, kinds and versions of Karpenter
// that are not served, and an object that is there twice. Kinds that a plan does not need are counted in ignored.
func typed(ctx context.Context, docs []*document) (*objects, error) {
	out := &objects{ignored: map[string]int{}, inFiles: map[string]bool{}}
	if len(docs) == 0 {
		return out, nil // schemas take a tenth of a second
	}
	scheme, err := planScheme()
	if err != nil {
		return nil, err
	}
	custom, err := customSchemas()
	if err != nil {
		return nil, err
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	known, broken := make([]runtime.Object, len(docs)), make([]error, len(docs))
	onAllProcessors(len(docs), func(i int) { // Karpenter's own kinds are decoded below, after their defaults are filled in
		if gvk := docs[i].obj.GroupVersionKind(); custom[gvk] == nil && scheme.Recognizes(gvk) {
			known[i], broken[i] = docs[i].decodeStrictly(decoder)
		}
	})
	seen := map[string]*document{}
	var errs []error
	for i, d := range docs {
		gvk := d.obj.GroupVersionKind()
		if s := custom[gvk]; s != nil {
			if err := s.check(ctx, d); err != nil {
				errs = append(errs, err)
				continue
			}
			known[i], broken[i] = d.decodeStrictly(decoder)
		} else if ours(gvk.Group) {
			errs = append(errs, d.at(d.line, "%s %s is not served; %s", d.obj.GetAPIVersion(), gvk.Kind, replacementFor(gvk)))
			continue
		} else if text, older := olderDevices(gvk); older {
			errs = append(errs, d.at(d.line, "%s", text))
			continue
		}
		key := identity.Of(gvk.Group, gvk.Kind, d.obj.GetNamespace(), d.obj.GetName())
		if first := seen[key]; first != nil && d.obj.GetName() != "" {
			errs = append(errs, d.at(d.line, "%s %q stands at %s:%d already; remove one of them", gvk.Kind,
				d.obj.GetName(), first.file, first.line))
			continue
		}
		seen[key] = d
		if !scheme.Recognizes(gvk) {
			out.ignored[gvk.Kind]++
			continue
		}
		if broken[i] != nil {
			errs = append(errs, broken[i])
			continue
		}
		if out.add(known[i]) {
			out.inFiles[objectKey(known[i])] = true
		} else {
			out.ignored[gvk.Kind]++
		}
	}
	return out, errors.Join(errs...)
}

// nameOf returns the namespace and name of an object.
func nameOf(o metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

// objectKey identifies an object by its type, namespace and name; no namespace counts as "default".
func objectKey(o runtime.Object) string {
	m, err := meta.Accessor(o)
	if err != nil {
		return ""
	}
	return identity.Of(fmt.Sprintf("%T", o), cmp.Or(m.GetNamespace(), metav1.NamespaceDefault), m.GetName())
}

// ours reports whether an API group is one of Karpenter's.
func ours(group string) bool {
	return group == v1.GroupVersion.Group || group == awsv1.GroupVersion.Group
}

// replacementFor returns what to write instead of a kind or version of Karpenter that is not served.
func replacementFor(gvk schema.GroupVersionKind) string {
	const page = "; \"karpenter convert -f FILE\" does it"
	switch gvk.Kind {
	case "Provisioner":
		return "write a karpenter.sh/v1 NodePool" + page
	case "AWSNodeTemplate":
		return "write a karpenter.k8s.aws/v1 EC2NodeClass" + page
	case "Machine":
		return "Karpenter makes karpenter.sh/v1 NodeClaims by itself; leave it out"
	case "NodePool":
		return "use karpenter.sh/v1, give nodeClassRef a group and a kind, move spec.disruption.expireAfter to spec.template.spec, " +
			"rename WhenUnderutilized to WhenEmptyOrUnderutilized, and move spec.template.spec.kubelet to the EC2NodeClass" + page
	case "NodeClaim":
		return "use karpenter.sh/v1"
	case "EC2NodeClass":
		return "use karpenter.k8s.aws/v1 and add spec.amiSelectorTerms, such as [{alias: al2023@latest}]" + page
	}
	return "there is no such kind: " + v1.GroupVersion.String() + " has NodePool and NodeClaim, " +
		awsv1.GroupVersion.String() + " has EC2NodeClass"
}

// decodeStrictly decodes a document into its type. A field that the type does not have is an error, because it is
// probably misspelled.
func (d *document) decodeStrictly(decoder runtime.Decoder) (runtime.Object, error) {
	text, err := json.Marshal(d.obj.Object) // which is decoded in a fraction of the time that YAML takes
	if err != nil {
		return nil, d.at(d.line, "%v", err)
	}
	obj, _, err := decoder.Decode(text, nil, nil)
	if err == nil {
		return obj, nil
	}
	message := err.Error()
	line := d.line
	if _, rest, ok := strings.Cut(message, `unknown field "`); ok {
		path, _, _ := strings.Cut(rest, `"`)
		line = d.lineOf(path)
		message = fmt.Sprintf("unknown field %s; check its spelling and indentation", path)
	}
	return nil, d.at(line, "%s %q: %s", d.obj.GetKind(), d.obj.GetName(), message)
}

// ignoredKinds lists the kinds that were read but that no plan needs, sorted.
func (o *objects) ignoredKinds() []string {
	var kinds []string
	for kind := range o.ignored {
		kinds = append(kinds, kind)
	}
	slices.Sort(kinds)
	return kinds
}
