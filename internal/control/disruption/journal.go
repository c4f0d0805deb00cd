package disruption

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/disrupt"
	"karpenter.sh/karpenter/internal/explain/sentence"
	"karpenter.sh/karpenter/internal/history/journal"
)

// writeHeld adds to the journal what keeps nodes, if it differs from the last turn. All nodes with the same code are one record,
// because in a large fleet there are thousands. Codes of stages that end by themselves (Passes) are not written.
func (t *teller) writeHeld(w *disrupt.World, out *disrupt.Proposal) {
	if t.Journal == nil {
		return
	}
	is := map[[2]string]disrupt.Code{} // by claim and reason
	news := map[disrupt.Code][]*disrupt.Refusal{}
	for _, list := range [][]disrupt.Refusal{out.Blocks, out.Notes} {
		for i := range list {
			r := &list[i]
			key := [2]string{r.Claim, string(r.Reason)}
			if is[key] = r.Code; t.held[key] != r.Code && !r.Code.Passes() {
				news[r.Code] = append(news[r.Code], r)
			}
		}
	}
	for key, code := range t.held { // a pass that does not search has no notes: what the last search found still holds
		if _, said := is[key]; !said && w.Snap.ClaimNode(key[0]) != nil {
			is[key] = code
		}
	}
	t.held = is
	for _, code := range slices.Sorted(maps.Keys(news)) {
		r := journal.Record{Act: journal.HeldBack, Loop: name, Reason: string(code), Snapshot: w.Snap.Revision(),
			Text: sentence.Refusal(*news[code][0])}
		if more := len(news[code]) - 1; more > 0 {
			r.Text += fmt.Sprintf("; %d other(s) likewise", more)
		}
		for _, x := range news[code] {
			r.About = append(r.About, journal.Object{Kind: "NodeClaim", Name: x.Claim})
			if x.Node != "" {
				r.About = append(r.About, journal.Object{Kind: "Node", Name: x.Node})
			}
		}
		t.Journal.Add(r)
	}
	t.writeBudgets(w, out)
}

// A heldBudget is the budget of a pool for a reason.
type heldBudget struct {
	pool   string
	reason v1.DisruptionReason
}

// writeBudgets adds to the journal which budgets hold steps back, if they did not in the last turn.
func (t *teller) writeBudgets(w *disrupt.World, out *disrupt.Proposal) {
	is := map[heldBudget]bool{}
	for _, pool := range slices.Sorted(maps.Keys(out.Budgets)) {
		for _, reason := range out.Budgets[pool] {
			key := heldBudget{pool, reason}
			if is[key] = true; t.used[key] {
				continue
			}
			t.Journal.Add(journal.Record{
				Act: journal.HeldBack, Loop: name, Reason: string(disrupt.Budget), Snapshot: w.Snap.Revision(),
				SavingPerHour: out.HeldBack[pool].Dollars(),
				Text:          fmt.Sprintf("the pool's budgets allow no more for reason %s now", reason),
				About:         []journal.Object{{Kind: "NodePool", Name: pool}},
			})
		}
	}
	t.used = is
}

// writeStep adds a step to the journal: that it was begun, or what happened to it instead.
func (t *teller) writeStep(act journal.Act, step *disrupt.Step, snap *cluster.Snapshot, text string) {
	if t.Journal == nil {
		return
	}
	r := journal.Record{
		Act: act, Loop: name, Reason: string(step.Reason), Snapshot: snap.Revision(), Digest: snap.Digest(), Text: text,
		PricePerHour: step.After.Dollars(), SavingPerHour: step.Saves().Dollars(), Evictions: step.Pods(),
	}
	pools := map[string]bool{}
	for _, c := range step.Remove {
		r.About = append(r.About, journal.Object{Kind: "NodeClaim", Name: c.Node.Claim.Name}, journal.Object{Kind: "Node", Name: c.Name()})
		pools[c.Pool.Name] = true
	}
	for _, pool := range slices.Sorted(maps.Keys(pools)) {
		r.About = append(r.About, journal.Object{Kind: "NodePool", Name: pool})
	}
	for i := range step.Open {
		o := &step.Open[i]
		r.Chosen = append(r.Chosen, journal.Option{Pool: o.Pool, Type: o.Type, Zone: o.Zone,
			CapacityType: o.CapacityType, Types: len(o.Types), PricePerHour: o.Price.Dollars()})
	}
	t.Journal.Add(r)
}

// writeFailed adds to the journal that a command was taken back. After a restart its step is not known, so only its candidates are named.
func (t *teller) writeFailed(snap *cluster.Snapshot, c *command, why error) {
	if c.step != nil {
		t.writeStep(journal.HeldBack, c.step, snap, "taken back: "+why.Error())
		return
	}
	r := journal.Record{Act: journal.HeldBack, Loop: name, Reason: string(c.Reason), Snapshot: snap.Revision(),
		Text: "taken back: " + why.Error()}
	for _, m := range c.Candidates {
		r.About = append(r.About, journal.Object{Kind: "NodeClaim", Name: m.Name})
	}
	t.Journal.Add(r)
}

// rejection is the journal's text for a step that Confirm refused.
func rejection(cause disrupt.Code) string {
	return "did not hold after the validation delay: " + strings.ToLower(string(cause))
}
