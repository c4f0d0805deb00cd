package cli

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	autoscalingv1beta1 "karpenter.sh/karpenter/api/autoscaling/v1beta1"
	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	"karpenter.sh/karpenter/api/condition"

	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/buffer"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/foresight"
	"karpenter.sh/karpenter/internal/explain/sentence"
	"karpenter.sh/karpenter/internal/ui/scalable"
)

// A bufferTarget is the result of reading the workload that a CapacityBuffer names: its pod template and replicas, or
// what is wrong.
type bufferTarget struct {
	from buffer.Source
	flaw *buffer.Flaw
}

// readBuffers adds the CapacityBuffers of a cluster, PodTemplates, and the workloads that buffers name. It adds
// nothing where the kind is not installed, or where the user may not read it: roles of older charts do not contain
// it.
func (o *objects) readBuffers(ctx context.Context, c client.Client) error {
	if err := o.list(ctx, c, &autoscalingv1beta1.CapacityBufferList{}); err != nil {
		if meta.IsNoMatchError(err) || apierrors.IsForbidden(err) {
			return nil
		}
		return err
	}
	if len(o.buffers) == 0 {
		return nil
	}
	if err := o.list(ctx, c, &corev1.PodTemplateList{}); err != nil {
		return err
	}
	o.bufferTargets = map[types.NamespacedName]bufferTarget{}
	for _, b := range o.buffers {
		if b.Spec.ScalableRef == nil {
			continue
		}
		from, flaw, err := scalable.Workloads{Client: c}.Read(ctx, b.Namespace, b.Spec.ScalableRef)
		if err != nil {
			return fmt.Errorf("CapacityBuffer %s/%s: %w", b.Namespace, b.Name, err)
		}
		o.bufferTargets[nameOf(b)] = bufferTarget{from, flaw}
	}
	return nil
}

// keepRoom puts the pods that buffers announce into a store, plans for them, and notes in the store on which existing
// node each one has room. It returns the snapshot with them. Buffers that the controller does not act on are reported
// and left out.
func (o *objects) keepRoom(env Env, store *cluster.Store, in engine.Question) *cluster.Snapshot {
	for _, b := range o.buffers {
		pods, why := o.announced(b)
		if why != "" {
			fmt.Fprintf(env.Err, "CapacityBuffer %q is left out: %s\n", b.Namespace+"/"+b.Name, why)
			continue
		}
		if window, ok := foresight.WindowOf(b.Annotations, in.Now, 0); !ok || !window.Open {
			fmt.Fprintf(env.Err, "CapacityBuffer %q keeps no room at this time\n", b.Namespace+"/"+b.Name)
			continue
		}
		store.Update(func(d *cluster.Draft) { d.PutSpares(b.Namespace, b.Name, pods) })
	}
	in.Snap = store.Snapshot()
	asked := withSpares(in)
	if len(asked.Pods) == len(in.Pods) {
		return in.Snap
	}
	at := map[*cluster.Pod]string{}
	asked.Settings.FirstFit, asked.Settings.Unproven = true, true
	for _, p := range engine.New(awsv1.Labels()).Plan(asked).Place {
		at[p.Pod] = p.Node
	}
	store.Update(func(d *cluster.Draft) {
		for s := range in.Snap.Spares() {
			names := make([]string, len(s.Pods))
			for i, p := range s.Pods {
				names[i] = at[p]
			}
			d.PlaceSpares(s.Namespace, s.Buffer, names)
		}
	})
	return store.Snapshot()
}

// announced returns the pods that a buffer keeps room for, or why there are none.
func (o *objects) announced(b *autoscalingv1beta1.CapacityBuffer) (pods []*corev1.Pod, why string) {
	if !b.Active() {
		return nil, "its provisioningStrategy is that of another autoscaler"
	}
	if c := condition.Get(b, autoscalingv1beta1.ConditionTypeReadyForProvisioning); c != nil &&
		c.Reason == autoscalingv1beta1.ReasonFeatureGateDisabled {
		return nil, c.Message
	}
	flaw := buffer.Check(b)
	var from buffer.Source
	if flaw == nil {
		from, flaw = o.sourceOf(b)
	}
	ask := buffer.Ask{}
	if flaw == nil {
		ask, flaw = buffer.Resolve(b, from)
	}
	switch {
	case flaw != nil:
		return nil, sentence.BufferFlaw(flaw)
	case len(ask.Pods) == 0:
		return nil, sentence.BufferNote(ask.Note)
	}
	return ask.Pods, ""
}

