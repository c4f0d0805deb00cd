package overlay

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
)

// A changeIndex records which rule changes which price and capacity, among the overlays of one weight.
type changeIndex struct {
	pools    []Pool
	price    map[place][]*rule // by offering of the type: the rule that changes its price, or nil
	capacity map[sizing]*rule
}

// A sizing is one resource of an instance type in a pool.
type sizing struct {
	place
	resource corev1.ResourceName
}

func newChangeIndex(pools []Pool) *changeIndex {
	return &changeIndex{pools, map[place][]*rule{}, map[sizing]*rule{}}
}

// conflict returns the first price or capacity that an earlier rule changes already, nil if there is none. touched holds the types that r
// selects, and for each of them which offerings. Equal values conflict too: otherwise a later edit of one of them would refuse an overlay
// that was in force.
func (c *changeIndex) conflict(r *rule, touched map[place][]bool) *v1alpha1.Conflict {
	for _, at := range slices.SortedFunc(maps.Keys(touched), comparePlaces) {
		found := &v1alpha1.Conflict{Pool: c.pools[at.pool].Pool.Name, Type: c.pools[at.pool].Catalog.Types[at.it].Name}
		if taken := c.price[at]; r.change != nil && taken != nil {
			for offering, mine := range touched[at] {
				if mine && taken[offering] != nil {
					found.With = taken[offering].name
					return found
				}
			}
		}
		for _, resource := range slices.Sorted(maps.Keys(r.capacity)) {
			if taken := c.capacity[sizing{at, resource}]; taken != nil {
				found.With, found.Resource = taken.name, resource
				return found
			}
		}
	}
	return nil
}

// comparePlaces orders places by pool, then by type.
func comparePlaces(a, b place) int {
	if a.pool != b.pool {
		return a.pool - b.pool
	}
	return a.it - b.it
}

// add records what a rule changes.
func (c *changeIndex) add(r *rule, touched map[place][]bool) {
	for at, offers := range touched {
		if r.change != nil {
			taken := c.price[at]
			if taken == nil {
				taken = make([]*rule, len(offers))
				c.price[at] = taken
			}
			for offering, mine := range offers {
				if mine {
					taken[offering] = r
				}
			}
		}
		for resource := range r.capacity {
			c.capacity[sizing{at, resource}] = r
		}
	}
}
