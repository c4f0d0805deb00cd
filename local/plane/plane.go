// Package plane says with which arguments the programs of a cluster are started. It decides; package supervise starts
// them.
package plane

import (
	"cmp"
	"fmt"
	"net/netip"
	"time"

	"karpenter.sh/karpenter/local/home"
	"karpenter.sh/karpenter/local/minor"
)

// Names of the programs, in the order in which they are started. They stop in the opposite order.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	Scheduler         = "kube-scheduler"
	ControllerManager = "kube-controller-manager"
	Kubelets          = "kubelets"
	AWS               = "aws"
)

// Port names. Every program that listens does so on the loopback address only.
const (
	APIPort               = "api"
	EtcdPort              = "etcd"
	EtcdPeerPort          = "etcd-peer"
	SchedulerPort         = "kube-scheduler"
	ControllerManagerPort = "kube-controller-manager"
	AWSPort               = "aws"
	EgressPort            = "egress"
	UsagePort             = "usage"
)

// PortNames lists every port that a cluster needs.
func PortNames() []string {
	return []string{APIPort, EtcdPort, EtcdPeerPort, SchedulerPort, ControllerManagerPort, AWSPort, EgressPort, UsagePort}
}

// Controller is what pods of the controller's image run. It is no program of the plane: it comes with the chart.
const Controller = "controller"

// ServiceRange is where cluster IPs come from, and PodRange where pods have theirs.
var (
	ServiceRange = netip.MustParsePrefix("10.96.0.0/16")
	PodRange     = netip.MustParsePrefix("10.244.0.0/15")
)

// ControlNodes are the nodes that the controller's pods run on, each in a zone of its own.
func ControlNodes() []string { return []string{"control-a", "control-b"} }

const (
	// ServiceIP, the first address of ServiceRange, is the API server's.
	ServiceIP = "10.96.0.1"
	// UsageIP, the last address of PodRange but one, is where metrics.k8s.io is.
	UsageIP = "10.245.255.254"
	// UsageService is the Service before it, by the name that it has elsewhere.
	UsageService = "metrics-server"
	// FrontProxy is the name in the certificate by which the API server speaks for others.
	FrontProxy = "front-proxy"
	// Namespace is where the controller is installed.
	Namespace = "kube-system"
	// ServiceAccount is the controller's.
	ServiceAccount = "karpenter"
	// Lease is by which one replica of the controller leads.
	Lease = "karpenter-leader-election"
	// ClusterName is the name of a cluster that was given no other.
	ClusterName = "local"
	// Region and Account are where the cluster is.
	Region  = "us-east-1"
	Account = "123456789012"
	// ControllerKey is the controller's access key, which is allowed no more than its policies; PeopleKey is everybody
	// else's.
	ControllerKey = "AKIACONTROLLER"
	PeopleKey     = "AKIAPEOPLE"
)

// A Plane is one cluster.
type Plane struct {
	Dir      home.Dir
	Ports    map[string]int
	Settings home.Settings
	Name     string // of the cluster; "" for ClusterName
	// Kubernetes is the executable of API server, scheduler and controller manager.
	Kubernetes minor.Executable
}

// Executable is the path of the executable that a program is in, "" for this process's.
func (p Plane) Executable(program string) string {
	switch program {
	case APIServer, Scheduler, ControllerManager:
		return p.Kubernetes.Path
	}
	return ""
}

func (p Plane) url(port string) string { return fmt.Sprintf("https://127.0.0.1:%d", p.Ports[port]) }

// Server is the URL of the API server.
func (p Plane) Server() string { return p.url(APIPort) }

