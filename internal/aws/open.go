package aws

import (
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// Surroundings are what a program has at hand that runs the provider.
type Surroundings struct {
	REST    *rest.Config
	Client  client.WithWatch // uncached; knows our kinds
	Claims  Objects[*v1.NodeClaim]
	Nodes   Objects[*corev1.Node]
	Metrics *telemetry.Metrics
	Events  *telemetry.Events
	Version string // of Karpenter
	// Corrected is that of Input.
	Corrected func(ctx context.Context, pool string, c *cloud.Catalog) *cloud.Catalog
}

// Open is New with the default AWS configuration: environment, shared files, web identity, pod identity, the
// instance's role. Endpoints from the environment are used.
func Open(ctx context.Context, s Settings, in Surroundings) (*Provider, error) {
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return nil, fmt.Errorf("load the AWS configuration: %w", err)
	}
	if cfg.Region == "" {
		out, err := imds.NewFromConfig(cfg).GetRegion(ctx, &imds.GetRegionInput{})
		if err != nil {
			return nil, errors.Join(errors.New("the region is not known: set AWS_REGION"), err)
		}
		cfg.Region = out.Region
	}
	if s.ClusterCABundle == "" {
		if s.ClusterCABundle, err = CABundle(in.REST); err != nil {
			return nil, err
		}
	}
	server, err := discovery.NewDiscoveryClientForConfig(in.REST)
	if err != nil {
		return nil, fmt.Errorf("reach the API server: %w", err)
	}
	return New(ctx, s, Input{
		Config: cfg, Kube: in.Client, Claims: in.Claims, Nodes: in.Nodes, Metrics: in.Metrics, Events: in.Events,
		Version: in.Version, Corrected: in.Corrected,
		KubernetesVersion: func(context.Context) (string, error) {
			v, err := server.ServerVersion()
			if err != nil {
				return "", err
			}
			return v.Major + "." + v.Minor, nil
		},
	})
}
