// Package kubelet plays the kubelets of all nodes, with KWOK: nodes become ready and renew their leases, pods that were
// bound to them run, the pods of Jobs succeed, and pods that are deleted end.
//
// It plays only nodes with the annotation that package join sets. It never makes or removes a node.
package kubelet

import (
	"bytes"
	"context"
	_ "embed"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/kwok/pkg/apis/internalversion"
	"sigs.k8s.io/kwok/pkg/client/clientset/versioned"
	"sigs.k8s.io/kwok/pkg/config"
	"sigs.k8s.io/kwok/pkg/kwok/controllers"
	"sigs.k8s.io/kwok/pkg/utils/client"

	"karpenter.sh/karpenter/local/join"
)

// parallelism is the number of nodes, of pods and of leases that are written at once.
const parallelism = 8

//go:embed stages/node.yaml
var nodeStages []byte

//go:embed stages/pod.yaml
var podStages []byte

// Main is the program.
func Main(args []string) error {
	flags := flag.NewFlagSet("kubelets", flag.ContinueOnError)
	kubeconfig := flags.String("kubeconfig", "", "how to reach the API server")
	if err := flags.Parse(args); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return Run(ctx, *kubeconfig)
}

// Run plays kubelets until ctx ends.
func Run(ctx context.Context, kubeconfig string) error {
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
	conf.CIDR = "10.244.0.0/16"
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
			stages[stage.Spec.ResourceRef] = append(stages[stage.Spec.ResourceRef], stage)
		}
	}
	return stages, nil
}
