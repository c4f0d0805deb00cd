package lifecycle

import (
	"iter"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
)

// Unpublished returns the DRA drivers that the claim's annotation asks for and that have not yet published a complete pool of devices of
// the node. Until they have, it is not known which devices the node has, so it does not count as initialized.
func Unpublished(claim *v1.NodeClaim, node string, all iter.Seq[*resourcev1.ResourceSlice]) (out []string) {
	asked := claim.Annotations[v1.RequestedDRADriversAnnotationKey]
	if asked == "" {
		return nil
	}
	for driver := range strings.SplitSeq(asked, ",") {
		if !publishes(driver, node, all) {
			out = append(out, driver)
		}
	}
	return out
}

// publishes reports whether a driver has a pool with devices of the node that is complete: in its newest generation there are as many
// ResourceSlices as it announces.
func publishes(driver, node string, all iter.Seq[*resourcev1.ResourceSlice]) bool {
	type pool struct {
		generation, want, have int64
		here                   bool
	}
	pools := map[string]pool{}
	for s := range all {
		if s.Spec.Driver != driver {
			continue
		}
		p := pools[s.Spec.Pool.Name]
		if s.Spec.Pool.Generation < p.generation {
			continue
		}
		if s.Spec.Pool.Generation > p.generation {
			p = pool{generation: s.Spec.Pool.Generation}
		}
		p.have, p.want = p.have+1, s.Spec.Pool.ResourceSliceCount
		p.here = p.here || s.Spec.NodeName != nil && *s.Spec.NodeName == node
		for i := range s.Spec.Devices {
			p.here = p.here || s.Spec.Devices[i].NodeName != nil && *s.Spec.Devices[i].NodeName == node
		}
		pools[s.Spec.Pool.Name] = p
	}
	for _, p := range pools {
		if p.here && p.have == p.want {
			return true
		}
	}
	return false
}
