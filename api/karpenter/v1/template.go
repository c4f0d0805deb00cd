package v1

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// ReservedAnnotations lists the annotations of the template that nodes do not get: those of Karpenter and of its provider, which say
// what was done and is to be done with a machine. Users are asked to set none but do-not-disrupt. (Labels like them make a pool invalid.)
func (t *NodeClaimTemplate) ReservedAnnotations() []string {
	return slices.Sorted(func(yield func(string) bool) {
		for key := range t.Annotations {
			if t.owned(key) && key != DoNotDisruptAnnotationKey && !yield(key) {
				return
			}
		}
	})
}

// Provisioner is the name of the Provisioner that the pool stands in for, "" if it stands in for none.
func (p *NodePool) Provisioner() string { return p.Annotations[ProvisionerAnnotationKey] }

// NodeLabels returns the labels that all nodes of the pool get: those of the template, and what pods chose the
// pool's Provisioner by. The caller may not change them.
func (p *NodePool) NodeLabels() map[string]string {
	name := p.Provisioner()
	if name == "" || len(validation.IsValidLabelValue(name)) > 0 {
		return p.Spec.Template.Labels
	}
	out := make(map[string]string, len(p.Spec.Template.Labels)+1)
	maps.Copy(out, p.Spec.Template.Labels)
	out[ProvisionerLabelKey] = name
	return out
}

// NodeAnnotations returns the annotations that nodes get.
func (t *NodeClaimTemplate) NodeAnnotations() map[string]string {
	out := make(map[string]string, len(t.Annotations))
	maps.Copy(out, t.Annotations)
	for _, key := range t.ReservedAnnotations() {
		delete(out, key)
	}
	return out
}

// owned reports whether a key is in the domain of Karpenter, or of the provider whose node class the template refers to.
func (t *NodeClaimTemplate) owned(key string) bool {
	domain, _, _ := strings.Cut(key, "/")
	in := func(of string) bool { return domain == of || strings.HasSuffix(domain, "."+of) }
	return in(Group) || t.Spec.NodeClassRef != nil && in(t.Spec.NodeClassRef.Group)
}
