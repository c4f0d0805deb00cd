package operator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/core/movable"
)

// preview returns the function with which the page plans for the pods of manifests in the present cluster, nil if plan is nil.
func (p *parts) preview(plan func(context.Context, []byte, engine.Question) ([]byte, error)) func(context.Context, []byte) ([]byte, error) {
	if plan == nil {
		return nil
	}
	return func(ctx context.Context, manifests []byte) ([]byte, error) {
		in, err := p.present(ctx)
		if err != nil {
			return nil, err
		}
		return plan(ctx, manifests, in)
	}
}

// leave plans for the pods of a node as if it left now, for the page.
func (p *parts) leave(ctx context.Context, node string) (*engine.Plan, error) {
	in, err := p.present(ctx)
	if err != nil {
		return nil, err
	}
	row := in.Snap.Node(node)
	if row == nil {
		return nil, errors.New("the node is gone")
	}
	for _, pod := range row.Pods {
		if movable.Reschedulable(pod) {
			in.Pods = append(in.Pods, pod)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, leaveTime)
	defer cancel()
	in.Gone, in.Simulation, in.Settings.Unproven = map[string]bool{node: true}, true, true
	in.Ended = func() bool { return ctx.Err() != nil }
	plan := engine.New(p.labels).Plan(in)
	if ctx.Err() != nil {
		return nil, fmt.Errorf("it takes longer than %s; karpenter why node %s has more time", leaveTime, node)
	}
	return plan, nil
}

// leaveTime is how long the plan for a node that leaves may take, because it runs in the controller.
const leaveTime = 5 * time.Second

// present returns a question about the present cluster without pods, or an error that tells the user why there can be none.
func (p *parts) present(ctx context.Context) (in engine.Question, err error) {
	snap := p.store.Snapshot()
	if !snap.Synced() {
		return in, errors.New("the controller is still reading the cluster; try again in some seconds")
	}
	in = engine.Question{Snap: snap, Settings: p.settings.engineSettings(), Now: time.Now()}
	known, notReady := p.catalogs.Pools(ctx, snap)
	for _, name := range slices.Sorted(maps.Keys(known)) {
		if pool := known[name]; !notReady[name] && !pool.Pool.IsStatic() {
			in.Pools = append(in.Pools, pool)
		}
	}
	if len(in.Pools) == 0 {
		return in, errors.New("no NodePool may open nodes: there is none, or none is ready")
	}
	if books := p.catalogs.Commitments(ctx, snap, in.Now); books != nil {
		in.Commitments = books.Certain
	}
	return in, nil
}
