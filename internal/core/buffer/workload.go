package buffer

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	autoscalingv1beta1 "karpenter.sh/karpenter/api/autoscaling/v1beta1"
)

// KindOf is the kind of workload that a buffer names; a group that is left out is apps.
func KindOf(r *autoscalingv1beta1.ScalableRef) schema.GroupKind {
	if r.APIGroup == "" {
		return schema.GroupKind{Group: "apps", Kind: r.Kind}
	}
	return schema.GroupKind{Group: r.APIGroup, Kind: r.Kind}
}

// Unscalable says why there can be no buffer for workloads of a kind; "" if there can.
func Unscalable(k schema.GroupKind) string {
	switch k {
	case schema.GroupKind{Group: "apps", Kind: "DaemonSet"}:
		return "a DaemonSet has a pod on every node and is not scaled: name a Deployment, StatefulSet, ReplicaSet, Job or another kind that can be scaled"
	case schema.GroupKind{Group: "batch", Kind: "CronJob"}:
		return "a CronJob is not scaled: name a PodTemplate in spec.podTemplateRef"
	}
	return ""
}

// HasScale tells whether the number of pods of a kind is read from its scale subresource, rather than from fields that are known.
func HasScale(k schema.GroupKind) bool {
	return k.Group != "apps" && k != schema.GroupKind{Group: "batch", Kind: "Job"}
}

// TemplateOf reads the pod template of a workload.
func TemplateOf(o *unstructured.Unstructured) (*corev1.PodTemplateSpec, *Flaw) {
	tree, ok, err := unstructured.NestedMap(o.Object, "spec", "template")
	if err == nil && ok {
		t := &corev1.PodTemplateSpec{}
		if err = runtime.DefaultUnstructuredConverter.FromUnstructured(tree, t); err == nil && len(t.Spec.Containers) > 0 {
			return t, nil
		}
	}
	text := fmt.Sprintf("%s %s has no pod template at spec.template", o.GetKind(), o.GetName())
	if err != nil {
		text += fmt.Sprintf(" (%v)", err)
	}
	return nil, failed("%s: write one as a PodTemplate and name it in spec.podTemplateRef", text)
}

// ReplicasOf reads how many pods a workload of a kind that is known has.
func ReplicasOf(o *unstructured.Unstructured) int32 {
	field := "replicas"
	if o.GetKind() == "Job" {
		if ended(o) {
			return 0
		}
		field = "parallelism"
	}
	n, ok, err := unstructured.NestedInt64(o.Object, "spec", field)
	if !ok || err != nil {
		return 1
	}
	return int32(min(max(n, 0), 1<<31-1))
}

// ended Jobs start no pods any more; suspended ones start none now.
func ended(o *unstructured.Unstructured) bool {
	if suspended, _, _ := unstructured.NestedBool(o.Object, "spec", "suspend"); suspended {
		return true
	}
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range conditions {
		if m, ok := c.(map[string]any); ok && (m["type"] == "Complete" || m["type"] == "Failed") && m["status"] == "True" {
			return true
		}
	}
	return false
}
