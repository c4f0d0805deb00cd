package buffer

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	autoscalingv1beta1 "karpenter.sh/karpenter/api/autoscaling/v1beta1"
)

// KindOf returns the kind of workload that a buffer names. Without a group it is of group apps.
func KindOf(r *autoscalingv1beta1.ScalableRef) schema.GroupKind {
	if r.APIGroup == "" {
		return schema.GroupKind{Group: "apps", Kind: r.Kind}
	}
	return schema.GroupKind{Group: r.APIGroup, Kind: r.Kind}
}

// Unscalable returns why there can be no buffer for workloads of a kind, nil if there can.
func Unscalable(k schema.GroupKind) *Flaw {
	switch k {
	case schema.GroupKind{Group: "apps", Kind: "DaemonSet"}:
		return &Flaw{Code: EveryNode}
	case schema.GroupKind{Group: "batch", Kind: "CronJob"}:
		return &Flaw{Code: ByTheClock}
	}
	return nil
}

// HasScale reports whether the number of pods of a kind is read from its scale subresource. For others ReplicasOf reads it from the spec.
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
	flaw := &Flaw{Code: NoTemplate, Name: o.GetKind() + " " + o.GetName()}
	if err != nil {
		flaw.Value = err.Error()
	}
	return nil, flaw
}

// ReplicasOf returns how many pods a workload of group apps, or a Job, should have now. Without the field it is 1, the default of
// Kubernetes.
func ReplicasOf(o *unstructured.Unstructured) int32 {
	field := "replicas"
	if o.GetKind() == "Job" {
		if startsNone(o) {
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

// startsNone reports whether a Job starts no pods now, because it is suspended or has ended.
func startsNone(o *unstructured.Unstructured) bool {
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
