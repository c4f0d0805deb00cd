// Package controller is Karpenter as the local cluster runs it: the same operator and the same AWS provider as in
// cmd/karpenter, linked into the one binary of the local cluster.
//
// Nothing here knows that AWS is a model: that is a matter of the endpoint in the environment.
package controller

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/aws/aws-sdk-go-v2/config"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	"karpenter.sh/karpenter/internal/aws"
	"karpenter.sh/karpenter/internal/kit/setting"
	"karpenter.sh/karpenter/internal/operator"
	"karpenter.sh/karpenter/internal/ui/cli"
	"karpenter.sh/karpenter/local/runtime"
)

// version is what the log and the user agent say.
const version = "local"

// Main is the program.
func Main(args []string) error {
	kubeconfig := ""
	core, provider := operator.DefaultSettings(), aws.DefaultSettings()
	all := append(core.List(), provider.List()...)
	all = append(all, setting.String(&kubeconfig, "kubeconfig", "how to reach the API server"))
	if err := setting.Read("karpenter-local controller", all, args, os.LookupEnv, os.Stderr); err != nil {
		return err
	}
	core.Serve.Host = "127.0.0.1" // it is not for other machines
	if err := listenElsewhere(os.Getenv(runtime.PortsEnv), &core.Serve.MetricsPort, &core.Serve.HealthProbePort, &core.Serve.UIPort,
		&core.Older.Port); err != nil {
		return err
	}
	provider.ReservedCapacity, provider.NodeOverlay, provider.Spot.Types = core.Gates.ReservedCapacity,
		core.Gates.NodeOverlay, core.Scheduling.SpotTypes
	provider.Spot.InterruptionCost = core.Scheduling.InterruptionCost
	kube, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return operator.Run(ctx, operator.Options{
		REST:     kube,
		Settings: core,
		Cloud: func(ctx context.Context, in operator.CloudInput) (*operator.Cloud, error) {
			return open(ctx, in, provider)
		},
		NodeClasses: operator.NodeClasses{Group: awsv1.Group, Label: awsv1.LabelNodeClass, AddToScheme: awsv1.AddToScheme},
		Version:     version,
		Preview:     cli.Preview,
	})
}

// listenElsewhere moves ports to where they are on this machine, on which several pods have the same ones.
func listenElsewhere(mapping string, ports ...*int) error {
	there := map[int]int{}
	for pair := range strings.SplitSeq(mapping, ",") {
		if pair == "" {
			continue
		}
		var port, at int
		if _, err := fmt.Sscanf(pair, "%d:%d", &port, &at); err != nil {
			return fmt.Errorf("%s: %q is no pair of ports: %w", runtime.PortsEnv, pair, err)
		}
		there[port] = at
	}
	for _, port := range ports {
		if at, moved := there[*port]; moved {
			*port = at
		}
	}
	return nil
}

// open makes the AWS provider.
func open(ctx context.Context, in operator.CloudInput, s aws.Settings) (*operator.Cloud, error) {
	if s.ClusterCABundle == "" {
		bundle, err := aws.CABundle(in.REST)
		if err != nil {
			return nil, err
		}
		s.ClusterCABundle = bundle
	}
	account, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return nil, fmt.Errorf("find out how to reach AWS: %w", err)
	}
	p, err := aws.New(ctx, s, aws.Input{
		Config: account, Kube: in.Client, Claims: in.Claims, Nodes: in.Nodes, Metrics: in.Metrics, Events: in.Events,
		Corrected:         in.Corrected,
		KubernetesVersion: func(context.Context) (string, error) { return serverVersion(in.REST) },
		Version:           version,
	})
	if err != nil {
		return nil, err
	}
	return &operator.Cloud{Provider: p, Labels: awsv1.Labels(), Always: p.Always(), Leader: p.Leader(),
		Gauges: p.Gauges(), Ears: p.Ears()}, nil
}

func serverVersion(kube *rest.Config) (string, error) {
	client, err := discovery.NewDiscoveryClientForConfig(kube)
	if err != nil {
		return "", err
	}
	v, err := client.ServerVersion()
	if err != nil {
		return "", fmt.Errorf("ask for the cluster's version: %w", err)
	}
	return v.Major + "." + v.Minor, nil
}
