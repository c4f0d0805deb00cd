// Karpenter adds nodes to a Kubernetes cluster when pods need them and takes them away when they do not.
//
// Without a word, or with the word "controller", it runs in the cluster and acts. The other words are commands for people,
// which read and print.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	_ "time/tzdata" // schedules name time zones, and the image has no files of them

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"karpenter.sh/karpenter/internal/aws/class"
	"karpenter.sh/karpenter/internal/kit/setting"
	"karpenter.sh/karpenter/internal/kit/version"
	"karpenter.sh/karpenter/internal/operator"
	"karpenter.sh/karpenter/internal/ui/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run does what the words ask for and returns the exit code.
func run(ctx context.Context, args []string, out, trouble io.Writer) int {
	word := ""
	if len(args) > 0 {
		word = args[0]
	}
	env := cli.Env{In: os.Stdin, Out: out, Err: trouble, Catalog: planCatalog, EditClass: editClass,
		CheckClass: class.Check, IgnoredFields: class.Ignored,
		Preflight: runPreflight, Source: pricesOf, FetchPrices: readPrices}
	switch {
	case cli.Has(word):
		return cli.Run(ctx, env, args)
	case word == "help" && len(args) > 1 && cli.Has(args[1]):
		env.Err = out
		return cli.Run(ctx, env, []string{args[1], "--help"})
	case word == "help" || word == "-h" || word == "--help":
		usage(out)
		return 0
	case word == "version" || word == "--version":
		fmt.Fprintf(out, "karpenter %s, commit %s, %s\n", version.Number(), cmp.Or(version.Commit(), "unknown"), runtime.Version())
		return 0
	case word == "controller":
		args = args[1:]
	case word != "" && !strings.HasPrefix(word, "-"):
		fmt.Fprintf(trouble, "karpenter: there is no command %q\n", word)
		if near := cli.Nearest(word); near != "" {
			fmt.Fprintf(trouble, "Did you mean this?\n  karpenter %s\n", near)
			return 2
		}
		usage(trouble)
		return 2
	}
	if err := controller(ctx, args); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(trouble, "karpenter:", err)
		return 1
	}
	return 0
}

func usage(w io.Writer) {
	fmt.Fprintln(w, "Commands, each with --help:\n  controller   run in the cluster (also without a word)")
	cli.Usage(w)
	fmt.Fprintln(w, "  version      which version this is")
}

// controller reads the settings and runs until ctx ends.
func controller(ctx context.Context, args []string) error {
	core, kubeconfig := operator.DefaultSettings(), ""
	p := awsProvider()
	settings := append(core.List(), p.settings()...)
	settings = append(settings, setting.String(&kubeconfig, "kubeconfig", "how to reach the API server; in a cluster it is known"))
	if err := setting.Read("karpenter controller", settings, args, os.LookupEnv, os.Stderr); err != nil {
		return err
	}
	if err := errors.Join(core.Validate(), p.validate(), checkRoots(os.LookupEnv)); err != nil {
		return err
	}
	kube, err := connect(kubeconfig)
	if err != nil {
		return err
	}
	return operator.Run(ctx, operator.Options{
		REST: kube, Settings: core, NodeClasses: p.nodeClasses, Version: version.Number(), Commit: version.Commit(),
		Preview: cli.Preview,
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
