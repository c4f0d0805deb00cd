// Package aws is the cloud provider for Amazon EC2.
//
// Provider has the methods of the contract cloud.Provider. New builds its parts from top to bottom, and each part knows
// only the parts above it: environment (settings, cluster, account), classes, market, machines. Always and Leader
// return the loops that keep the parts up to date; the program that builds the provider also starts them.
//
// Terms:
//
//	class      an EC2NodeClass; its status holds what its selectors found (package class)
//	offering   one way to buy a type: zone, capacity type, perhaps a reservation or partition (package offer)
//	catalogue  all types with their offerings that a class can launch (package catalogue)
//	choice     the types and offerings that one launch names, order: the CreateFleet call for it (package fleet)
//	dry        nothing of what a launch named is to be had
//	young      launched in the last minutes, so that EC2 may not show it yet
//	latched    a machine without a claim that is kept until an operator decides
//	shifted    in a zone from which ARC shifts traffic away (package zonalshift)
//	share      the largest part of a pool's spot machines that one type in one zone may be (package spotshare)
//
// Files, in the order in which to read them: provider.go, settings.go and open.go; classes.go and kubelet.go (classes);
// market.go, measure.go and metrics.go (market); launch.go, placing.go and spotlist.go (launching); machines.go,
// drift.go, tagging.go, inherit.go and demotion.go (machines that run); interruption.go, repair.go and shifting.go
// (what AWS announces); loops.go and report.go.
//
// Packages without a call to AWS, most of them pure: hardware (capacity and labels of a type), offer, catalogue,
// bootstrap (user data), launchspec, formula, shortage, spotrisk, spotshare, nodememory. Packages that call AWS for one
// subject: ami, network, placement, profile, reservation, inventory, price, launch (templates), fleet, interrupt, bought,
// clusterinfo, zonalshift. ec2api translates errors. Commands use preflight, nodegroup, policy and offline.
package aws

