// Package aws is the cloud provider for Amazon EC2.
//
// This file is its table of contents: Provider has the methods of the contract, and New says which parts they are
// made of. The parts are packages of their own, most of them pure; the loops that keep them up to date are returned by
// Always and Leader and started by who runs the program.
package aws

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"iter"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/aws/ami"
	"karpenter.sh/karpenter/internal/aws/bootstrap"
	"karpenter.sh/karpenter/internal/aws/catalogue"
	"karpenter.sh/karpenter/internal/aws/class"
	"karpenter.sh/karpenter/internal/aws/clusterinfo"
	"karpenter.sh/karpenter/internal/aws/ec2api"
	"karpenter.sh/karpenter/internal/aws/fleet"
	"karpenter.sh/karpenter/internal/aws/inventory"
	"karpenter.sh/karpenter/internal/aws/launch"
	"karpenter.sh/karpenter/internal/aws/launchspec"
	"karpenter.sh/karpenter/internal/aws/mirror"
	"karpenter.sh/karpenter/internal/aws/network"
	"karpenter.sh/karpenter/internal/aws/nodememory"
	"karpenter.sh/karpenter/internal/aws/placement"
	"karpenter.sh/karpenter/internal/aws/price"
	"karpenter.sh/karpenter/internal/aws/profile"
	"karpenter.sh/karpenter/internal/aws/reservation"
	"karpenter.sh/karpenter/internal/aws/shortage"
	"karpenter.sh/karpenter/internal/aws/ttl"
	"karpenter.sh/karpenter/internal/aws/zonalshift"
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

// Provider is the cloud.Provider for EC2.
type Provider struct {
	settings Settings
	in       Input
	clients  *ec2api.Clients
	facts    *clusterinfo.Info

	claims  Objects[*v1.NodeClaim]
	nodes   Objects[*corev1.Node]
	classes *mirror.Mirror[*awsv1.EC2NodeClass]
	pools   *mirror.Mirror[*v1.NodePool]

	inventory    *inventory.Inventory
	prices       *price.Book
	stock        *shortage.List
	memory       *nodememory.Memory
	reservations *reservation.Book
	catalogues   *catalogue.Catalogues
	network      *network.Finder
	images       *ami.Finder
	groups       *placement.Finder
	profiles     *profile.Keeper
	templates    *launch.Keeper
	fleet        *fleet.Fleet
	class        *class.Controller

	launches *launches
	placing  *placing
	shifts   *zonalshift.Watch // nil unless zonal shifts are followed
	listed   remembered
	kubelets kubelets
	refusals *ttl.Map[string, string] // codes with which EC2 refuses the calls of launches at present
}

// New finds out what must be known of the cluster and puts the provider together. It fails when the settings are wrong
// or AWS cannot be reached. ctx ends every call that the provider makes on its own account.
func New(ctx context.Context, s Settings, in Input) (*Provider, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	p := &Provider{settings: s, in: in, claims: in.Claims, nodes: in.Nodes, refusals: ttl.New[string, string](refusalLife)}
	p.clients = ec2api.New(in.Config, in.Version, p.observer())
	p.mirrors()
	p.inventory = inventory.New(p.clients.EC2)
	if err := p.inventory.Check(ctx); err != nil {
		return nil, err
	}
	var err error
	if p.facts, err = clusterinfo.Find(ctx, clusterinfo.Settings{
		Cluster: s.ClusterName, Endpoint: s.ClusterEndpoint, CABundle: s.ClusterCABundle,
		ControlPlane: s.EKSControlPlane, Version: in.KubernetesVersion,
	}, p.clients.EKS, in.Kube); err != nil {
		return nil, err
	}
	warnOfVersion(ctx, p.facts.Version())
	if _, err := p.inventory.Refresh(ctx); err != nil {
		return nil, err
	}
	if s.EnableZonalShift {
		if err := p.watchShifts(ctx); err != nil {
			return nil, err
		}
	}
	p.assemble(ctx)
	return p, nil
}

// CABundle returns the certificate authority of an API client in base64, as nodes want it.
func CABundle(c *rest.Config) (string, error) {
	c = rest.CopyConfig(c)
	if err := rest.LoadTLSFiles(c); err != nil {
		return "", fmt.Errorf("read the API server's certificate authority: %w", err)
	}
	return base64.StdEncoding.EncodeToString(c.CAData), nil
}

func (p *Provider) mirrors() {
	p.classes = mirror.New[*awsv1.EC2NodeClass](p.in.Kube, func() client.ObjectList { return &awsv1.EC2NodeClassList{} })
	p.pools = mirror.New[*v1.NodePool](p.in.Kube, func() client.ObjectList { return &v1.NodePoolList{} })
}