// Args returns the arguments of one program.
func (p Plane) Args(program string) []string {
	switch program {
	case Etcd:
		return p.etcd()
	case APIServer:
		return p.apiServer()
	case Scheduler:
		return p.scheduler()
	case ControllerManager:
		return p.controllerManager()
	case Kubelets:
		return []string{
			"--kubeconfig=" + p.Dir.KubeconfigOf(Kubelets),
			"--dir=" + string(p.Dir),
			"--kubernetes=" + p.Kubernetes.Version,
			fmt.Sprintf("--egress-port=%d", p.Ports[EgressPort]),
			fmt.Sprintf("--usage-port=%d", p.Ports[UsagePort]),
		}
	case AWS:
		return p.aws()
	}
	return nil
}

// EgressFile says how the API server reaches what is inside of the cluster.
const EgressFile = "egress.yaml"

// Egress is the content of EgressFile: through the proxy of the kubelets, which know where everything is.
func (p Plane) Egress() string {
	return fmt.Sprintf(`apiVersion: apiserver.k8s.io/v1beta1
kind: EgressSelectorConfiguration
egressSelections:
- name: cluster
  connection:
    proxyProtocol: HTTPConnect
    transport:
      tcp:
        url: %s
        tlsConfig:
          caBundle: %q
          clientCert: %q
          clientKey: %q
`, p.url(EgressPort), p.Dir.Key("ca.crt"), p.Dir.Key("egress.crt"), p.Dir.Key("egress.key"))
}

// etcd does not wait for the disk: a power cut may cost the cluster, which is fine on a laptop, and everything is
// several times faster.
func (p Plane) etcd() []string {
	return []string{
		"--name=local",
		"--data-dir=" + p.Dir.Etcd(),
		"--unsafe-no-fsync",
		"--log-level=warn",
		"--listen-client-urls=" + p.url(EtcdPort),
		"--advertise-client-urls=" + p.url(EtcdPort),
		"--listen-peer-urls=" + p.url(EtcdPeerPort),
		"--initial-advertise-peer-urls=" + p.url(EtcdPeerPort),
		"--initial-cluster=local=" + p.url(EtcdPeerPort),
		"--client-cert-auth",
		"--trusted-ca-file=" + p.Dir.Key("ca.crt"),
		"--cert-file=" + p.Dir.Key("etcd.crt"),
		"--key-file=" + p.Dir.Key("etcd.key"),
		"--peer-client-cert-auth",
		"--peer-trusted-ca-file=" + p.Dir.Key("ca.crt"),
		"--peer-cert-file=" + p.Dir.Key("etcd.crt"),
		"--peer-key-file=" + p.Dir.Key("etcd.key"),
		"--snapshot-count=5000",
	}
}

func (p Plane) apiServer() []string {
	return []string{
		"--etcd-servers=" + p.url(EtcdPort),
		"--etcd-cafile=" + p.Dir.Key("ca.crt"),
		"--etcd-certfile=" + p.Dir.Key("etcd-client.crt"),
		"--etcd-keyfile=" + p.Dir.Key("etcd-client.key"),
		"--bind-address=127.0.0.1",
		"--advertise-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", p.Ports[APIPort]),
		"--tls-cert-file=" + p.Dir.Key("api.crt"),
		"--tls-private-key-file=" + p.Dir.Key("api.key"),
		"--client-ca-file=" + p.Dir.Key("ca.crt"),
		"--requestheader-client-ca-file=" + p.Dir.FrontProxyKey("ca.crt"),
		"--requestheader-allowed-names=" + FrontProxy,
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-uid-headers=X-Remote-Uid",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + p.Dir.FrontProxyKey("client.crt"),
		"--proxy-client-key-file=" + p.Dir.FrontProxyKey("client.key"),
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + p.Dir.Key("tokens.key"),
		"--service-account-signing-key-file=" + p.Dir.Key("tokens.key"),
		"--service-cluster-ip-range=" + ServiceRange.String(),
		"--allow-privileged",
		"--egress-selector-config-file=" + p.Dir.File(EgressFile),
		"--endpoint-reconciler-type=none", // a loopback address may not stand in an EndpointSlice
		"--shutdown-delay-duration=0s",
		"--shutdown-watch-termination-grace-period=0s",
	}
}

