package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/internal/aws/preflight"
)

// patience is how long one question of preflight may take.
const patience = 15 * time.Second

// runPreflight looks at the account of the caller's credentials, and at the cluster of its kubeconfig.
func runPreflight(ctx context.Context, kubeconfig string, names preflight.Names) ([]preflight.Finding, error) {
	// Who is at the keyboard waits: a private address that is asked from outside never answers.
	within := awshttp.NewBuildableClient().WithTimeout(patience).WithDialerOptions(func(d *net.Dialer) { d.Timeout = patience / 3 })
	account, err := config.LoadDefaultConfig(ctx, config.WithHTTPClient(within))
	if err != nil {
		return nil, fmt.Errorf("load the AWS configuration: %w", err)
	}
	if account.Region == "" {
		return nil, errors.New("the region is not known: set AWS_REGION, or a region in your profile with aws configure")
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	rest, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("find the cluster: %w; say --kubeconfig FILE, or write one with aws eks "+
			"update-kubeconfig --name %s --region %s", err, names.Cluster, account.Region)
	}
	rest.Timeout = patience
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), apiextensionsv1.AddToScheme(scheme),
		v1.AddToScheme(scheme), awsv1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	kube, err := client.New(rest, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("reach the API server: %w", err)
	}
	server, err := discovery.NewDiscoveryClientForConfig(rest)
	if err != nil {
		return nil, fmt.Errorf("reach the API server: %w", err)
	}
	return preflight.Run(ctx, preflight.Input{Names: names, AWS: account, Kube: kube, Version: func(context.Context) (string, error) {
		v, err := server.ServerVersion()
		if err != nil {
			return "", err
		}
		return v.Major + "." + v.Minor, nil
	}}), nil
}
