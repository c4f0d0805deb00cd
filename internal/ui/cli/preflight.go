package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"text/tabwriter"

	"karpenter.sh/karpenter/internal/aws/preflight"
)

const preflightUsage = `Usage: karpenter preflight --cluster-name NAME [flags]

Reads the AWS account and the cluster, changes nothing, and says what Karpenter would miss: roles, tags, subnets with free addresses,
images, the queue, quotas, definitions, versions. What is missing comes with the command that mends it. AWS is asked with your own
credentials and region, as the aws command would.

It ends with 0 when nothing is missing, with 1 when something is or could not be read, with 2 when it was not told enough.

`

// runPreflight runs "karpenter preflight": it prints what an account and a cluster lack.
func runPreflight(ctx context.Context, env Env, args []string) (int, error) {
	flags := flag.NewFlagSet("preflight", flag.ContinueOnError)
	flags.SetOutput(env.Err)
	var n preflight.Names
	flags.StringVar(&n.Cluster, "cluster-name", "", "name of the EKS cluster")
	flags.StringVar(&n.Namespace, "namespace", "kube-system", "namespace of the controller")
	flags.StringVar(&n.ServiceAccount, "service-account", "karpenter", "service account of the controller")
	flags.StringVar(&n.ControllerRole, "controller-role", "", "role of the controller; KarpenterControllerRole-<cluster> if empty")
	flags.StringVar(&n.NodeRole, "node-role", "", "role of nodes while there is no EC2NodeClass; KarpenterNodeRole-<cluster> if empty")
	flags.StringVar(&n.Queue, "interruption-queue", "", "queue of interruption messages; named like the cluster if empty")
	kubeconfig := clusterFlag(flags)
	format := flags.String("o", "table", "table or json")
	flags.Usage = func() { fmt.Fprint(env.Err, preflightUsage); flags.PrintDefaults() }
	if err := flags.Parse(args); err != nil {
		return exitBadInput, err
	}
	show, known := map[string]func(io.Writer, []preflight.Finding) error{
		"table": showTable, "json": writeJSON[[]preflight.Finding],
	}[*format]
	switch {
	case flags.NArg() > 0:
		return exitBadInput, fmt.Errorf("what is %q?", flags.Arg(0))
	case n.Cluster == "":
		return exitBadInput, errors.New("--cluster-name is required")
	case !known:
		return exitBadInput, fmt.Errorf("-o %s: say table or json", *format)
	}
	found, err := env.Preflight(ctx, *kubeconfig, n)
	if err != nil {
		return exitBadInput, err
	}
	code := exitFine
	for _, f := range found {
		if f.State == preflight.Missing || f.State == preflight.Unknown {
			code = exitUnready
		}
	}
	return code, show(env.Out, found)
}

// showTable prints findings, with the command that mends each.
func showTable(out io.Writer, found []preflight.Finding) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, f := range found {
		fmt.Fprintf(w, "%s\t%s\t%s\n", f.State, f.Check, f.Message)
		if f.Command != "" {
			fmt.Fprintf(w, "\t\t  %s\n", f.Command)
		}
	}
	return w.Flush()
}
