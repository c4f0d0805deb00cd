package scenario

import (
	"fmt"
	"slices"
	"strings"

	"karpenter.sh/karpenter/internal/core/disrupt"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/reason"
)

// Disruption returns the input of package disrupt at this moment.
func (w *World) Disruption() *disrupt.World {
	pools := map[string]engine.Pool{}
	for _, p := range w.Pools {
		pools[p.Pool.Name] = p
	}
	return &disrupt.World{Snap: w.Store.Snapshot(), Pools: pools, Vacant: w.vacant, Settings: w.disruption,
		Engine: w.Engine, Terms: w.Settings, Now: w.Now}
}

// Propose makes one pass over the nodes that may go, as if it were the first one.
func (w *World) Propose() *disrupt.Proposal {
	out, _ := disrupt.Propose(w.Disruption(), disrupt.Memory{})
	return out
}

// proposalText writes a proposal as sorted lines: the steps, the nodes that are blocked, and the pools whose budgets
// are exhausted.
func proposalText(p *disrupt.Proposal) string {
	var out []string
	for _, s := range p.Steps {
		out = append(out, stepOf(s))
	}
	for _, b := range p.Blocks {
		line := fmt.Sprintf("blocked %s: %s", strings.TrimPrefix(b.Claim, "claim-"), b.Code)
		for _, s := range b.Stuck {
			for _, why := range s.Why {
				if why.Code == reason.DeviceInvalid {
					line += fmt.Sprintf(", claim %s: %s %s", why.Key, why.Flaw.Name(), why.Detail)
				}
			}
		}
		out = append(out, line)
	}
	for pool, reasons := range p.Budgets {
		out = append(out, fmt.Sprintf("exhausted %s: %v", pool, reasons))
	}
	slices.Sort(out)
	if len(out) == 0 {
		return "nothing\n"
	}
	return strings.Join(out, "\n") + "\n"
}

// stepOf writes which nodes a step removes for which reason, and what is opened instead.
func stepOf(s *disrupt.Step) string {
	var removed, opened []string
	for _, c := range s.Remove {
		removed = append(removed, c.Name())
	}
	for i := range s.Open {
		opened = append(opened, s.Open[i].Type+"/"+s.Open[i].CapacityTypes[0])
	}
	text := strings.ToLower(string(s.Reason)) + " " + strings.Join(removed, ",")
	if len(opened) > 0 {
		slices.Sort(opened)
		text += " -> " + strings.Join(opened, ",")
	}
	return text
}
