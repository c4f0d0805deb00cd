package clusterinfo

import (
	"context"
	"errors"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	ekstypes "github.com/aws/aws-sdk-go-v2/service/eks/types"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

func TestVersions(t *testing.T) {
	for in, want := range map[string]string{"v1.36.3": "1.36", "1.36+": "1.36", "1.31": "1.31"} {
		if got, err := Minor(in); got != want || err != nil {
			t.Errorf("Minor(%s) = %s, %v; want %s", in, got, err, want)
		}
	}
	if _, err := Minor("latest"); err == nil {
		t.Error("a version without a minor is understood")
	}
	for version, want := range map[string]bool{"1.25": false, "1.26": true, "1.37": true, "1.38": false, "x": false} {
		if got := Supported(version); got != want {
			t.Errorf("Supported(%s) = %v, want %v", version, got, want)
		}
	}
}

// cluster is an EKS with one cluster.
type cluster struct {
	ekstypes.Cluster
	err   error
	calls int
}

func (c *cluster) DescribeCluster(context.Context, *eks.DescribeClusterInput, ...func(*eks.Options)) (*eks.DescribeClusterOutput, error) {
	c.calls++
	return &eks.DescribeClusterOutput{Cluster: &c.Cluster}, c.err
}

func server(version string, err error) func(context.Context) (string, error) {
	return func(context.Context) (string, error) { return version, err }
}

func dns(ip string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-dns"}, Spec: corev1.ServiceSpec{ClusterIP: ip}}
}

func TestFind(t *testing.T) {
	known := ekstypes.Cluster{Endpoint: aws.String("https://eks"), Version: aws.String("1.35")}
	no := errors.New("no")
	for name, tc := range map[string]struct {
		settings Settings
		eks      cluster
		services []*corev1.Service
		endpoint string
		dns      string
		version  string
		ipv6     bool
		calls    int
		fails    bool
	}{
		"all is given":                    {Settings{Endpoint: "https://x", Version: server("v1.36.1", nil)}, cluster{err: no}, nil, "https://x", "", "1.36", false, 0, false},
		"EKS tells the endpoint":          {Settings{Version: server("1.36+", nil)}, cluster{Cluster: known}, []*corev1.Service{dns("10.0.0.10")}, "https://eks", "10.0.0.10", "1.36", false, 1, false},
		"EKS tells the version":           {Settings{Endpoint: "https://x", ControlPlane: true}, cluster{Cluster: known}, []*corev1.Service{dns("fd00::10")}, "https://x", "fd00::10", "1.35", true, 1, false},
		"nobody tells the endpoint":       {Settings{Version: server("1.36", nil)}, cluster{err: no}, nil, "", "", "", false, 1, true},
		"nobody tells the version":        {Settings{Endpoint: "https://x", Version: server("", no)}, cluster{Cluster: known}, nil, "", "", "", false, 0, true},
		"a version that says nothing":     {Settings{Endpoint: "https://x", Version: server("main", nil)}, cluster{}, nil, "", "", "", false, 0, true},
		"a DNS service without addresses": {Settings{Endpoint: "https://x", Version: server("1.36", nil)}, cluster{}, []*corev1.Service{dns("None")}, "https://x", "None", "1.36", false, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			kube := fake.NewClientBuilder()
			for _, s := range tc.services {
				kube = kube.WithObjects(s)
			}
			f, err := Find(t.Context(), tc.settings, &tc.eks, kube.Build())
			if (err != nil) != tc.fails || tc.eks.calls != tc.calls {
				t.Fatalf("error = %v after %d calls of EKS, want one: %v, after %d", err, tc.eks.calls, tc.fails, tc.calls)
			}
			if err == nil && (f.Endpoint != tc.endpoint || f.DNS() != tc.dns || f.Version() != tc.version || f.IPv6() != tc.ipv6) {
				t.Errorf("endpoint %s, DNS %s, version %s, IPv6 %v", f.Endpoint, f.DNS(), f.Version(), f.IPv6())
			}
		})
	}
}

// A cluster whose DNS service comes after Karpenter gets nodes that know it, and one whose service cannot be read keeps its address.
func TestTheDNSAddressIsAskedForAgain(t *testing.T) {
	kube := fake.NewClientBuilder().Build()
	f, err := Find(t.Context(), Settings{Endpoint: "https://x", Version: server("1.36", nil)}, &cluster{}, kube)
	if err != nil || f.DNS() != "" {
		t.Fatalf("DNS = %q, %v; want none yet", f.DNS(), err)
	}
	service := dns("fd00::10")
	if err := kube.Create(t.Context(), service); err != nil {
		t.Fatal(err)
	}
	if err := f.RefreshDNS(t.Context()); err != nil || f.DNS() != "fd00::10" || !f.IPv6() {
		t.Errorf("DNS = %q, IPv6 %v, %v; want the service's address", f.DNS(), f.IPv6(), err)
	}
	if err := kube.Delete(t.Context(), service); err != nil {
		t.Fatal(err)
	}
	if err := f.RefreshDNS(t.Context()); err != nil || f.DNS() != "fd00::10" {
		t.Errorf("DNS = %q, %v; want the known address", f.DNS(), err)
	}
}

func TestServiceCIDR(t *testing.T) {
	network := func(v4, v6 string) ekstypes.Cluster {
		n := &ekstypes.KubernetesNetworkConfigResponse{}
		if v4 != "" {
			n.ServiceIpv4Cidr = &v4
		}
		if v6 != "" {
			n.ServiceIpv6Cidr = &v6
		}
		return ekstypes.Cluster{KubernetesNetworkConfig: n}
	}
	for name, tc := range map[string]struct {
		eks  cluster
		want string // "" where it fails
	}{
		"IPv4":             {cluster{Cluster: network("10.100.0.0/16", "")}, "10.100.0.0/16"},
		"IPv6":             {cluster{Cluster: network("", "fd00::/108")}, "fd00::/108"},
		"both":             {cluster{Cluster: network("10.100.0.0/16", "fd00::/108")}, "10.100.0.0/16"},
		"none":             {cluster{Cluster: network("", "")}, ""},
		"nothing is told":  {cluster{}, ""},
		"EKS is not there": {cluster{err: errors.New("no")}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := Find(t.Context(), Settings{Endpoint: "https://x", Version: server("1.36", nil)}, &tc.eks, fake.NewClientBuilder().Build())
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if got, err := f.ServiceCIDR(t.Context()); got != tc.want || (err == nil) != (tc.want != "") {
					t.Errorf("range = %q, %v; want %q", got, err, tc.want)
				}
			}
			if want := map[bool]int{true: 1, false: 2}[tc.want != ""]; tc.eks.calls != want {
				t.Errorf("EKS was asked %d times, want %d: what is known stays", tc.eks.calls, want)
			}
		})
	}
}
