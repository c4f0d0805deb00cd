package disruption

import (
	"context"
	"errors"
	"slices"
	"time"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/disrupt"
	"karpenter.sh/karpenter/internal/core/lifecycle"
	"karpenter.sh/karpenter/internal/core/paused"
	"karpenter.sh/karpenter/internal/explain/steprecord"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

var errHalted = errors.New("disruption was paused, or is not approved")

// halted reports whether a node of a step is paused now. The user may have paused it while the step was planned, which may take seconds.
func (l *Loop) halted(step *disrupt.Step) bool {
	snap, now := l.store.Snapshot(), time.Now()
	return slices.ContainsFunc(step.Remove, func(c *disrupt.Candidate) bool { _, is := paused.Node(snap, c.Node, now); return is })
}

// letGo deletes the claim of a candidate. Right before that it checks whether the node is paused or has to be approved, since a user who
// demands that expects it to take effect at once. For a broken node it first bounds the drain.
func (l *Loop) letGo(ctx context.Context, n *cluster.Node, c *command) error {
	if l.forbidden(n, c) {
		return errHalted
	}
	if c.Reason == v1.DisruptionReasonUnhealthy {
		if err := l.boundDrain(ctx, n); err != nil {
			return err
		}
		if n = l.store.Snapshot().ClaimNode(n.Claim.Name); n == nil {
			return nil
		}
	}
	return l.delete(ctx, n.Claim)
}

// boundDrain writes on the claim of a broken node when its drain ends at the latest, if its fault says so (Fault.Grace). An earlier end
// that is there already stays.
func (l *Loop) boundDrain(ctx context.Context, n *cluster.Node) error {
	if n.Node == nil {
		return nil
	}
	now := time.Now()
	fault := l.settings.Repairs.Of(n.Node, n.Claim, now)
	if fault == nil || fault.Grace == nil {
		return nil
	}
	return l.editClaim(ctx, steprecord.Of(n.Claim), func(claim *v1.NodeClaim) bool {
		end := now.Add(*fault.Grace)
		if written, err := lifecycle.Deadline(claim); err == nil && !written.IsZero() && !written.After(end) {
			return false
		}
		claim.Annotations = lifecycle.WithDeadline(claim, end).Annotations
		return true
	}, nil)
}

// forbidden reports whether a candidate of a command may not go now: it is paused, or its pool wants to approve steps and did not.
func (l *Loop) forbidden(n *cluster.Node, c *command) bool {
	snap := l.store.Snapshot()
	_, halted := paused.Node(snap, n, time.Now())
	return halted || unapproved(snap, n, c.Record)
}

// halt ends a command of which some candidate may no longer go (forbidden), and reports whether it did. Candidates that have not been
// deleted stay. If none was deleted, the replacements go as well. Otherwise pods are on their way to the replacements, so these stay.
func (l *Loop) halt(ctx context.Context, c *command) bool {
	snap := l.store.Snapshot()
	var rest []steprecord.Member // candidates that have not been deleted
	halted := false
	for _, m := range c.Candidates {
		if n := m.Staying(snap); n != nil && !c.removed[m.Name] {
			rest = append(rest, m)
			halted = halted || l.forbidden(n, c)
		}
	}
	if !halted {
		return false
	}
	telemetry.Log(ctx).Info("taking a disruption command back because it is paused, or was not approved", "command",
		c.ID, "candidates", rest)
	if len(rest) == len(c.Candidates) {
		l.takeBack(ctx, c)
		return true
	}
	if err := l.free(ctx, snap, c, rest); err != nil { // the sweep and adopt find the rest
		telemetry.Log(ctx).Error("cannot take a disruption command back in full", "command", c.ID, "error", err)
	}
	l.finish(ctx, snap, c)
	return true
}
