package gc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/lifecycle"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// judge returns the orphans that are to be stopped. It does what an operator asked for by an annotation of the Node (adopt or terminate),
// and latches orphans if most machines are orphans, or if they were latched before. It unlatches machines that have a claim again.
func (l *Loop) judge(ctx context.Context, machines, orphans []cloud.Machine, known claimIndex) (stop []cloud.Machine, err error) {
	mass := lifecycle.Mass(l.used(machines, known), l.used(orphans, known), time.Now())
	held := map[string]bool{}
	var errs []error
	for _, m := range orphans {
		nodes := l.Store.Snapshot().NodesWithProviderID(m.ProviderID)
		switch wish := wishOf(nodes); {
		case wish == v1.OrphanAdopt:
			held[m.ProviderID] = true
			errs = append(errs, l.adopt(ctx, nodes[0], m))
		case wish == v1.OrphanTerminate && slices.Contains(nodes[0].Finalizers, v1.TerminationFinalizer):
			held[m.ProviderID] = true
			errs = append(errs, l.deleteNode(ctx, nodes[0])) // its drain stops the machine
		case wish != v1.OrphanTerminate && (m.Latched || l.latched[m.ProviderID] || slices.ContainsFunc(mass, is(m))):
			held[m.ProviderID] = true
			l.latch(ctx, m, nodes)
		default:
			stop = append(stop, m)
		}
	}
	for _, m := range machines {
		if m.Latched && !held[m.ProviderID] && known[claimKey{providerID: m.ProviderID}] != nil {
			errs = append(errs, l.unlatch(ctx, m))
		}
	}
	l.latched = held
	l.Metrics.MachinesLatched.Set(float64(len(held)))
	return stop, errors.Join(errs...)
}

// used returns the machines without those that no pod has run on for certain, which count neither for nor against a mistake. Such a
// machine has no registered Node, and was left over by a launch: it has no name of a claim, its claim was in doubt, or its claim has
// another machine.
func (l *Loop) used(machines []cloud.Machine, known claimIndex) []cloud.Machine {
	snap := l.Store.Snapshot()
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(machines), func(m cloud.Machine) bool {
		_, doubted := l.doubted[m.ClaimName]
		c := known[claimKey{name: m.ClaimName}]
		second := c != nil && c.Status.ProviderID != "" && c.Status.ProviderID != m.ProviderID
		return (m.ClaimName == "" || doubted || second) &&
			!slices.ContainsFunc(snap.NodesWithProviderID(m.ProviderID), lifecycle.IsRegistered)
	})
}

// is returns a function that reports whether another machine is m.
func is(m cloud.Machine) func(cloud.Machine) bool {
	return func(other cloud.Machine) bool { return other.ProviderID == m.ProviderID }
}

// wishOf returns what an operator asked for by an annotation of the orphan's Node. It is "" unless the machine has exactly one Node.
func wishOf(nodes []*corev1.Node) string {
	if len(nodes) != 1 {
		return ""
	}
	return nodes[0].Annotations[v1.OrphanAnnotationKey]
}

// latch reports that an orphan is kept, and marks it at the cloud so that a restart does not forget it. (judge notes it in memory.)
func (l *Loop) latch(ctx context.Context, m cloud.Machine, nodes []*corev1.Node) {
	if !l.latched[m.ProviderID] {
		telemetry.Log(ctx).Error("a machine has no nodeclaim, as most machines: it is kept until its claim returns or "+
			"an operator decides", "provider-id", m.ProviderID, "NodeClaim", m.ClaimName)
	}
	for _, n := range nodes {
		l.Events.Publish(telemetry.Event{
			Object: telemetry.NodeRef(n), Reason: telemetry.OrphanKept, Key: []string{n.Name},
			Message: fmt.Sprintf("The machine has no NodeClaim, as most machines, and is kept; annotate the Node with "+
				"%s=%s or %s", v1.OrphanAnnotationKey, v1.OrphanAdopt, v1.OrphanTerminate),
		})
	}
	if m.Latched {
		return
	}
	if err := l.Cloud.SetLatch(ctx, m.ProviderID, true); err != nil && !errors.Is(err, cloud.ErrNotFound) {
		telemetry.Log(ctx).Error("a machine that is kept cannot be marked so, a restart may forget it", "provider-id",
			m.ProviderID, "error", err)
	}
}

// unlatch removes the mark from a machine that has a claim again.
func (l *Loop) unlatch(ctx context.Context, m cloud.Machine) error {
	if err := l.Cloud.SetLatch(ctx, m.ProviderID, false); err != nil && !errors.Is(err, cloud.ErrNotFound) {
		return fmt.Errorf("unlatch machine %s: %w", m.ProviderID, err)
	}
	telemetry.Log(ctx).Info("a machine that was kept has a nodeclaim again", "provider-id", m.ProviderID)
	return nil
}

// adopt creates a claim for a machine; the claim's launch finds the machine instead of starting one.
func (l *Loop) adopt(ctx context.Context, node *corev1.Node, m cloud.Machine) error {
	pool := cluster.Pools.Get(l.Store.Snapshot(), m.PoolName)
	if pool == nil {
		return fmt.Errorf("adopt machine %s: there is no NodePool %q", m.ProviderID, m.PoolName)
	}
	claim := lifecycle.Adopting(pool, node, m)
	if err := l.Client.Create(ctx, claim); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("adopt machine %s: %w", m.ProviderID, err)
	}
	return nil
}

// deleteNode deletes a Node that is not being deleted already.
func (l *Loop) deleteNode(ctx context.Context, n *corev1.Node) error {
	if n.DeletionTimestamp != nil {
		return nil
	}
	return ignoreGone(l.Client.Delete(ctx, n.DeepCopy(), client.Preconditions{UID: &n.UID}))
}