func (p *Provider) assemble(ctx context.Context) {
	s, c := p.settings, p.clients
	region := p.in.Config.Region
	p.launches, p.placing = newLaunches(ctx), newPlacing()
	p.prices = price.NewBook(region, s.IsolatedVPC, c.EC2, c.Pricing)
	p.prices.Zones = p.inventory.Zones
	p.stock = shortage.New()
	p.memory = nodememory.New()
	p.reservations = reservation.NewBook(c.EC2)
	sources := catalogue.Sources{
		Region: region, Settings: s.Settings, Unpriced: s.NodeOverlay, Inventory: p.inventory, Prices: p.prices,
		Stock: p.stock, Memory: p.memory,
		Home: p.home, Shifts: p.shifts,
	}
	if s.ReservedCapacity {
		sources.Reservations = p.reservations
	}
	p.catalogues = catalogue.New(sources)
	p.network = network.NewFinder(c.EC2, p.stock, s.SubnetRefreshInterval, p.facts.IPv6)
	p.images = ami.NewFinder(c.EC2, c.SSM, s.AMIRefreshInterval)
	p.groups = placement.NewFinder(c.EC2)
	p.profiles = profile.NewKeeper(c.IAM, region, s.ClusterName, rand.Text)
	p.templates = launch.NewKeeper(c.EC2, s.ClusterName, p.templateMade)
	p.fleet = fleet.New(ctx, c.EC2, p.network, p.stock, fleet.Settings{
		Cluster: s.ClusterName, Token: rand.Text, Observe: p.batchSent, Failed: p.launchFailed, Zones: p.zonesOf,
	})
	p.class = p.classController()
}

func (p *Provider) classController() *class.Controller {
	validator := class.NewValidator(class.Validator{
		EC2: p.clients.EC2, Profiles: p.profiles, Ensure: p.templates.Ensure, Cluster: p.cluster,
		Catalog: p.catalogues.Catalog, Pools: p.pools, NoDryRun: p.settings.DisableDryRun,
		Hardware: p.settings.Settings, Types: p.inventory.Types,
	})
	return &class.Controller{
		Settings: class.Settings{
			Cluster: p.settings.ClusterName, CABundle: p.settings.ClusterCABundle, Reservations: p.settings.ReservedCapacity,
			Isolated: p.settings.IsolatedVPC, Version: p.facts.Version, Waiting: p.classWaits, Gone: p.classGone,
			Unready: p.classUnready, BootstrapsTwice: p.classBootstrapsTwice, Wrote: p.classes.Note,
		},
		Kube: p.in.Kube, Images: p.images, Networks: p.network, Reservations: p.reservations, Groups: p.groups, Profiles: p.profiles,
		Templates: p.templates, Claims: p.claims, Validator: validator,
	}
}

// cluster is what machines of a family join. AL2023 needs the service range, which EKS may have to be asked for.
func (p *Provider) cluster(ctx context.Context, family string) (launchspec.Cluster, error) {
	c := launchspec.Cluster{
		Cluster: bootstrap.Cluster{Name: p.settings.ClusterName, Endpoint: p.facts.Endpoint, CABundle: p.facts.CABundle()},
		Region:  p.in.Config.Region, DNS: p.facts.DNS(), IPv6: p.facts.IPv6(), Reservations: p.settings.ReservedCapacity,
		Hardware: p.settings.Settings, Type: p.inventory.Type,
	}
	if family != awsv1.AMIFamilyAL2023 {
		return c, nil
	}
	var err error
	c.ServiceCIDR, err = p.facts.ServiceCIDR(ctx)
	return c, err
}

// Name is "aws".
func (p *Provider) Name() string { return "aws" }

// NodeClassKinds is EC2NodeClass.
func (p *Provider) NodeClassKinds() []schema.GroupVersionKind {
	return []schema.GroupVersionKind{awsv1.GroupVersion.WithKind("EC2NodeClass")}
}

// Catalog returns what can be launched for a pool.
func (p *Provider) Catalog(ctx context.Context, pool *v1.NodePool) (*cloud.Catalog, error) {
	ref := pool.Spec.Template.Spec.NodeClassRef
	if ref == nil {
		return nil, &cloud.ClassNotReadyError{Err: fmt.Errorf("pool %s names no node class", pool.Name)}
	}
	nc, err := p.readyClassFor(ctx, ref.Name, pool.Annotations)
	if err != nil {
		return nil, err
	}
	return p.catalogues.Catalog(nc)
}

// catalogFor returns what can be launched of a class for a pool, "" for none, with prices and capacities as the
// cluster's owner knows them.
func (p *Provider) catalogFor(ctx context.Context, nc *awsv1.EC2NodeClass, pool string) (*cloud.Catalog, error) {
	c, err := p.catalogues.Catalog(nc)
	if err != nil || p.in.Corrected == nil {
		return c, err
	}
	return p.in.Corrected(ctx, pool, c), nil
}

// Drifted says why a claim's machine is not what its class asks for.
func (p *Provider) Drifted(ctx context.Context, claim *v1.NodeClaim) (cloud.DriftReason, error) {
	return p.drifted(ctx, claim)
}

// RepairPolicies are the conditions of broken machines. Those beyond Ready come from EKS' node monitoring agent.
func (p *Provider) RepairPolicies() []cloud.RepairPolicy {
	policies := []cloud.RepairPolicy{
		{ConditionType: corev1.NodeReady, Status: corev1.ConditionFalse, Toleration: 30 * time.Minute},
		{ConditionType: corev1.NodeReady, Status: corev1.ConditionUnknown, Toleration: 30 * time.Minute},
		{ConditionType: "AcceleratedHardwareReady", Status: corev1.ConditionFalse, Toleration: 10 * time.Minute},
	}
	for _, t := range []corev1.NodeConditionType{"StorageReady", "NetworkingReady", "KernelReady", "ContainerRuntimeReady"} {
		policies = append(policies, cloud.RepairPolicy{ConditionType: t, Status: corev1.ConditionFalse, Toleration: 30 * time.Minute})
	}
	return policies
}

var _ cloud.Provider = (*Provider)(nil)
