package disruption

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/explain/sentence"
	"karpenter.sh/karpenter/internal/explain/steprecord"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// A stray is a record that belongs to no command in memory, and the claims that carry it.
type stray struct {
	steprecord.Record
	unread error // why the record cannot be read, nil if it can
	claims []*v1.NodeClaim
}

// adopt takes over commands that another process started, from the records on their claims, oldest first. A record that does not count
// (doubt) is taken off its claims, together with the taint of the candidates.
func (l *Loop) adopt(ctx context.Context, snap *cluster.Snapshot) {
	for _, s := range l.strays(snap) {
		waits, why := false, s.unread
		if why == nil {
			waits, why = l.doubt(ctx, s.Record)
		}
		switch {
		case waits:
			continue
		case why != nil:
			l.discard(ctx, s.claims, why)
			continue
		}
		if others := slices.DeleteFunc(s.claims, s.Names); len(others) > 0 {
			l.discard(ctx, others, errors.New("it does not name the claim that carries it"))
		}
		c := newCommand(s.Record)
		l.commands[c.ID] = c
		l.store.Update(func(d *cluster.Draft) {
			for _, m := range c.Candidates {
				if m.Node(snap) != nil {
					d.MarkForRemoval(m.Name)
				}
			}
		})
		telemetry.Log(ctx).Info("resuming a disruption command", "command", c.ID, "candidates", c.Candidates,
			"replacements", c.Replacements)
	}
}

// strays lists the records that belong to no command in memory, the oldest first, each with the claims that carry it. Claims that are
// being deleted are left out, because they need no command any more.
func (l *Loop) strays(snap *cluster.Snapshot) []*stray {
	known := map[string]*stray{}
	for n := range snap.Nodes() {
		if n.Claim == nil || n.Claim.DeletionTimestamp != nil {
			continue
		}
		r, ok, err := steprecord.Read(n.Claim)
		if !ok && err == nil || ok && l.commands[r.ID] != nil {
			continue
		}
		key := r.As(steprecord.Candidate)
		if err != nil {
			key = n.Claim.Name // a record that cannot be read is a stray of its own; no other key is equal
		}
		if known[key] == nil {
			known[key] = &stray{Record: r, unread: err}
		}
		known[key].claims = append(known[key].claims, n.Claim)
	}
	out := make([]*stray, 0, len(known))
	for _, key := range sortedKeys(known) {
		out = append(out, known[key])
	}
	slices.SortStableFunc(out, func(a, b *stray) int { return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID)) })
	return out
}

// doubt returns why a record does not count, nil if it does. It counts if every candidate that still exists carries it, its plan (if it
// names one) allows it, and nothing forbids to remove the candidates now. waits says that this cannot be decided yet, because the
// machines of a candidate's pool are not known: a short while after a restart the catalogue may not be there.
func (l *Loop) doubt(ctx context.Context, r steprecord.Record) (waits bool, why error) {
	snap := l.store.Snapshot()
	w := l.world(ctx, snap, time.Now())
	var left []types.UID
	for _, m := range r.Candidates {
		n := m.Node(snap)
		switch {
		case n == nil:
			continue
		case !r.On(n.Claim, steprecord.Candidate):
			return false, fmt.Errorf("candidate %s does not carry it", m.Name)
		case n.Claim.DeletionTimestamp == nil:
			left = append(left, m.UID)
		}
		if _, known := w.Pools[n.Pool()]; !known && cluster.Pools.Get(snap, n.Pool()) != nil && w.Now.Before(r.Deadline) {
			waits = true
		}
	}
	if waits {
		return true, nil
	}
	if !approved(snap, r) {
		return false, fmt.Errorf("the plan %s does not allow it", r.Plan)
	}
	if why := w.Forbids(r.Reason, left); why.Code != "" {
		return false, fmt.Errorf("%s %s: %s", why.Code, cmp.Or(why.Claim, why.Node), sentence.Refusal(why))
	}
	return false, nil
}

// discard takes a record off the claims that carry it, and lets candidates work again (release).
func (l *Loop) discard(ctx context.Context, claims []*v1.NodeClaim, why error) {
	telemetry.Log(ctx).Error("a disruption record does not count and is taken off", "NodeClaims", namesOf(claims), "error", why)
	errs := lookAfter(claims, (*v1.NodeClaim).GetName, func(claim *v1.NodeClaim) error {
		r, ok, _ := steprecord.Read(claim)
		if ok && r.Role == steprecord.Replacement {
			return l.editClaim(ctx, steprecord.Of(claim), dropRecord, nil)
		}
		return l.release(ctx, l.store.Snapshot(), steprecord.Of(claim), r.ID)
	})
	for i, err := range errs {
		if err != nil { // the next turn tries again
			telemetry.Log(ctx).Error("cannot take a disruption record off", "NodeClaim", claims[i].Name, "error", err)
		}
	}
}

func namesOf(claims []*v1.NodeClaim) []string {
	names := make([]string, len(claims))
	for i, c := range claims {
		names[i] = c.Name
	}
	return names
}