func (p Plane) scheduler() []string {
	return append(p.component(Scheduler, SchedulerPort), "--kube-api-qps=500", "--kube-api-burst=1000")
}

// controllerManager runs every controller that does not need a cloud: those that do skip themselves up to Kubernetes 1.36, and 1.37 has no
// more of them. Each acts under its own service account, as in a real cluster.
func (p Plane) controllerManager() []string {
	return append(p.component(ControllerManager, ControllerManagerPort),
		"--kube-api-qps=500", "--kube-api-burst=1000",
		"--controllers=*,-node-ipam-controller",
		"--use-service-account-credentials",
		"--horizontal-pod-autoscaler-sync-period=5s", // users do not like to wait 15 s for nothing
		"--root-ca-file="+p.Dir.Key("ca.crt"),
		"--service-account-private-key-file="+p.Dir.Key("tokens.key"),
		"--cluster-signing-cert-file="+p.Dir.Key("ca.crt"),
		"--cluster-signing-key-file="+p.Dir.Key("ca.key"),
		"--cluster-name="+cmp.Or(p.Name, ClusterName),
	)
}

// component returns what scheduler and controller-manager have in common.
func (p Plane) component(name, port string) []string {
	kubeconfig := p.Dir.KubeconfigOf(name)
	return []string{
		"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", p.Ports[port]),
		"--tls-cert-file=" + p.Dir.Key("api.crt"),
		"--tls-private-key-file=" + p.Dir.Key("api.key"),
		"--leader-elect=false",
		"--profiling=false",
	}
}

func (p Plane) aws() []string {
	return []string{
		fmt.Sprintf("--port=%d", p.Ports[AWSPort]),
		"--kubeconfig=" + p.Dir.KubeconfigOf(Kubelets),
		"--cluster=" + cmp.Or(p.Name, ClusterName),
		"--kubernetes=" + minor.Minor(p.Kubernetes.Version),
		"--snapshot=" + p.Dir.File("aws.json"),
		fmt.Sprintf("--boot-delay=%s", p.Settings.BootDelay),
		fmt.Sprintf("--boot-spread=%s", p.Settings.BootSpread),
	}
}

// AWSEndpoint is where AWS answers. It does not encrypt: real credentials never go there.
func (p Plane) AWSEndpoint() string { return fmt.Sprintf("http://127.0.0.1:%d", p.Ports[AWSPort]) }

// AWSEnv is the environment in which AWS's SDKs and command line tool reach AWS with an access key.
func (p Plane) AWSEnv(key string) []string {
	return []string{
		"AWS_ENDPOINT_URL=" + p.AWSEndpoint(),
		"AWS_REGION=" + Region,
		"AWS_DEFAULT_REGION=" + Region, // what older releases of the aws command read
		"AWS_ACCESS_KEY_ID=" + key,
		"AWS_SECRET_ACCESS_KEY=local",
		"AWS_SESSION_TOKEN=",
		"AWS_PROFILE=",
		"AWS_CONFIG_FILE=/dev/null",
		"AWS_SHARED_CREDENTIALS_FILE=/dev/null",
	}
}

// Env returns what a program finds in its environment besides ours.
func (p Plane) Env(program string) []string {
	switch program {
	case APIServer, Etcd:
		return []string{"GOGC=300"} // a burst of pods is mostly theirs to work on, and a laptop has more memory than cores
	case Kubelets:
		return p.AWSEnv(ControllerKey) // by it, the machines of the control plane know AWS
	}
	return nil
}

// StopWithin is how long a program may take to end by itself. State is in etcd and written at once, so nothing is lost
// when one is ended the hard way.
func StopWithin(program string) time.Duration {
	if program == Kubelets {
		return 10 * time.Second // the controller gives its lease back
	}
	return 3 * time.Second
}
