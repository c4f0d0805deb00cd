package provision

import (
	"cmp"
	"fmt"
	"slices"

	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/reason"
	"karpenter.sh/karpenter/internal/explain/sentence"
	"karpenter.sh/karpenter/internal/explain/why"
	"karpenter.sh/karpenter/internal/history/journal"
	"karpenter.sh/karpenter/internal/kit/identity"
)

// write puts into the journal what a plan has decided anew: pods wait for many turns, and are reported once. What is opened the opener
// writes itself.
func (l *Loop) write(snap *cluster.Snapshot, plan *engine.Plan, became outcome) {
	if l.Journal == nil {
		return
	}
	records := append(placed(snap, plan.Place), l.newlyRefused(plan, became)...)
	if len(records)+len(plan.Open) == 0 {
		return
	}
	if len(plan.Open) > 0 {
		records = append([]journal.Record{{
			Act: journal.Planned, PricePerHour: plan.Price.Dollars(), CostPerHour: plan.Cost.Dollars(),
			BoundPerHour: max(plan.VolumeBound, plan.ConfigBound).Dollars(),
			Text: fmt.Sprintf("%s for %s; %d placed on what is there, %d refused", sentence.Count(len(plan.Open),
				"new node"), sentence.Count(podsOf(plan.Open), "pod"), len(plan.Place), len(plan.Refused)),
		}}, records...)
	}
	digest := snap.Digest()
	for _, r := range records {
		r.Loop, r.Snapshot, r.Digest = name, snap.Revision(), digest
		l.Journal.Add(r)
	}
}

func podObject(p *cluster.Pod) journal.Object {
	return journal.Object{Kind: "Pod", Namespace: p.Namespace, Name: p.Name}
}

// placed has a record for each node that pods are given who did not have it.
func placed(snap *cluster.Snapshot, placements []engine.Placement) []journal.Record {
	var out []journal.Record
	at := map[string]int{}
	for _, p := range placements {
		n := snap.Node(p.Node)
		target := targetOf(n, p.Node)
		if have, ok := snap.Planned(p.Pod.PodKey); ok && have.Target == target {
			continue
		}
		i, known := at[p.Node]
		if !known {
			i = len(out)
			at[p.Node] = i
			r := journal.Record{Act: journal.Placed, About: []journal.Object{{Kind: "Node", Name: p.Node}}}
			if n != nil && n.Node == nil {
				r.About[0].Kind = "NodeClaim"
			} else if n != nil && n.Claim != nil {
				r.About = append(r.About, journal.Object{Kind: "NodeClaim", Name: n.Claim.Name})
			}
			out = append(out, r)
		}
		out[i].About = append(out[i].About, podObject(p.Pod))
	}
	return out
}

// newlyRefused has a record for each sentence with the pods that are refused for other causes than before. Numbers change with every node
// that comes, and are no news.
func (l *Loop) newlyRefused(plan *engine.Plan, became outcome) []journal.Record {
	var out []journal.Record
	at := map[string]int{}
	for i := range plan.Refused {
		r := &plan.Refused[i]
		text, told := became.refused[r.Pod.UID]
		if !told {
			continue
		}
		became.causes[r.Pod.UID] = causes(r.Reasons)
		if l.memory.pods[r.Pod.UID].causes == became.causes[r.Pod.UID] {
			continue
		}
		n, known := at[text]
		if !known {
			n = len(out)
			at[text] = n
			out = append(out, journal.Record{Act: journal.Refused, Reason: firstReason(r.Reasons), Text: text, About: pools(r.Reasons)})
		}
		out[n].About = append(out[n].About, podObject(r.Pod))
	}
	return out
}

// causes are the reasons of the pod itself and of pools.
func causes(counts []reason.Count) string {
	var b []byte
	for _, c := range counts {
		if c.Pool != "" || c.Candidates == 0 {
			b = identity.Text(identity.Number(identity.Text(b, c.Pool), int64(c.Code)), c.Key)
		}
	}
	return string(b)
}

// firstReason names what a person would deal with first: in the pod or a pool, and only where nothing is known of
// those, in nodes that are there.
func firstReason(counts []reason.Count) string {
	counts = why.InOrder(counts)
	for _, c := range counts {
		if c.Pool != "" || c.Candidates == 0 {
			return c.Code.Name()
		}
	}
	if len(counts) == 0 {
		return ""
	}
	return counts[0].Code.Name()
}

// pools are those that refused.
func pools(counts []reason.Count) []journal.Object {
	var out []journal.Object
	for _, c := range counts {
		if c.Pool != "" {
			out = append(out, journal.Object{Kind: "NodePool", Name: c.Pool})
		}
	}
	slices.SortFunc(out, func(a, b journal.Object) int { return cmp.Compare(a.Name, b.Name) })
	return slices.Compact(out)
}
