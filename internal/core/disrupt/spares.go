package disrupt

import (
	"math"
	"slices"
	"strings"

	"karpenter.sh/karpenter/internal/cluster"
)

// Buffers keep room for pods to come. What they rest on is not empty, and consolidation moves nothing onto their
// room: it would only have to be bought again. But no pod waits for that room yet. So what goes because it has
// drifted goes without it, if need be.

// spares are the rows that stand for such pods, as far as there is room for them.
type spares struct {
	on map[string][]*cluster.Pod // by the name of the node
	// still are the same rows as they are where their node stays: at home, and not to be moved by anybody. at says where.
	still []*cluster.Pod
	at    map[*cluster.Pod]string
}

// The row at home has the highest priority there is. Room that a buffer has is thereby taken before anything else is placed, which is what
// it means to be there already; the row that is asked to move has the lowest, as every pod of a user comes first.
func sparesOf(snap *cluster.Snapshot) spares {
	out := spares{}
	for s := range snap.Spares() {
		for _, p := range s.Pods {
			n := snap.PlaceOf(p)
			if n == nil {
				continue
			}
			if out.on == nil {
				out.on, out.at = map[string][]*cluster.Pod{}, map[*cluster.Pod]string{}
			}
			home := *p
			home.Priority = math.MaxInt32
			out.on[n.Name] = append(out.on[n.Name], p)
			out.still = append(out.still, &home)
			out.at[&home] = n.Name
		}
	}
	return out
}

// elsewhere lists the spares that rest on nodes which stay and take pods.
//
// They are part of every question, although no step moves them: room that a buffer keeps on a node that stays must not be given away to
// pods of a node that goes.
func (s *spares) elsewhere(gone, closed map[string]bool) []*cluster.Pod {
	if len(s.still) == 0 {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(s.still), func(p *cluster.Pod) bool { return gone[s.at[p]] || closed[s.at[p]] })
}

// buffersOf names the objects whose room rests on a candidate.
func (c *Candidate) buffersOf() string {
	var names []string
	for _, p := range c.Spares {
		names = append(names, p.Spare.Name(p.Namespace))
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), ", ")
}