import (
	"context"
	"encoding/base64"
	"fmt"
	"iter"

	"github.com/aws/aws-sdk-go-v2/aws"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/api/karpenter/v1alpha1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/aws/bought"
	"karpenter.sh/karpenter/internal/aws/clusterinfo"
	"karpenter.sh/karpenter/internal/aws/ec2api"
	"karpenter.sh/karpenter/internal/aws/inventory"
	"karpenter.sh/karpenter/internal/aws/price"
	"karpenter.sh/karpenter/internal/aws/shortage"
	"karpenter.sh/karpenter/internal/aws/ttl"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// Input is what the provider works with.
type Input struct {
	Config  aws.Config       // region, credentials, endpoints
	Kube    client.WithWatch // uncached; knows our kinds
	Claims  Objects[*v1.NodeClaim]
	Nodes   Objects[*corev1.Node]
	Metrics *telemetry.Metrics
	Events  *telemetry.Events
	// KubernetesVersion asks the API server; not needed with EKSControlPlane.
	KubernetesVersion func(context.Context) (string, error)
	Version           string // of Karpenter
	// Corrected applies what the cluster's owner knows better to a catalogue, for machines of a pool; nil changes nothing.
	Corrected func(ctx context.Context, pool string, c *cloud.Catalog) *cloud.Catalog
}

// Objects are the cluster's objects of one kind, as the caller of the provider follows them. They are not changed.
type Objects[T any] interface {
	Get(name string) (T, bool)
	All() []T          // sorted by name
	Each() iter.Seq[T] // in no order
	// WaitForSync blocks until all are known. It returns false if ctx ends first.
	WaitForSync(ctx context.Context) bool
	// Subscribe has f called with the name of each object that comes, changes or goes, until ctx ends.
	Subscribe(ctx context.Context, f func(name string))
}

// Provider is the cloud.Provider for EC2. Each part knows only the parts above it.
type Provider struct {
	env      *environment // settings, cluster and account
	classes  *classes     // EC2NodeClasses and what they select
	market   *market      // what can be bought, and at what price
	machines *machines    // what was bought
}

// An environment is what every part of the provider works with.
type environment struct {
	settings  Settings
	in        Input
	clients   *ec2api.Clients
	facts     *clusterinfo.Info // about the cluster: endpoint, version, DNS
	claims    Objects[*v1.NodeClaim]
	nodes     Objects[*corev1.Node]
	inventory *inventory.Inventory     // the types that EC2 sells in the region
	refusals  *ttl.Map[string, string] // codes with which EC2 refuses the calls of launches at present
}

// New finds out what must be known of the cluster and puts the provider together. It fails when the settings are wrong
// or AWS cannot be reached. ctx ends every call that the provider makes on its own account.
func New(ctx context.Context, s Settings, in Input) (*Provider, error) {
	env, err := newEnvironment(ctx, s, in)
	if err != nil {
		return nil, err
	}
	stock := shortage.New() // launches write it; subnets and catalogues read it
	classes := newClasses(env, stock)
	launches := newLaunches(ctx)
	placing := newPlacing(env, launches)
	market, err := newMarket(ctx, env, classes, stock, placing)
	if err != nil {
		return nil, err
	}
	classes.class = classController(env, classes, market)
	machines := newMachines(ctx, env, classes, market, launches, placing)
	return &Provider{env: env, classes: classes, market: market, machines: machines}, nil
}

// newEnvironment asks AWS and the cluster for what does not change while the process runs.
func newEnvironment(ctx context.Context, s Settings, in Input) (*environment, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	e := &environment{settings: s, in: in, claims: in.Claims, nodes: in.Nodes, refusals: ttl.New[string, string](refusalLife)}
	e.clients = ec2api.New(in.Config, in.Version, e.observer())
	e.inventory = inventory.New(e.clients.EC2)
	if err := e.inventory.Check(ctx); err != nil {
		return nil, err
	}
	var err error
	if e.facts, err = clusterinfo.Find(ctx, clusterinfo.Settings{
		Cluster: s.ClusterName, Endpoint: s.ClusterEndpoint, CABundle: s.ClusterCABundle,
		ControlPlane: s.EKSControlPlane, Version: in.KubernetesVersion,
	}, e.clients.EKS, in.Kube); err != nil {
		return nil, err
	}
	warnOfVersion(ctx, e.facts.Version())
	if len(s.Gates.Unknown) > 0 {
		telemetry.Log(ctx).Warn("provider feature gates without effect: this version does not have them; remove them from "+
			"aws-feature-gates", "gates", s.Gates.Unknown)
	}
	_, err = e.inventory.Refresh(ctx)
	return e, err
}

// CABundle returns the certificate authority of an API client in base64, as nodes want it.
func CABundle(c *rest.Config) (string, error) {
	c = rest.CopyConfig(c)
	if err := rest.LoadTLSFiles(c); err != nil {
		return "", fmt.Errorf("read the API server's certificate authority: %w", err)
	}
	return base64.StdEncoding.EncodeToString(c.CAData), nil
}

// Name returns "aws".
func (p *Provider) Name() string { return "aws" }

// NodeClassKinds returns EC2NodeClass.
func (p *Provider) NodeClassKinds() []schema.GroupVersionKind {
	return []schema.GroupVersionKind{awsv1.GroupVersion.WithKind("EC2NodeClass")}
}

// Catalog returns what can be launched for a pool.
func (p *Provider) Catalog(ctx context.Context, pool *v1.NodePool) (*cloud.Catalog, error) {
	return p.market.Catalog(ctx, pool)
}

// Launch starts one machine for a claim.
func (p *Provider) Launch(ctx context.Context, claim *v1.NodeClaim) (cloud.Machine, error) {
	return p.machines.Launch(ctx, claim)
}

// Get returns a machine that runs.
func (p *Provider) Get(ctx context.Context, providerID string) (cloud.Machine, error) {
	return p.machines.Get(ctx, providerID)
}

// List returns the machines that Karpenter launched for the cluster.
func (p *Provider) List(ctx context.Context) ([]cloud.Machine, error) { return p.machines.List(ctx) }

// Terminate begins to stop a machine.
func (p *Provider) Terminate(ctx context.Context, providerID string) error {
	return p.machines.Terminate(ctx, providerID)
}

// SetLatch tags a machine without a claim so that it is kept, or takes the tag off.
func (p *Provider) SetLatch(ctx context.Context, providerID string, latched bool) error {
	return p.machines.SetLatch(ctx, providerID, latched)
}

// Inherited returns the machines that an older Karpenter launched and that have no claim.
func (p *Provider) Inherited(ctx context.Context) ([]cloud.Machine, error) {
	return p.machines.Inherited(ctx)
}

// Adopt makes a machine that an older Karpenter launched the machine of a claim.
func (p *Provider) Adopt(ctx context.Context, claim *v1.NodeClaim, providerID string) (cloud.Machine, error) {
	return p.machines.Adopt(ctx, claim, providerID)
}

// Commitments returns the Reserved Instances and Savings Plans of the account.
func (p *Provider) Commitments(ctx context.Context) ([]v1alpha1.CommitmentDiscountSpec, error) {
	clients, region := p.env.clients, p.env.in.Config.Region
	return bought.Account{EC2: clients.EC2, Plans: clients.Plans, Region: region, Currency: price.Currency(region)}.Read(ctx)
}

// Drifted returns why a claim's machine is not what its class asks for, "" if it is.
func (p *Provider) Drifted(ctx context.Context, claim *v1.NodeClaim) (cloud.DriftReason, error) {
	return p.machines.drifted(ctx, claim)
}

var (
	_ cloud.Provider         = (*Provider)(nil)
	_ cloud.CommitmentSource = (*Provider)(nil)
	_ cloud.Rebooter         = (*Provider)(nil)
)
