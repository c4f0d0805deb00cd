package generations

import (
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
)

func claimUp(o tree) {
	spec := treeAt(o, "spec")
	referenceUp(o, spec)
	kubeletUp(o, spec)
}

func claimDown(o tree) {
	spec := treeAt(o, "spec")
	referenceDown(o, spec)
	kubeletDown(o, spec)
	delete(spec, "terminationGracePeriod")
	delete(spec, "expireAfter")
}

// expire gives a NodeClaim that never was one of v1 the age at which its pool lets nodes go. A claim that was one has its own.
func expire(o tree, pools ExpireAfter) error {
	spec := treeAt(o, "spec")
	if _, ok := at(spec, "expireAfter"); ok || spec == nil || textAt(o, "kind") != "NodeClaim" {
		return nil
	}
	spec["expireAfter"] = v1.Never
	pool := textAt(o, "metadata", "labels", v1.NodePoolLabelKey)
	if pool == "" || pools == nil {
		return nil
	}
	age, err := pools(pool)
	if age != "" {
		spec["expireAfter"] = age
	}
	return err
}
