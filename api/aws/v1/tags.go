package v1

import "strings"

// RestrictedTags lists the tag keys that Karpenter sets itself; users may not.
func RestrictedTags() []string {
	return []string{TagClusterName, TagNodePool, TagNodeClaim, TagNodeClass}
}

// RestrictedTagPrefix begins tag keys that say which cluster a resource belongs to; users may not set them.
const RestrictedTagPrefix = "kubernetes.io/cluster"

// RestrictedTag reports whether users may not set a tag of this key.
func RestrictedTag(key string) bool {
	for _, restricted := range RestrictedTags() {
		if key == restricted {
			return true
		}
	}
	return strings.HasPrefix(key, RestrictedTagPrefix)
}

// TagDiscovery is the tag by which guides let classes find subnets and security groups; its value is the cluster's
// name. Nothing reads it but selectors that say so.
const TagDiscovery = "karpenter.sh/discovery"
