package main

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/core/engine"
	"karpenter.sh/karpenter/internal/testing/benchload"
)

// A planner is this project's engine. It has read the catalogue, as it has when pods come.
type planner struct {
	engine   *engine.Engine
	pools    []engine.Pool
	byName   map[string]*cloud.InstanceType
	settings engine.Settings
}

func newPlanner(pool *v1.NodePool, catalog *cloud.Catalog) *planner {
	p := &planner{engine: engine.New(), pools: []engine.Pool{{Pool: pool, Catalog: catalog}}, byName: map[string]*cloud.InstanceType{}}
	for _, it := range catalog.Types {
		p.byName[it.Name] = it
	}
	p.engine.Plan(engine.Question{Snap: cluster.NewStore().Snapshot(), Pools: p.pools, Now: benchload.Now})
	return p
}

// plan does what a pass of our provisioner does between the pods and the claims.
func (p *planner) plan(pods []*corev1.Pod) *engine.Plan {
	store := cluster.NewStore()
	store.Update(func(d *cluster.Draft) {
		for _, pod := range pods {
			d.PutPod(pod)
		}
		d.Synced(true)
	})
	snap := store.Snapshot()
	return p.engine.Plan(engine.Question{Snap: snap, Pools: p.pools, Pods: snap.Provisionable(), Settings: p.settings, Now: benchload.Now})
}

// bins returns, for each claim, the offerings as which it could be launched as.
func (p *planner) bins(plan *engine.Plan) []bin {
	var out []bin
	for i := range plan.Open {
		open := &plan.Open[i]
		b := bin{pods: len(open.Pods)}
		for _, name := range open.Types {
			it := p.byName[name]
			for j := range it.Offerings {
				if o := &it.Offerings[j]; o.Available && slices.Contains(open.Zones, o.Zone()) &&
					slices.Contains(open.CapacityTypes, o.CapacityType()) {
					b.offerings = append(b.offerings, o)
				}
			}
		}
		out = append(out, b)
	}
	return out
}
