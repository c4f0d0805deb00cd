package overlay

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
)

// claims are what overlays of one weight have spoken of.
type claims struct {
	pools []Pool
	price map[place][]*rule // by offering
	sized map[sizing]*rule
}

type sizing struct {
	place
	resource corev1.ResourceName
}

func newClaims(pools []Pool) *claims {
	return &claims{pools, map[place][]*rule{}, map[sizing]*rule{}}
}

// conflict returns the first thing of which an earlier rule speaks already, nil if there is none. Equal values
// contradict each other too: the day one of them is changed must not be the day on which both are refused.
func (c *claims) conflict(r *rule, touched map[place][]bool) *v1alpha1.Conflict {
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
			if taken := c.sized[sizing{at, resource}]; taken != nil {
				found.With, found.Resource = taken.name, resource
				return found
			}
		}
	}
	return nil
}

func comparePlaces(a, b place) int {
	if a.pool != b.pool {
		return a.pool - b.pool
	}
	return a.it - b.it
}

// add notes what a rule speaks of.
func (c *claims) add(r *rule, touched map[place][]bool) {
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
			c.sized[sizing{at, resource}] = r
		}
	}
}
