// Karpenter adds nodes to a Kubernetes cluster when pods need them and takes them away when they do not.
//
// Without a word, or with the word "controller", it runs in the cluster and acts. The other words are commands for people,
// which read and print.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"karpenter.sh/karpenter/internal/cli"
	"karpenter.sh/karpenter/internal/operator"
	"karpenter.sh/karpenter/internal/setting"
)

// version is set when a release is built.
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	args := os.Args[1:]
	if len(args) > 0 && cli.Has(args[0]) {
		os.Exit(cli.Run(ctx, cli.Env{Out: os.Stdout, Err: os.Stderr, Catalog: planCatalog}, args))
	}
	if len(args) > 0 && args[0] == "controller" {
		args = args[1:]
	} else if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		fmt.Fprintf(os.Stderr, "karpenter: there is no command %q\n", args[0])
		usage(os.Stderr)
		os.Exit(2)
	}
	if err := controller(ctx, args); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "karpenter:", err)
		os.Exit(1)
	}
}

func usage(w io.Writer) {
	fmt.Fprintln(w, "Commands:\n  controller   run in the cluster (also without a word); --help lists its flags")
	cli.Usage(w)
}

// controller reads the settings and runs until ctx ends.
func controller(ctx context.Context, args []string) error {
	core, kubeconfig := operator.DefaultSettings(), ""
	p := providers[0]()
	settings := append(core.List(), p.settings()...)
	settings = append(settings, setting.String(&kubeconfig, "kubeconfig", "how to reach the API server; in a cluster it is known"))
	if err := setting.Read("karpenter controller", settings, args, os.LookupEnv, os.Stderr); err != nil {
		return err
	}
	if err := errors.Join(core.Validate(), p.validate()); err != nil {
		return err
	}
	kube, err := connect(kubeconfig)
	if err != nil {
		return err
	}
	return operator.Run(ctx, operator.Options{
		REST: kube, Settings: core, NodeClassLabels: []string{p.nodeClassLabel}, Version: version, Commit: commit(),
		Cloud: func(ctx context.Context, in operator.CloudInput) (*operator.Cloud, error) {
			return p.open(ctx, core, in)
		},
	})
}

// connect says how to reach the API server.
func connect(kubeconfig string) (*rest.Config, error) {
	if kubeconfig != "" {
		return clientcmd.BuildConfigFromFlags("", kubeconfig)
	}
	c, err := rest.InClusterConfig()
	if errors.Is(err, rest.ErrNotInCluster) {
		return nil, errors.New("not in a cluster: set --kubeconfig or KUBECONFIG")
	}
	return c, err
}

// commit is the revision that this program was built from, as far as the build knows.
func commit() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return ""
}
