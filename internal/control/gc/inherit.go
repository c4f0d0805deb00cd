package gc

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/lifecycle"
	"karpenter.sh/karpenter/internal/kit/parallel"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// heirs returns the pools of our provider that replace a Provisioner, by the name of the Provisioner.
func (l *Loop) heirs(snap *cluster.Snapshot) map[string]*v1.NodePool {
	var served iter.Seq[*v1.NodePool] = func(yield func(*v1.NodePool) bool) {
		for pool := range cluster.Pools.All(snap) {
			if cloud.Serves(l.Cloud, pool.Spec.Template.Spec.NodeClassRef) && !yield(pool) {
				return
			}
		}
	}
	return lifecycle.Heirs(served)
}

// inherit creates claims for machines that a Karpenter with Provisioners launched, if a pool replaces their Provisioner. It returns the
// orphans without the machines with a Node that such a pool takes over: the others are left to garbage collection. With an error it may
// return none, so that no machine is stopped by mistake.
func (l *Loop) inherit(ctx context.Context, orphans []cloud.Machine, seen claimIndex) ([]cloud.Machine, error) {
	snap := l.Store.Snapshot()
	heirs := l.heirs(snap)
	if len(heirs) == 0 {
		clear(l.alone)
		return orphans, nil
	}
	machines, err := l.Cloud.Inherited(ctx)
	if err != nil {
		return nil, fmt.Errorf("list machines of Provisioners: %w", err)
	}
	machines = slices.DeleteFunc(machines, func(m cloud.Machine) bool { return seen[claimKey{providerID: m.ProviderID}] != nil })
	if len(machines) == 0 {
		return orphans, nil
	}
	known, err := l.known(ctx)
	if err != nil {
		return nil, err
	}
	bequests := l.bequests(snap, machines, heirs, known)
	failed := parallel.Of(bequests, atOnce, bequestOf, func(b lifecycle.Bequest) error { return l.take(ctx, &b) })
	return slices.DeleteFunc(slices.Clone(orphans), func(m cloud.Machine) bool {
		return slices.ContainsFunc(bequests, func(b lifecycle.Bequest) bool {
			return b.Machine.ProviderID == m.ProviderID && b.Heir != nil && len(b.Nodes) > 0
		})
	}), errors.Join(failed...)
}

func bequestOf(b lifecycle.Bequest) string { return "taking over machine " + b.Machine.ProviderID }

// bequests describes each inherited machine: its Nodes, the pool that takes it over, whether it has a claim, and for how long it has
// had no Node. It updates l.alone.
func (l *Loop) bequests(snap *cluster.Snapshot, machines []cloud.Machine, heirs map[string]*v1.NodePool,
	known claimIndex) []lifecycle.Bequest {
	now := time.Now()
	var alone []cloud.Machine
	since := map[string]time.Time{}
	out := make([]lifecycle.Bequest, len(machines))
	for i, m := range machines {
		b := lifecycle.Bequest{Machine: m, Nodes: snap.NodesWithProviderID(m.ProviderID), Heir: heirs[m.Provisioner]}
		b.Claimed = known[claimKey{providerID: m.ProviderID}] != nil || known[claimKey{adopts: m.ProviderID}] != nil ||
			m.ClaimName != "" && known[claimKey{name: m.ClaimName}] != nil
		if len(b.Nodes) == 0 && !b.Claimed && snap.Fed() {
			since[m.ProviderID] = now
			if before, ok := l.alone[m.ProviderID]; ok {
				since[m.ProviderID] = before
			}
			b.Alone = now.Sub(since[m.ProviderID])
			alone = append(alone, m)
		}
		out[i] = b
	}
	l.alone = since
	many := lifecycle.ManyAlone(machines, alone, now)
	for i := range out {
		out[i].Many = many
	}
	return out
}

// take creates the claim of one inherited machine, or reports what prevents it.
func (l *Loop) take(ctx context.Context, b *lifecycle.Bequest) error {
	adopt, why := b.Inherited()
	if why != "" {
		l.reportBequest(ctx, b, why)
	}
	if !adopt {
		return nil
	}
	claim := b.Claim()
	err := l.Client.Create(ctx, claim)
	if apierrors.IsAlreadyExists(err) {
		err = errors.New("there is a claim of that name")
	}
	if err != nil {
		return fmt.Errorf("adopt machine %s as claim %s: %w", b.Machine.ProviderID, claim.Name, err)
	}
	telemetry.Log(ctx).Info("a machine of a provisioner is adopted", "provider-id", b.Machine.ProviderID,
		"provisioner", b.Machine.Provisioner, "NodeClaim", claim.Name)
	return nil
}

// reportBequest reports why an inherited machine gets no claim: by events on its Nodes, or in the log if it has none.
func (l *Loop) reportBequest(ctx context.Context, b *lifecycle.Bequest, why lifecycle.Hindrance) {
	text := map[lifecycle.Hindrance]string{
		lifecycle.NoHeir: fmt.Sprintf("not exactly one NodePool has the annotation %s=%s",
			v1.ProvisionerAnnotationKey, b.Machine.Provisioner),
		lifecycle.SeveralNodes:    "several Nodes have it",
		lifecycle.OtherNode:       fmt.Sprintf("its Node is of another provisioner or pool, or does not say %s", v1.ProvisionerLabelKey),
		lifecycle.ManyWithoutNode: "most machines of provisioners have no Node, which looks like a mistake",
	}[why]
	for _, n := range b.Nodes {
		l.Events.Publish(telemetry.Event{
			Object: telemetry.NodeRef(n), Reason: telemetry.OrphanKept, Key: []string{n.Name, string(why)},
			Message: fmt.Sprintf("The machine was launched for Provisioner %s and gets no NodeClaim: %s. Nothing is "+
				"done to it", b.Machine.Provisioner, text),
		})
	}
	if len(b.Nodes) == 0 {
		telemetry.Log(ctx).Warn("a machine of a provisioner gets no nodeclaim and is left alone", "provider-id",
			b.Machine.ProviderID, "provisioner", b.Machine.Provisioner, "reason", text)
	}
}
