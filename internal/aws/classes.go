package aws

import (
	"context"
	"crypto/rand"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/aws/ami"
	"karpenter.sh/karpenter/internal/aws/bootstrap"
	"karpenter.sh/karpenter/internal/aws/class"
	"karpenter.sh/karpenter/internal/aws/launch"
	"karpenter.sh/karpenter/internal/aws/launchspec"
	"karpenter.sh/karpenter/internal/aws/mirror"
	"karpenter.sh/karpenter/internal/aws/network"
	"karpenter.sh/karpenter/internal/aws/placement"
	"karpenter.sh/karpenter/internal/aws/profile"
	"karpenter.sh/karpenter/internal/aws/shortage"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// classes has copies of the EC2NodeClasses and NodePools of the cluster, and what finds the AWS resources that classes select: images,
// subnets, security groups, placement groups, instance profiles.
type classes struct {
	env       *environment
	objects   *mirror.Mirror[*awsv1.EC2NodeClass]
	pools     *mirror.Mirror[*v1.NodePool]
	images    *ami.Finder
	network   *network.Finder
	groups    *placement.Finder
	profiles  *profile.Keeper
	templates *launch.Keeper // makes launch templates, and deletes those that are no longer used
	class     *class.Controller
	variants  variants
}

// newClasses makes the parts from settings and AWS clients. stock is the list of what AWS could not deliver lately. The controller of
// classes is made later, by classController.
func newClasses(env *environment, stock *shortage.List) *classes {
	s, api, kube := env.settings, env.clients, env.in.Kube
	c := &classes{
		env:     env,
		objects: mirror.New[*awsv1.EC2NodeClass](kube, func() client.ObjectList { return &awsv1.EC2NodeClassList{} }),
		pools:   mirror.New[*v1.NodePool](kube, func() client.ObjectList { return &v1.NodePoolList{} }),
		images:  ami.NewFinder(api.EC2, api.SSM, s.AMIRefreshInterval),
		network: network.NewFinder(api.EC2, stock,
			network.Refresh{Subnets: s.SubnetRefreshInterval, Groups: s.GroupRefreshInterval}, env.facts.IPv6),
		groups:   placement.NewFinder(api.EC2),
		profiles: profile.NewKeeper(api.IAM, env.in.Config.Region, s.ClusterName, rand.Text),
	}
	c.templates = launch.NewKeeper(api.EC2, s.ClusterName, c.templateMade)
	return c
}

// classController returns the controller that keeps the status of EC2NodeClasses. Its validator also checks classes against the instance
// types of the market.
func classController(env *environment, c *classes, k *market) *class.Controller {
	s := env.settings
	validator := class.NewValidator(class.Validator{
		EC2: env.clients.EC2, Profiles: c.profiles, Ensure: c.templates.Ensure, Cluster: c.cluster,
		Catalog: k.catalogues.Catalog, Pools: c.pools, NoDryRun: s.DisableDryRun,
		Hardware: s.Settings, Types: env.inventory.Types,
	})
	return &class.Controller{
		Settings: class.Settings{
			Cluster: s.ClusterName, CABundle: s.ClusterCABundle, Reservations: s.ReservedCapacity,
			Isolated: s.IsolatedVPC, Version: env.facts.Version, Waiting: c.classWaits, Gone: c.classGone,
			Unready: c.classUnready, BootstrapsTwice: c.classBootstrapsTwice, Wrote: c.objects.Note,
		},
		Kube: env.in.Kube, Images: c.images, Networks: c.network, Reservations: k.reservations, Groups: c.groups,
		Profiles: c.profiles, Templates: c.templates, Claims: env.claims, Validator: validator,
	}
}

// cluster returns what a machine of a family must know to join the cluster. Only for AL2023 it adds the range of service addresses, for
// which it may have to call EKS.
func (c *classes) cluster(ctx context.Context, family string) (launchspec.Cluster, error) {
	out := launchspec.Cluster{
		Cluster: bootstrap.Cluster{Name: c.env.settings.ClusterName, Endpoint: c.env.facts.Endpoint, CABundle: c.env.facts.CABundle()},
		Region:  c.env.in.Config.Region, DNS: c.env.facts.DNS(), IPv6: c.env.facts.IPv6(), Reservations: c.env.settings.ReservedCapacity,
		Hardware: c.env.settings.Settings, Type: c.env.inventory.Type,
	}
	if family != awsv1.AMIFamilyAL2023 {
		return out, nil
	}
	var err error
	out.ServiceCIDR, err = c.env.facts.ServiceCIDR(ctx)
	return out, err
}
