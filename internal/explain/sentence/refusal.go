package sentence

import (
	"fmt"
	"strings"
	"time"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/core/disrupt"
	"karpenter.sh/karpenter/internal/core/paused"
	"karpenter.sh/karpenter/internal/core/surge"
)

// Refusal returns a text for users: why a node stays, or why a step is not carried out. Every code must have a phrase; the code "" has
// none.
func Refusal(r disrupt.Refusal) string {
	text := phrases[r.Code](&r)
	switch r.Reason {
	case v1.DisruptionReasonDrifted:
		return "the node has drifted, but " + text
	case v1.DisruptionReasonEmpty:
		return "the node is empty, but " + text
	case v1.DisruptionReasonUnhealthy:
		return "the node is broken, but " + text
	}
	return text
}

// phrases has the text of each code. The texts do not name the node, because readers see them beside its name.
var phrases = map[disrupt.Code]func(*disrupt.Refusal) string{
	disrupt.NoNode:         plain("its Node has not registered"),
	disrupt.Rebooting:      plain("its machine is being rebooted"),
	disrupt.NotInitialized: plain("the node is not initialized"),
	disrupt.Deleting:       plain("the node is being removed"),
	disrupt.Nominated:      plain("the node is promised to pods that wait for it"),
	disrupt.Landing:        plain("pods of another node that is being removed are on their way to the node"),
	disrupt.Awaited:        plain("pods that are on their way have their places only as long as pods of the node stay"),
	disrupt.NodeProtected:  named("the node has the annotation %s=true"),
	disrupt.ClaimProtected: named("the NodeClaim has the annotation %s=true"),
	disrupt.Paused: func(r *disrupt.Refusal) string {
		return Halt(paused.Halt{Pool: r.Name, Until: r.Until, Reason: r.Value})
	},
	disrupt.NoPool: func(r *disrupt.Refusal) string {
		if r.Name == "" {
			return "the node has no label " + v1.NodePoolLabelKey
		}
		return fmt.Sprintf("NodePool %q does not exist, or no instance types are known for it", r.Name)
	},
	disrupt.PodProtected: func(r *disrupt.Refusal) string {
		return fmt.Sprintf("pod %s/%s has the annotation %s=%s", r.Pod.Namespace, r.Pod.Name, r.Name, r.Value)
	},
	disrupt.PodBudget: func(r *disrupt.Refusal) string {
		how := Surge(surge.Verdict(r.Value))
		if how != "" {
			how = "; " + how
		}
		if r.Name == "" {
			return fmt.Sprintf("pod %s/%s is under more than one PodDisruptionBudget, so it cannot be evicted%s",
				r.Pod.Namespace, r.Pod.Name, how)
		}
		return fmt.Sprintf("PodDisruptionBudget %s allows no disruption of pod %s/%s now%s", r.Name, r.Pod.Namespace, r.Pod.Name, how)
	},
	disrupt.NoPlace: noPlace,
	disrupt.InStep:  plain("the node takes part in a step that is under way or waits to be looked at again"),
	disrupt.Setback: func(r *disrupt.Refusal) string {
		return "the last step with the node failed, and it is left alone" + until(r)
	},
	disrupt.RepairForbidden: named("it or its NodeClaim has the annotation %s=true"),
	disrupt.TooManyBroken: func(r *disrupt.Refusal) string {
		return fmt.Sprintf("%.0f of %.0f nodes of NodePool %q are, more than a fifth, so it is hardly the machines", r.Have, r.Need, r.Name)
	},
	disrupt.DriftReturns: func(r *disrupt.Refusal) string {
		return fmt.Sprintf("new machines of its class %q drift for the same reason (%s) as soon as they are launched: find out what "+
			"changes them; one node is replaced now and then to see whether that is over%s", r.Value, r.Name, until(r))
	},
	disrupt.Rollout:    heldByRollout,
	disrupt.FixedNodes: named("NodePool %q has a fixed number of nodes (replicas)"),
	disrupt.Settling: func(r *disrupt.Refusal) string {
		return fmt.Sprintf("a pod came or went, and consolidateAfter of NodePool %q is not over%s", r.Name, until(r))
	},
	disrupt.JustVacated: func(r *disrupt.Refusal) string {
		return "its last pod has only just gone, and another may come" + until(r)
	},
	disrupt.BudgetUnread: func(r *disrupt.Refusal) string {
		return fmt.Sprintf("a budget of NodePool %q cannot be read: %s", r.Name, r.Value)
	},
	disrupt.SearchWaits: func(r *disrupt.Refusal) string {
		return "the last search found nothing to save, and the next one waits" + until(r)
	},
	disrupt.NoLabel: named("the node has no label %s, so its price is not known"),
	disrupt.DoNotConsolidate: named("the node has the annotation %s=true; its name today is " + v1.DoNotDisruptAnnotationKey +
		", which holds drift back too"),
	disrupt.NotOffered: named("instance type %q is not offered in the node's zone and capacity type any more, so " +
		"its price is not known"),
	disrupt.ConsolidateNever: named("NodePool %q has consolidateAfter: Never"),
	disrupt.FeedsBuffer:      named("no pods run on it that would have to move, but %s has its room there"),
	disrupt.OnlyWhenEmpty:    named("NodePool %q has consolidationPolicy: WhenEmpty and the node is not empty"),
	disrupt.NothingCheaper: func(r *disrupt.Refusal) string {
		return fmt.Sprintf("no replacement is at least %.0f%% cheaper", 100*r.Need)
	},
	disrupt.NothingButSpot: plain("no cheaper replacement without spot, and spot nodes are not replaced by spot nodes " +
		"(feature gate SpotToSpotConsolidation)"),
	disrupt.SpotForSpot: plain("as many spot nodes of other types would only move the fleet to pools that are cheaper now"),
	disrupt.FewSpotTypes: func(r *disrupt.Refusal) string {
		return fmt.Sprintf("spot to spot needs %.0f cheaper instance types to choose from, there are %.0f", r.Need, r.Have)
	},
	disrupt.MinValues:  plain("no cheaper replacement satisfies the pool's minValues"),
	disrupt.Unbalanced: plain("the saving is too small for the pods that would move (policy Balanced)"),
	disrupt.TooManyRestarts: plain("it could be replaced by something cheaper, but that saves too little for the workloads that would be " +
		"restarted for it"),
	disrupt.TooManyMoves: plain("it could be replaced by something cheaper, but that saves too little for each pod " +
		"that would have to move"),
	disrupt.Churn: plain("the node is no candidate for it any more"),
	disrupt.Budget: func(r *disrupt.Refusal) string {
		return fmt.Sprintf("the budgets do not let %.0f node(s) go for the reason %s now", r.Need, r.Reason)
	},
	disrupt.Scheduling: plain("its pods would not all find a place, or it does not save what it did"),
	disrupt.NotEmpty:   func(r *disrupt.Refusal) string { return fmt.Sprintf("node %s is not empty any more", r.Node) },
	disrupt.NotOurs:    plain("the node is none of Karpenter's"),
}

