package disrupt

import (
	"math"
	"slices"
	"strings"

	"karpenter.sh/karpenter/internal/cluster"
)

// Buffers keep room for future pods: a spare is a row (cluster.Pod) for one of these. A node with spares is not empty, and consolidation
// moves no pods into their room, because it would have to be bought again. But no pod waits for that room yet, so a drifted node is
// replaced even if its spares find no other place.

// spares are the spares for which there is room on a node.
type spares struct {
	on map[string][]*cluster.Pod // by the name of the node: used if the node goes
	// still are copies of the same spares, used where their node stays; at has the name of that node.
	still []*cluster.Pod
	at    map[*cluster.Pod]string
}

// sparesOf collects the spares of a snapshot. The copies in still get the highest priority there is, so that their room is taken before
// anything else is placed. The originals, which have to move, keep the lowest: every pod of a user comes first.
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

// elsewhere lists the spares on nodes that stay and take pods. They are part of every question, although no step moves them, so that
// their room is not given to pods of a node that goes.
func (s *spares) elsewhere(gone, closed map[string]bool) []*cluster.Pod {
	if len(s.still) == 0 {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(s.still), func(p *cluster.Pod) bool { return gone[s.at[p]] || closed[s.at[p]] })
}

// buffersOf returns the names of the objects that keep room on a candidate, sorted and joined by commas.
func (c *Candidate) buffersOf() string {
	var names []string
	for _, p := range c.Spares {
		names = append(names, p.Spare.Name(p.Namespace))
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), ", ")
}
