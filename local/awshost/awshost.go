// Package awshost is AWS as the local cluster has it: the model of AWS behind an HTTP port, for the controller and for the
// aws command alike, whose machines join the cluster as simulated nodes.
//
// The controller is known by its access key and may do what the policies allow that ship with it; everybody else may do
// everything. Machines are kept in a file, so that they outlive a restart as EC2's would.
package awshost

import (
	"context"
	"encoding/base64"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"karpenter.sh/karpenter/internal/aws/policy"
	"karpenter.sh/karpenter/internal/testing/awsmodel"
	"karpenter.sh/karpenter/local/ebs"
	"karpenter.sh/karpenter/local/join"
	"karpenter.sh/karpenter/local/plane"
)

// options are the program's options.
type options struct {
	port       int
	kubeconfig string // of the kubelets
	cluster    string
	kubernetes string // minor of the cluster
	snapshot   string
	boot       join.Boot
}

// Main is the program.
func Main(args []string) error {
	var o options
	flags := flag.NewFlagSet("aws", flag.ContinueOnError)
	flags.IntVar(&o.port, "port", 0, "port on the loopback address")
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "how kubelets reach the API server")
	flags.StringVar(&o.cluster, "cluster", "", "name of the cluster")
	flags.StringVar(&o.kubernetes, "kubernetes", "", "minor of the cluster, such as 1.36")
	flags.StringVar(&o.snapshot, "snapshot", "", "file in which everything is kept")
	flags.DurationVar(&o.boot.Delay, "boot-delay", 2*time.Second, "time from a machine's start until its node joins")
	flags.DurationVar(&o.boot.Spread, "boot-spread", time.Second, "by how much the boot delay differs at most from machine to machine")
	if err := flags.Parse(args); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return run(ctx, o)
}

func run(ctx context.Context, o options) error {
	rest, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return err
	}
	rest.QPS = -1 // no limit
	client, err := kubernetes.NewForConfig(rest)
	if err != nil {
		return err
	}
	h := &host{ctx: ctx, nodes: join.New(client, slog.New(slog.NewTextHandler(os.Stderr, nil)))}
	identity, err := controller(o.cluster)
	if err != nil {
		return err
	}
	timing, jitter := o.timing()
	h.jitter = jitter
	model, err := awsmodel.New(awsmodel.Config{
		Region:  plane.Region,
		Account: plane.Account,
		Cluster: awsmodel.Cluster{
			Name: o.cluster, Endpoint: rest.Host, CA: base64.StdEncoding.EncodeToString(rest.CAData), Version: o.kubernetes,
			ServiceCIDR: "10.96.0.0/16",
		},
		Timing:     timing,
		Identities: map[string]awsmodel.Identity{plane.ControllerKey: identity, "role": role(o.cluster, identity)},
		Snapshot:   o.snapshot,
		SpreadSpot: true,
		Join:       h.join,
		Gone:       h.gone,
	})
	if err != nil {
		return fmt.Errorf("open AWS: %w", err)
	}
	model.AddRole("AWSServiceRoleForEC2Spot")
	model.AddTrusted("KarpenterControllerRole-"+o.cluster, podIdentity)
	if err := h.forget(model); err != nil {
		return err
	}
	return serve(ctx, model, o.port)
}

// podIdentity lets Pod Identity take a role.
const podIdentity = `{"Statement":[{"Effect":"Allow","Principal":{"Service":"pods.eks.amazonaws.com"},` +
	`"Action":["sts:AssumeRole","sts:TagSession"]}]}`

// serve runs the model and its server until ctx ends.
func serve(ctx context.Context, model *awsmodel.Cloud, port int) error {
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return err
	}
	server := &http.Server{Handler: model.Handler(), ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	ran := make(chan error, 1)
	go func() { ran <- model.Run(ctx) }()
	select {
	case <-ctx.Done():
		server.Close()
		<-served
		if err := <-ran; err != nil && !errors.Is(err, context.Canceled) {
			return err
		}
		return nil
	case err := <-served:
		return err
	case err := <-ran:
		return err
	}
}

// timing spreads the boot delay over the model's phases. What differs from machine to machine comes on top.
func (o options) timing() (awsmodel.Timing, join.Boot) {
	least := o.boot.Delay - o.boot.Spread
	t := awsmodel.Timing{Pending: least / 4, ShuttingDown: 2 * time.Second}
	t.Boot = least - t.Pending
	if t.Pending == 0 {
		t.Pending, t.Boot = -1, -1 // at once
	}
	return t, join.Boot{Delay: o.boot.Spread, Spread: o.boot.Spread}
}

// controller is the controller under the policies that ship with it.
func controller(cluster string) (awsmodel.Identity, error) {
	documents, err := policy.Documents(policy.Names{
		Partition: "aws", Region: plane.Region, AccountID: plane.Account, ClusterName: cluster,
		NodeRole: "KarpenterNodeRole-" + cluster, Queue: cluster,
	})
	if err != nil {
		return awsmodel.Identity{}, err
	}
	identity := awsmodel.Identity{ARN: "arn:aws:sts::" + plane.Account + ":assumed-role/KarpenterControllerRole-" + cluster + "/local"}
	for _, d := range documents {
		identity.Policies = append(identity.Policies, d)
	}
	return identity, nil
}

// role is the controller's role itself, for programs that take it with the token of a service account.
func role(cluster string, controller awsmodel.Identity) awsmodel.Identity {
	return awsmodel.Identity{ARN: "arn:aws:iam::" + plane.Account + ":role/KarpenterControllerRole-" + cluster,
		Policies: controller.Policies}
}

// A host lets machines join and leave the cluster.
type host struct {
	ctx    context.Context // of the program
	nodes  *join.Nodes
	jitter join.Boot
}

func (h *host) join(j awsmodel.Join) {
	m := machine(j)
	time.AfterFunc(h.jitter.Of(j.InstanceID), func() { h.nodes.Booted(h.ctx, m) })
}

// machine says what the machine's kubelet knows.
func machine(j awsmodel.Join) join.Machine {
	return join.Machine{
		Node:        j.NodeName,
		ProviderID:  j.ProviderID,
		Labels:      j.Labels,
		Taints:      j.Taints,
		Capacity:    j.Capacity,
		Allocatable: j.Allocatable,
		InternalIP:  j.PrivateIP,
		Version:     j.KubeletVersion,
		OSImage:     j.OSImage,
		BootID:      j.BootID,
		Drivers:     ebs.OnNode(j.InstanceID, j.Volumes),
	}
}

// gone removes the node of a machine that ceased to exist. A machine that reboots says that it is not ready. A machine that stops or is
// cut off only falls silent: its node stays until it is noticed.
func (h *host) gone(g awsmodel.Gone) {
	switch g.State {
	case "terminated":
		h.nodes.Gone(h.ctx, g.NodeName, g.ProviderID)
	case "rebooting":
		h.nodes.Rebooting(h.ctx, g.NodeName)
	default:
		h.nodes.Silence(h.ctx, g.NodeName)
	}
}

// forget removes nodes whose machine went while this program did not run.
func (h *host) forget(model *awsmodel.Cloud) error {
	there := map[string]bool{}
	for _, m := range model.Machines() {
		there["aws:///"+m.Zone+"/"+m.ID] = m.State != "terminated"
	}
	if err := h.nodes.Forget(h.ctx, func(id string) bool { return there[id] }); err != nil {
		return fmt.Errorf("look for nodes without a machine: %w", err)
	}
	return nil
}