// until returns ", until TIME" for a refusal that ends by itself, "" for others.
func until(r *disrupt.Refusal) string {
	if r.Until.IsZero() {
		return ""
	}
	return ", until " + r.Until.UTC().Format(time.RFC3339)
}

// plain returns a phrase that is always the same text.
func plain(text string) func(*disrupt.Refusal) string {
	return func(*disrupt.Refusal) string { return text }
}

// named returns a phrase that is made from the Name of the refusal.
func named(format string) func(*disrupt.Refusal) string {
	return func(r *disrupt.Refusal) string { return fmt.Sprintf(format, r.Name) }
}

// noPlace explains the code NoPlace: by the pods without another place, by what the engine says about a new machine, or by limits.nodes.
func noPlace(r *disrupt.Refusal) string {
	switch {
	case len(r.Stuck) > 0:
		return "its pods would not all find a place: " + stuck(r)
	case r.Why != nil:
		return Explanation(r.Why)
	}
	return "its NodePool may have no more nodes (limits.nodes), and one is needed before it goes"
}

// stuck returns the pods without another place, each with the reason, and how many more there are.
func stuck(r *disrupt.Refusal) string {
	var parts []string
	for _, s := range r.Stuck {
		parts = append(parts, fmt.Sprintf("%s/%s: %s", s.Pod.Namespace, s.Pod.Name, Explanation(s.Why)))
	}
	if r.More > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", r.More))
	}
	return strings.Join(parts, "; ")
}
