package generations

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
)

// V1Beta1 is the version before v1, of both groups.
const V1Beta1 = "v1beta1"

// ExpireAfter tells what a NodePool of v1 says about the age of its nodes; "" where there is no such pool.
type ExpireAfter func(pool string) (string, error)

// A kind is what conversion knows about the objects of one kind.
type kind struct {
	// up makes a v1 object of a v1beta1 object, down the reverse. Neither remembers anything.
	up, down func(tree)
}

func kindOf(gk schema.GroupKind) (kind, bool) {
	switch gk {
	case schema.GroupKind{Group: v1.Group, Kind: "NodePool"}:
		return kind{poolUp, poolDown}, true
	case schema.GroupKind{Group: v1.Group, Kind: "NodeClaim"}:
		return kind{claimUp, claimDown}, true
	case schema.GroupKind{Group: awsv1.Group, Kind: awsv1.Kind}:
		return kind{classUp, classDown}, true
	}
	return kind{}, false
}

// Convert turns an object into another version. NodeClaims of v1beta1 have no age at which they go: they get the one of
// their pool. An error is one of pools, or says that there is no such kind or version.
func Convert(object map[string]any, version string, pools ExpireAfter) (map[string]any, error) {
	gvk := schema.FromAPIVersionAndKind(textAt(object, "apiVersion"), textAt(object, "kind"))
	k, known := kindOf(gvk.GroupKind())
	if !known || gvk.Version != V1Beta1 && gvk.Version != v1.GroupVersion.Version {
		return nil, fmt.Errorf("%s is not a kind and version that can be converted", gvk)
	}
	if gvk.Version == version {
		return object, nil
	}
	var out tree
	switch version {
	case v1.GroupVersion.Version:
		out = k.toV1(object)
		if err := expire(out, pools); err != nil {
			return nil, err
		}
	case V1Beta1:
		out = k.toV1Beta1(object)
	default:
		return nil, fmt.Errorf("%s has no version %s", gvk.GroupKind(), version)
	}
	out["apiVersion"] = schema.GroupVersion{Group: gvk.Group, Version: version}.String()
	return out, nil
}

func (k kind) toV1(beta tree) tree {
	beta = clone(beta).(tree)
	memory := takeMemory(beta, v1.V1FieldsAnnotationKey)
	takeAnnotation(beta, v1.V1Beta1FieldsAnnotationKey)
	out := clone(beta).(tree)
	k.up(out)
	restore(out, memory)
	back := clone(out).(tree)
	k.down(back)
	remember(out, v1.V1Beta1FieldsAnnotationKey, differences(beta, back))
	return out
}

func (k kind) toV1Beta1(object tree) tree {
	object = clone(object).(tree)
	memory := takeMemory(object, v1.V1Beta1FieldsAnnotationKey)
	takeAnnotation(object, v1.V1FieldsAnnotationKey)
	// Only v1 is marked as written again: what v1beta1 writes must be.
	takeAnnotation(object, v1.StoredVersionMigratedAnnotationKey)
	out := clone(object).(tree)
	k.down(out)
	restore(out, memory)
	back := clone(out).(tree)
	k.up(back)
	remember(out, v1.V1FieldsAnnotationKey, differences(object, back))
	return out
}
