// Package kubelet plays the kubelets of all nodes, with KWOK: nodes become ready and renew their leases, pods that were
// bound to them run, the pods of Jobs succeed, and pods that are deleted end. It answers the API server where that asks a
// kubelet, and those who ask what pods and nodes use.
//
// Pods with claims begin to run once package ebs, which drives their volumes, has said that these are attached.
//
// It plays only nodes with the annotation that package join sets. The only nodes that it makes are those of the control
// plane, which are there for the controller: its pods are not played, package runtime runs them.
package kubelet

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
	"sigs.k8s.io/kwok/pkg/apis/internalversion"
	"sigs.k8s.io/kwok/pkg/client/clientset/versioned"
	"sigs.k8s.io/kwok/pkg/config"
	"sigs.k8s.io/kwok/pkg/kwok/controllers"
	"sigs.k8s.io/kwok/pkg/utils/client"

	"karpenter.sh/karpenter/local/devices"
	"karpenter.sh/karpenter/local/ebs"
	"karpenter.sh/karpenter/local/egress"
	"karpenter.sh/karpenter/local/home"
	"karpenter.sh/karpenter/local/join"
	"karpenter.sh/karpenter/local/plane"
	"karpenter.sh/karpenter/local/runtime"
	"karpenter.sh/karpenter/local/usage"
)

// playedRange is where pods that are played have their addresses.
const playedRange = "10.244.0.0/16"

// usagePort is the port at plane.UsageIP.
const usagePort = 443

// parallelism is the number of nodes, of pods and of leases that are written at once.
const parallelism = 8

//go:embed stages/node.yaml
var nodeStages []byte

//go:embed stages/pod.yaml
var podStages []byte

// options are the program's options.
type options struct {
	kubeconfig string
	dir        string // of the cluster's state
	egress     int    // port
	usage      int    // port
	kubernetes string // version of the cluster
}

// Main is the program.
func Main(args []string) error {
	var o options
	flags := flag.NewFlagSet("kubelets", flag.ContinueOnError)
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "how to reach the API server")
	flags.StringVar(&o.dir, "dir", "", "the cluster's folder")
	flags.IntVar(&o.egress, "egress-port", 0, "port on the loopback address, for the API server")
	flags.IntVar(&o.usage, "usage-port", 0, "port on the loopback address, for metrics.k8s.io")
	flags.StringVar(&o.kubernetes, "kubernetes", "", "version of the cluster")
	if err := flags.Parse(args); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return run(ctx, o)
}

// run plays kubelets and runs the controller's pods until ctx ends, and leaves no process behind.
func run(ctx context.Context, o options) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	server, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return err
	}
	server.QPS = -1 // no limit
	client, err := kubernetes.NewForConfig(server)
	if err != nil {
		return err
	}
	dir := home.Dir(o.dir)
	pods, err := runtime.New(server, dir, controlNodes(), ofMachines(os.Environ()), log)
	if err != nil {
		return err
	}
	volumes, err := ebs.New(client, log)
	if err != nil {
		return err
	}
	resolver, err := egress.NewResolver(client, egress.Ranges{Services: plane.ServiceRange, Pods: plane.PodRange}, pods.Addresses.Lookup)
	if err != nil {
		return err
	}
	proxy, asked := egress.New(resolver, log)
	files := egress.Files{Cert: dir.Key("kubelets.crt"), Key: dir.Key("kubelets.key"), Authority: dir.Key("ca.crt")}
	pods.Addresses.Hold(plane.UsageIP, usagePort, o.usage)
	metrics := usage.Options{Port: o.usage, Cert: dir.Key("usage.crt"), Key: dir.Key("usage.key"), Kubeconfig: o.kubeconfig}
	all := []func(context.Context) error{
		func(ctx context.Context) error { return proxy.Serve(ctx, o.egress, files) },
		func(ctx context.Context) error { return serve(ctx, asked, files, pods) },
		func(ctx context.Context) error { resolver.Run(ctx); return nil },
		func(ctx context.Context) error { pods.Run(ctx); return nil },
		func(ctx context.Context) error { volumes.Run(ctx); return nil },
		func(ctx context.Context) error { devices.New(client, log).Run(ctx); return nil },
		func(ctx context.Context) error { return usage.Serve(ctx, client, metrics) },
		func(ctx context.Context) error { return keepControlNodes(ctx, client, o.kubernetes, log) },
		func(ctx context.Context) error { return play(ctx, o.kubeconfig) },
	}
	var running sync.WaitGroup
	for _, part := range all {
		running.Go(func() {
			if err := part(ctx); err != nil {
				stop(err)
			}
		})
	}
	running.Wait()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// ofMachines are the variables by which a machine's processes reach AWS.
