// Package clusterinfo finds out what nodes must know of the cluster: its endpoint, certificate authority, DNS address, service
// range and version.
package clusterinfo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync/atomic"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	ekstypes "github.com/aws/aws-sdk-go-v2/service/eks/types"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"karpenter.sh/karpenter/internal/observe/telemetry"
)

// clusterAPI is the part of EKS that facts come from.
type clusterAPI interface {
	DescribeCluster(context.Context, *eks.DescribeClusterInput, ...func(*eks.Options)) (*eks.DescribeClusterOutput, error)
}

// Settings hold what is known of the cluster, and where to ask for the rest.
type Settings struct {
	Cluster  string
	Endpoint string // "" to ask EKS
	CABundle string // base64
	// ControlPlane says that EKS knows the version; otherwise Version asks the API server.
	ControlPlane bool
	Version      func(context.Context) (string, error)
}

// Info is what is known of the cluster. It may be read concurrently.
type Info struct {
	settings Settings
	api      clusterAPI

	kube client.Reader

	Endpoint string

	dns     atomic.Pointer[string]
	version atomic.Pointer[string]
	gate    chan struct{} // held while EKS is asked for the range
	cidr    atomic.Pointer[string]
}

// Find asks for the facts that must be known at start. It fails when the endpoint or the version cannot be found.
func Find(ctx context.Context, s Settings, api clusterAPI, kube client.Reader) (*Info, error) {
	f := &Info{settings: s, api: api, kube: kube, Endpoint: s.Endpoint, gate: make(chan struct{}, 1)}
	if f.Endpoint == "" {
		c, err := f.describe(ctx)
		if err != nil {
			return nil, fmt.Errorf("find the cluster's endpoint (set CLUSTER_ENDPOINT to do without): %w", err)
		}
		f.Endpoint = aws.ToString(c.Endpoint)
	}
	if err := f.RefreshVersion(ctx); err != nil {
		return nil, err
	}
	f.dns.Store(new(""))
	if err := f.RefreshDNS(ctx); err != nil {
		telemetry.Log(ctx).WarnContext(ctx, "the cluster's DNS address cannot be read; nodes use the default of their "+
			"image until it can", "error", err)
	} else if f.DNS() == "" {
		telemetry.Log(ctx).InfoContext(ctx, "there is no service kube-dns in kube-system yet; nodes use the default of "+
			"their image until there is")
	}
	return f, nil
}

// DNS returns the address of the cluster's DNS service, "" while there is none.
func (f *Info) DNS() string { return *f.dns.Load() }

// RefreshDNS reads the address again, because the service may be created after Karpenter. A known address stays if
// the service is gone or cannot be read.
func (f *Info) RefreshDNS(ctx context.Context) error {
	dns := &corev1.Service{}
	switch err := f.kube.Get(ctx, client.ObjectKey{Namespace: "kube-system", Name: "kube-dns"}, dns); {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("find the cluster's DNS address: %w", err)
	}
	f.dns.Store(&dns.Spec.ClusterIP)
	return nil
}

// CABundle returns the certificate authority that nodes trust, in base64.
func (f *Info) CABundle() string { return f.settings.CABundle }

// IPv6 reports whether pods have IPv6 addresses.
func (f *Info) IPv6() bool {
	ip, err := netip.ParseAddr(f.DNS())
	return err == nil && ip.Is6()
}

// Version returns the cluster's minor version, such as "1.36".
func (f *Info) Version() string { return *f.version.Load() }

// RefreshVersion asks for the version again. It accepts versions that Karpenter does not support; see Supported.
func (f *Info) RefreshVersion(ctx context.Context) error {
	version, err := f.askVersion(ctx)
	if err != nil {
		return fmt.Errorf("find the cluster's version: %w", err)
	}
	version, err = Minor(version)
	if err != nil {
		return err
	}
	f.version.Store(&version)
	return nil
}

// askVersion returns the version from EKS or from the API server, as the settings say.
func (f *Info) askVersion(ctx context.Context) (string, error) {
	if !f.settings.ControlPlane {
		if f.settings.Version == nil {
			return "", errors.New("nothing tells the API server's version")
		}
		return f.settings.Version(ctx)
	}
	c, err := f.describe(ctx)
	if err != nil {
		return "", err
	}
	return aws.ToString(c.Version), nil
}

// Minor cuts a version such as "v1.36.3" or "1.36+" down to "1.36".
func Minor(version string) (string, error) {
	fields := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	if len(fields) < 2 {
		return "", fmt.Errorf("version %q is not understood", version)
	}
	return fields[0] + "." + strings.TrimRight(fields[1], "+"), nil
}

// The Kubernetes minors that Karpenter supports.
const (
	oldestMinor = 26
	newestMinor = 37
)

// Supported reports whether a version such as "1.36" is supported by Karpenter.
func Supported(version string) bool {
	minor := 0
	_, err := fmt.Sscanf(version, "1.%d", &minor)
	return err == nil && minor >= oldestMinor && minor <= newestMinor
}

// ARN returns the cluster's ARN.
func (f *Info) ARN(ctx context.Context) (string, error) {
	c, err := f.describe(ctx)
	if err != nil {
		return "", fmt.Errorf("find the cluster's ARN: %w", err)
	}
	return aws.ToString(c.Arn), nil
}

// ServiceCIDR returns the range of the cluster's service addresses. It is asked for once; callers wait for one call.
func (f *Info) ServiceCIDR(ctx context.Context) (string, error) {
	if known := f.cidr.Load(); known != nil {
		return *known, nil
	}
	select {
	case f.gate <- struct{}{}:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	defer func() { <-f.gate }()
	if known := f.cidr.Load(); known != nil {
		return *known, nil
	}
	c, err := f.describe(ctx)
	if err != nil {
		return "", err
	}
	cidr := ""
	if n := c.KubernetesNetworkConfig; n != nil {
		cidr = cmp.Or(aws.ToString(n.ServiceIpv4Cidr), aws.ToString(n.ServiceIpv6Cidr))
	}
	if cidr == "" {
		return "", errors.New("EKS gives no service CIDR for the cluster")
	}
	f.cidr.Store(&cidr)
	return cidr, nil
}

func (f *Info) describe(ctx context.Context) (*ekstypes.Cluster, error) {
	out, err := f.api.DescribeCluster(ctx, &eks.DescribeClusterInput{Name: aws.String(f.settings.Cluster)})
	if err != nil {
		return nil, err
	}
	return out.Cluster, nil
}
