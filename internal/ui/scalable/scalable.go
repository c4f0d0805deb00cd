// Package scalable reads workloads of any kind that can be scaled: what their pods are like, and how many there are.
package scalable

import (
	"context"
	"fmt"
	"math"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	autoscalingv1beta1 "karpenter.sh/karpenter/api/autoscaling/v1beta1"
	"karpenter.sh/karpenter/internal/core/buffer"
)

// Workloads asks the API server, for kinds that it serves, whatever they are.
type Workloads struct{ Client client.Client }

// Read reads the pod template of a workload and how many pods it has. A flaw is for the owner of the buffer to
// mend, an error may pass by itself.
func (w Workloads) Read(ctx context.Context, namespace string, ref *autoscalingv1beta1.ScalableRef) (buffer.Source, *buffer.Flaw, error) {
	kind := buffer.KindOf(ref)
	if flaw := buffer.Unscalable(kind); flaw != nil {
		return buffer.Source{}, flaw, nil
	}
	mapping, err := w.Client.RESTMapper().RESTMapping(kind)
	switch {
	case meta.IsNoMatchError(err):
		return buffer.Source{}, wrong("the cluster has no kind %s in the API group %s: check spec.scalableRef", kind.Kind, kind.Group), nil
	case err != nil:
		return buffer.Source{}, nil, fmt.Errorf("look up kind %s: %w", kind, err)
	case mapping.Scope.Name() != meta.RESTScopeNameNamespace:
		return buffer.Source{}, wrong("%s is no kind of a namespace, and has no pods there: check spec.scalableRef", kind), nil
	}
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(mapping.GroupVersionKind)
	err = w.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: ref.Name}, o)
	if apierrors.IsNotFound(err) {
		return buffer.Source{}, &buffer.Flaw{Code: buffer.WorkloadNotFound,
			Value: fmt.Sprintf("there is no %s %q in namespace %q", kind, ref.Name, namespace)}, nil
	}
	if err != nil {
		flaw, err := w.denied(err, mapping.Resource, "")
		return buffer.Source{}, flaw, err
	}
	template, flaw := buffer.TemplateOf(o)
	if flaw != nil {
		return buffer.Source{}, flaw, nil
	}
	from := buffer.Source{Template: template, Replicas: buffer.ReplicasOf(o)}
	if !buffer.HasScale(kind) {
		return from, nil, nil
	}
	scale := &unstructured.Unstructured{}
	scale.SetGroupVersionKind(autoscalingv1.SchemeGroupVersion.WithKind("Scale"))
	err = w.Client.SubResource("scale").Get(ctx, o, scale)
	switch {
	case apierrors.IsNotFound(err):
		return buffer.Source{}, wrong("%s cannot be scaled: it has no scale subresource; name a PodTemplate in "+
			"spec.podTemplateRef", kind), nil
	case err != nil:
		flaw, err := w.denied(err, mapping.Resource, "/scale")
		return buffer.Source{}, flaw, err
	}
	n, _, err := unstructured.NestedInt64(scale.Object, "spec", "replicas") // none is zero, which is left out
	if err != nil {
		return buffer.Source{}, nil, fmt.Errorf("read %s/scale: %w", mapping.Resource.Resource, err)
	}
	from.Replicas = int32(min(max(n, 0), math.MaxInt32))
	return from, nil, nil
}

// denied makes a flaw of a right that the controller lacks.
func (w Workloads) denied(err error, r schema.GroupVersionResource, subresource string) (*buffer.Flaw, error) {
	if apierrors.IsForbidden(err) {
		return wrong("Karpenter may not read %s%s of API group %s: give its service account the right to get them",
			r.Resource, subresource, r.Group), nil
	}
	return nil, fmt.Errorf("read %s%s: %w", r.Resource, subresource, err)
}

func wrong(format string, args ...any) *buffer.Flaw {
	return &buffer.Flaw{Code: buffer.Unreadable, Value: fmt.Sprintf(format, args...)}
}