// sourceOf returns the pod template of a buffer: from the PodTemplate that it names, from the cluster
// (bufferTargets), or from the workloads in files.
func (o *objects) sourceOf(b *autoscalingv1beta1.CapacityBuffer) (buffer.Source, *buffer.Flaw) {
	if ref := b.Spec.PodTemplateRef; ref != nil {
		for _, t := range o.apps.podTemplates {
			if t.Namespace == b.Namespace && t.Name == ref.Name {
				return buffer.Source{Template: &t.Template}, nil
			}
		}
		return buffer.Source{}, &buffer.Flaw{Code: buffer.TemplateNotFound, Name: ref.Name, Value: b.Namespace}
	}
	if known, ok := o.bufferTargets[nameOf(b)]; ok {
		return known.from, known.flaw
	}
	return o.workloadOf(b)
}

// workloadOf finds the workload that a buffer names in scalableRef among those in the files.
func (o *objects) workloadOf(b *autoscalingv1beta1.CapacityBuffer) (buffer.Source, *buffer.Flaw) {
	kind := buffer.KindOf(b.Spec.ScalableRef)
	if flaw := buffer.Unscalable(kind); flaw != nil {
		return buffer.Source{}, flaw
	}
	for _, named := range o.workloadsOfKind(kind) {
		if named.GetNamespace() != b.Namespace || named.GetName() != b.Spec.ScalableRef.Name {
			continue
		}
		tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(named)
		if err != nil {
			return buffer.Source{}, &buffer.Flaw{Code: buffer.Unreadable, Value: err.Error()}
		}
		u := &unstructured.Unstructured{Object: tree}
		u.SetKind(kind.Kind)
		t, flaw := buffer.TemplateOf(u)
		return buffer.Source{Template: t, Replicas: buffer.ReplicasOf(u)}, flaw
	}
	return buffer.Source{}, &buffer.Flaw{Code: buffer.WorkloadNotFound,
		Value: fmt.Sprintf("there is no %s %q of namespace %q in the files", kind, b.Spec.ScalableRef.Name, b.Namespace)}
}

// workloadsOfKind lists the Deployments, ReplicaSets, StatefulSets or Jobs that were read; nil for any other kind.
func (o *objects) workloadsOfKind(kind schema.GroupKind) (all []metav1.Object) {
	switch kind {
	case appsv1.SchemeGroupVersion.WithKind("Deployment").GroupKind():
		all = objectsOf(o.apps.deployments)
	case appsv1.SchemeGroupVersion.WithKind("ReplicaSet").GroupKind():
		all = objectsOf(o.apps.replicaSets)
	case appsv1.SchemeGroupVersion.WithKind("StatefulSet").GroupKind():
		all = objectsOf(o.apps.statefulSets)
	case batchv1.SchemeGroupVersion.WithKind("Job").GroupKind():
		all = objectsOf(o.apps.jobs)
	}
	return all
}

// objectsOf returns a list of one type as a list of the interface metav1.Object.
func objectsOf[T metav1.Object](list []T) []metav1.Object {
	out := make([]metav1.Object, len(list))
	for i, o := range list {
		out[i] = o
	}
	return out
}

// withSpares returns the question with the pods that buffers keep room for added after all others. The list of in is
// not changed.
func withSpares(in engine.Question) engine.Question {
	all := in.Pods[:len(in.Pods):len(in.Pods)]
	for s := range in.Snap.Spares() {
		all = append(all, s.Pods...)
	}
	in.Pods = all
	return in
}
