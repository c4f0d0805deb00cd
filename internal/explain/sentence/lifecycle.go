package sentence

import (
	"fmt"
	"time"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/core/lifecycle"
)

// Lack says what the node of a claim lacks.
func Lack(l lifecycle.Lack) string {
	switch l.Reason {
	case v1.ReasonRegistrationHookPending:
		return "the provider is not done with the node: " + l.Name
	case v1.ReasonNodeNotReady:
		return fmt.Sprintf("node %s is not ready", l.Name)
	case v1.ReasonStartupTaintsExist:
		return fmt.Sprintf("startup taint %q is still on the node", l.Name)
	case v1.ReasonKnownEphemeralTaintsExist:
		return fmt.Sprintf("taint %q is still on the node", l.Name)
	case v1.ReasonDRADriverPoolsNotPublished:
		return "not all devices of the node are published by " + l.Name
	case v1.ReasonResourceNotRegistered:
		return fmt.Sprintf("the node does not offer resource %q yet", l.Name)
	}
	if l.Nodes > 1 {
		return fmt.Sprintf("%d nodes have the claim's provider id", l.Nodes)
	}
	return "no node with the claim's provider id has joined the cluster"
}

// Failing says that machines of a pool do not get ready, and what follows. The text begins with their number:
// lifecycle.Fails reads it.
func Failing(f lifecycle.Failing) string {
	what := "it did not join the cluster"
	switch {
	case f.Lacks != "":
		what = f.Lacks
	case f.Joined:
		what = "its node was not initialized"
	}
	text := fmt.Sprintf("%d machine(s) in a row ran for their whole time without becoming ready nodes, the last of "+
		"them NodeClaim %s: %s", f.Failures, f.Claim, what)
	if f.Broken() {
		text += "; until one does, one machine is tried at a time, at most two an hour, and nodes that work are not replaced at first"
	}
	return text
}

// Hold says why a pool gets no machine now.
func Hold(h *lifecycle.Hold) string {
	if h.Tried != "" {
		return fmt.Sprintf("the last %d machines of pool %q did not get ready, and NodeClaim %s is tried first",
			h.Failures, h.Pool, h.Tried)
	}
	return fmt.Sprintf("the last %d machines of pool %q did not get ready, the next is tried at %s", h.Failures,
		h.Pool, h.TryAt().UTC().Format(time.TimeOnly))
}

// Inconsistency says what a node has too little of.
func Inconsistency(i lifecycle.Inconsistency) string {
	return fmt.Sprintf("the node has %s of resource %s where %s was expected (%.1f%%)",
		i.Have.String(), i.Resource, i.Expected.String(), 100*i.Have.AsApproximateFloat64()/i.Expected.AsApproximateFloat64())
}
