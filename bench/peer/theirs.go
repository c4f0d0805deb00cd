package main

import (
	"context"
	"fmt"
	"runtime"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/log"
	peerv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/fake"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/injection"
	"sigs.k8s.io/karpenter/pkg/operator/logging"
	"sigs.k8s.io/karpenter/pkg/operator/options"
	"sigs.k8s.io/karpenter/pkg/test"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/bench/peer/sold"
	"karpenter.sh/karpenter/cloud"
)

// A peer is Karpenter's own scheduler, fed with our catalogue.
type peer struct {
	ctx   context.Context
	pool  *peerv1.NodePool
	types []*cloudprovider.InstanceType
	byOf  map[string]*cloud.InstanceType
}

func newPeer(pool *v1.NodePool, catalog *cloud.Catalog) *peer {
	log.SetLogger(logging.NopLogger)
	p := &peer{byOf: map[string]*cloud.InstanceType{}}
	p.ctx = options.ToContext(injection.WithControllerName(context.Background(), "provisioner"), test.Options())
	p.types = sold.Types(catalog)
	for _, it := range catalog.Types {
		p.byOf[it.Name] = it
	}
	p.pool = sold.Pool(pool)
	return p
}

// plan does what a pass of its provisioner does between the pods and the claims.
func (p *peer) plan(pods []*corev1.Pod) (scheduling.Results, error) {
	client, now := fakeclient.NewFakeClient(), clock.RealClock{}
	provider := fake.NewCloudProvider()
	provider.InstanceTypes = p.types
	cluster := state.NewCluster(now, client, provider)
	pools, types := []*peerv1.NodePool{p.pool}, map[string][]*cloudprovider.InstanceType{p.pool.Name: p.types}
	opts := []scheduling.Options{scheduling.DisableReservedCapacityFallback, scheduling.NumConcurrentReconciles(runtime.GOMAXPROCS(0))}
	topology, err := scheduling.NewTopology(p.ctx, client, cluster, nil, pools, types, pods, opts...)
	if err != nil {
		return scheduling.Results{}, fmt.Errorf("its topology: %w", err)
	}
	s := scheduling.NewScheduler(p.ctx, client, pools, cluster, nil, topology, types, nil,
		events.NewRecorder(&record.FakeRecorder{}), now, nil, nil, opts...)
	results, err := s.Solve(p.ctx, pods)
	if err != nil {
		return results, fmt.Errorf("its scheduler: %w", err)
	}
	return results.TruncateInstanceTypes(p.ctx, scheduling.MaxInstanceTypes), nil
}

// bins returns, for each claim, the offerings as which it could be launched as.
func (p *peer) bins(r scheduling.Results) []bin {
	var out []bin
	for _, claim := range r.NewNodeClaims {
		b := bin{pods: len(claim.Pods)}
		for _, it := range claim.InstanceTypeOptions {
			allowed := it.Offerings.Available().Compatible(claim.Requirements)
			for i := range p.byOf[it.Name].Offerings {
				o := &p.byOf[it.Name].Offerings[i]
				if slices.ContainsFunc(allowed, func(x *cloudprovider.Offering) bool {
					return x.Zone() == o.Zone() && x.CapacityType() == o.CapacityType()
				}) {
					b.offerings = append(b.offerings, o)
				}
			}
		}
		out = append(out, b)
	}
	return out
}