func ofMachines(environment []string) []string {
	return slices.DeleteFunc(environment, func(v string) bool { return !strings.HasPrefix(v, "AWS_") })
}

// play plays kubelets until ctx ends.
func play(ctx context.Context, kubeconfig string) error {
	stages, err := loadStages()
	if err != nil {
		return err
	}
	conf, err := clients(kubeconfig)
	if err != nil {
		return err
	}
	conf.Clock = clock.RealClock{}
	conf.LocalStages = stages
	conf.ManageNodesWithAnnotationSelector = join.Annotation + "=" + join.AnnotationValue
	conf.CIDR = playedRange
	conf.NodePlayStageParallelism = parallelism
	conf.PodPlayStageParallelism = parallelism
	conf.NodeLeaseParallelism = parallelism
	conf.PodsOnNodeSyncParallelism = parallelism
	conf.NodeLeaseDurationSeconds = 40
	// One name over all restarts: another would have to wait until the leases of its predecessor run out.
	conf.ID = "karpenter-local"
	controller, err := controllers.NewController(conf)
	if err != nil {
		return err
	}
	if err := controller.Start(ctx); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

func clients(kubeconfig string) (controllers.Config, error) {
	var conf controllers.Config
	set, err := client.NewClientset("", kubeconfig)
	if err != nil {
		return conf, err
	}
	restConfig, err := set.ToRESTConfig()
	if err != nil {
		return conf, err
	}
	if conf.DynamicClient, err = dynamic.NewForConfig(restConfig); err != nil {
		return conf, err
	}
	if conf.RESTMapper, err = set.ToRESTMapper(); err != nil {
		return conf, err
	}
	if conf.RESTClient, err = rest.RESTClientFor(restConfig); err != nil {
		return conf, err
	}
	if conf.TypedClient, err = kubernetes.NewForConfig(restConfig); err != nil {
		return conf, err
	}
	if conf.TypedKwokClient, err = versioned.NewForConfig(restConfig); err != nil {
		return conf, err
	}
	conf.ImpersonatingDynamicClient = set.ToImpersonatingDynamicClient()
	conf.ImpersonatingTypedClient = set.ToImpersonatingTypedClient()
	return conf, nil
}

// loadStages reads the stages by the kind of object that they move on.
func loadStages() (map[internalversion.StageResourceRef][]*internalversion.Stage, error) {
	stages := map[internalversion.StageResourceRef][]*internalversion.Stage{}
	for _, file := range [][]byte{nodeStages, podStages} {
		for document := range bytes.SplitSeq(file, []byte("\n---\n")) {
			stage, err := config.UnmarshalWithType[*internalversion.Stage](document)
			if err != nil {
				return nil, fmt.Errorf("read a stage: %w", err)
			}
			if stage.Spec.ResourceRef.Kind == "Pod" {
				keepOff(stage, runtime.Query(plane.ControlNodes()))
			}
			if stage.Name == startOfPods {
				keepOff(stage, ebs.Query)
			}
			stages[stage.Spec.ResourceRef] = append(stages[stage.Spec.ResourceRef], stage)
		}
	}
	return stages, nil
}

// startOfPods is the stage in which a pod begins to run.
const startOfPods = "pod-running"

// keepOff keeps a stage off what has something that the query, in jq, finds: pods that run, or that wait for their volumes.
func keepOff(stage *internalversion.Stage, query string) {
	stage.Spec.Selector.MatchExpressions = append(stage.Spec.Selector.MatchExpressions, internalversion.MatchExpression{
		JQ: &internalversion.SelectorJQ{Key: query, Operator: internalversion.SelectorOpDoesNotExist},
	})
}
