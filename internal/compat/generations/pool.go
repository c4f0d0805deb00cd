package generations

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
)

// whenUnderutilized is what v1beta1 calls WhenEmptyOrUnderutilized.
const whenUnderutilized = "WhenUnderutilized"

// atOnce is how long v1beta1 waited before it consolidated under-used nodes.
const atOnce = "0s"

func poolUp(o tree) {
	spec := treeAt(o, "spec", "template", "spec")
	referenceUp(o, spec)
	kubeletUp(o, spec)
	delete(spec, "resources") // never allowed in a pool
	if value, ok := take(o, "spec", "disruption", "expireAfter"); ok {
		put(o, value, "spec", "template", "spec", "expireAfter")
	}
	disruption := treeAt(o, "spec", "disruption")
	policy := textAt(disruption, "consolidationPolicy")
	if policy == whenUnderutilized {
		disruption["consolidationPolicy"] = string(v1.ConsolidationPolicyWhenEmptyOrUnderutilized)
	}
	if _, ok := at(disruption, "consolidateAfter"); ok {
		return
	}
	switch policy {
	case whenUnderutilized:
		disruption["consolidateAfter"] = atOnce
	case string(v1.ConsolidationPolicyWhenEmpty):
		disruption["consolidateAfter"] = v1.Never
	}
}

func poolDown(o tree) {
	spec := treeAt(o, "spec", "template", "spec")
	referenceDown(o, spec)
	kubeletDown(o, spec)
	take(o, "spec", "replicas")
	delete(spec, "terminationGracePeriod")
	if value, ok := take(o, "spec", "template", "spec", "expireAfter"); ok {
		put(o, value, "spec", "disruption", "expireAfter")
	}
	disruption := treeAt(o, "spec", "disruption")
	switch textAt(disruption, "consolidationPolicy") {
	case string(v1.ConsolidationPolicyWhenEmptyOrUnderutilized), string(v1.ConsolidationPolicyBalanced):
		disruption["consolidationPolicy"] = whenUnderutilized
		if textAt(disruption, "consolidateAfter") == atOnce {
			delete(disruption, "consolidateAfter")
		}
	}
	for _, budget := range listAt(disruption, "budgets") {
		if budget, ok := budget.(tree); ok {
			delete(budget, "reasons")
		}
	}
}

// betaReference is how v1beta1 names a node class, in the order in which Karpenter 1.0 writes it down.
type betaReference struct {
	Kind       string `json:"kind,omitempty"`
	Name       string `json:"name,omitempty"`
	APIVersion string `json:"apiVersion,omitempty"`
}

func (r betaReference) v1() tree {
	out := tree{"group": awsv1.Group, "kind": awsv1.Kind, "name": r.Name}
	if group := schema.FromAPIVersionAndKind(r.APIVersion, "").Group; group != "" {
		out["group"] = group
	}
	if r.Kind != "" {
		out["kind"] = r.Kind
	}
	return out
}

// referenceUp gives a reference its group, and writes down how it was.
func referenceUp(o, spec tree) {
	takeAnnotation(o, v1.NodeClassReferenceAnnotationKey)
	ref := treeAt(spec, "nodeClassRef")
	if ref == nil {
		return
	}
	old := betaReference{Kind: textAt(ref, "kind"), Name: textAt(ref, "name"), APIVersion: textAt(ref, "apiVersion")}
	spec["nodeClassRef"] = old.v1()
	put(o, string(asJSON(old)), annotations(v1.NodeClassReferenceAnnotationKey)...)
}

// referenceDown shows a reference as it was written, unless it was changed since.
func referenceDown(o, spec tree) {
	text := takeAnnotation(o, v1.NodeClassReferenceAnnotationKey)
	ref := treeAt(spec, "nodeClassRef")
	if ref == nil {
		return
	}
	var written betaReference
	if err := utiljson.Unmarshal([]byte(text), &written); err != nil || !same(written.v1(), ref) {
		written = betaReference{Kind: textAt(ref, "kind"), Name: textAt(ref, "name")}
	}
	var beta any
	if err := utiljson.Unmarshal(asJSON(written), &beta); err == nil {
		spec["nodeClassRef"] = beta
	}
}

// kubeletUp moves the kubelet's configuration to where v1 pools and claims may have it.
func kubeletUp(o, spec tree) {
	takeAnnotation(o, v1.KubeletCompatibilityAnnotationKey)
	if kubelet, ok := take(spec, "kubelet"); ok {
		put(o, string(asJSON(kubelet)), annotations(v1.KubeletCompatibilityAnnotationKey)...)
	}
}

// kubeletDown is the reverse. Text that is no object stays where it is.
func kubeletDown(o, spec tree) {
	var kubelet tree
	text := textAt(o, annotations(v1.KubeletCompatibilityAnnotationKey)...)
	if err := utiljson.Unmarshal([]byte(text), &kubelet); err != nil || kubelet == nil || spec == nil {
		return
	}
	takeAnnotation(o, v1.KubeletCompatibilityAnnotationKey)
	spec["kubelet"] = kubelet
}
