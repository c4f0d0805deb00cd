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

// write adds to the journal what a plan has decided anew. A pod that waits for many turns is reported once. The claims that are created
// are recorded by package open.
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

// placed returns a record for each node, with the pods that the plan places there and that had no seat there before.
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

// newlyRefused returns a record for each text, with the pods whose causes differ from those that the journal has. It notes the causes in
// became. Numbers in the reasons change with every new node, so they are not compared.
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

// causes returns a key of the reasons that lie in the pod itself and in pools, without numbers.
func causes(counts []reason.Count) string {
	var b []byte
	for _, c := range counts {
		if c.Pool != "" || c.Candidates == 0 {
			b = identity.Text(identity.Number(identity.Text(b, c.Pool), int64(c.Code)), c.Key)
		}
	}
	return string(b)
}

// firstReason returns the name of the reason that a person would deal with first: a reason in the pod or in a pool, or if there is
// none, in nodes that exist.
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

// pools lists the pools that refused a pod, sorted by name.
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
