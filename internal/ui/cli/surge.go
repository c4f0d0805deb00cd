package cli

import (
	"context"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/disrupt"
	"karpenter.sh/karpenter/internal/core/movable"
	"karpenter.sh/karpenter/internal/core/surge"
)

// readSurge fills w.Surge: for Deployments with pods that a PodDisruptionBudget holds, whether a restart of the
// Deployment could move them. A Deployment that the user may not read is left out.
func readSurge(ctx context.Context, c client.Reader, w *disrupt.World) {
	var budgets []movable.PDB
	for b := range cluster.PDBs.All(w.Snap) {
		budgets = append(budgets, movable.Compile(b))
	}
	pdbs, now := movable.NewPDBs(budgets), time.Now()
	w.Surge = map[types.UID]surge.Verdict{}
	for n := range w.Snap.Nodes() {
		for _, p := range n.Pods {
			name := surge.Deployment(p)
			if held, _ := pdbs.Blocking(p, now); held == nil || n.Claim == nil || name == "" {
				continue
			}
			if _, known := w.Surge[p.Owner.UID]; known {
				continue
			}
			d := &appsv1.Deployment{}
			if err := c.Get(ctx, types.NamespacedName{Namespace: p.Namespace, Name: name}, d); err == nil {
				w.Surge[p.Owner.UID] = surge.Judge(w.Snap, p, n.Pool(), d, now)
			}
		}
	}
}
