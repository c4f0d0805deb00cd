package cli

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/url"

	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "karpenter.sh/karpenter/api/aws/v1"
	v1 "karpenter.sh/karpenter/api/karpenter/v1"
	"karpenter.sh/karpenter/cloud"
	"karpenter.sh/karpenter/internal/aws/preflight"
	"karpenter.sh/karpenter/internal/aws/price"
)

// Exit codes of every command.
const (
	exitFine          = 0
	exitUnschedulable = 1 // the answer is not what one hopes for: some pod cannot run
	exitLost          = 1 // likewise: something has no equal in the output
	exitUnready       = 1 // likewise: something that Karpenter needs is not there, or was not to be seen
	exitBadInput      = 2
)

// An Env holds what commands get from the program and from tests: streams, and functions that reach AWS and the
// cluster.
type Env struct {
	In       io.Reader
	Out, Err io.Writer
	// Catalog returns what can be bought under a node class. A nil class means the defaults.
	Catalog func(m Market, class *awsv1.EC2NodeClass) (*cloud.Catalog, error)
	// Source returns the region and day of the prices of a market.
	Source func(m Market) (Source, error)
	// FetchPrices asks AWS for the price list of a region, "" for that of the caller's configuration.
	FetchPrices func(ctx context.Context, region string) (*price.Table, error)
	// CheckClass says why the controller would not use a node class, as far as that is to be seen without asking the cloud.
	CheckClass func(*awsv1.EC2NodeClass) error
	// IgnoredFields names the fields of a node class that have no effect; nil asks for none.
	IgnoredFields func(*awsv1.EC2NodeClass) []string
	// EditClass returns, for machines, why they drift when a node class becomes another, "" if they do not. What is
	// not sure depends on what the cloud has.
	EditClass func(from, to *awsv1.EC2NodeClass) func(*v1.NodeClaim) (reason cloud.DriftReason, sure bool)
	// Cluster reaches the cluster of a kubeconfig; nil does it over the network.
	Cluster func(kubeconfig string) (client.Client, error)
	// Leader returns what the controller that leads serves under a path; nil asks it through the API server.
	Leader func(ctx context.Context, kubeconfig, what string, query url.Values) (io.ReadCloser, error)
	// Preflight looks at an account and the cluster of a kubeconfig.
	Preflight func(ctx context.Context, kubeconfig string, names preflight.Names) ([]preflight.Finding, error)
}

// A Market says where a command buys.
type Market struct {
	Region string
	Spot   string // "model", "none" or the name of a file with spot prices
	Prices string // the name of a file that karpenter prices fetch wrote, "" for the prices that ship with Karpenter
}

// A Source says where the on-demand prices of a market come from.
type Source struct {
	Region, Made string   // the day is such as 2026-07-20
	Unlisted     []string // types that have a price but that EC2 lists no more, sorted
}

// A command is one word after "karpenter".
type command struct {
	name, summary string
	run           func(ctx context.Context, env Env, args []string) (int, error)
}

// commands returns all commands in the order in which help shows them.
func commands() []command {
	return []command{
		{"plan", "what would be launched for the pods in some files or a cluster, at what price, and why not cheaper", plan},
		{"why", "why a pod waits and what would give it a place; why a node stays and what would become of it", askWhy},
		{"history", "what the controller decided, by object, reason and time", history},
		{"forecast", "which pods are expected because they came at these times on earlier days, and how wrong that was", runForecast},
		{"replay", "what recorded pods would have cost, and how long they would have waited, with other pools and settings", runReplay},
		{"snapshot", "all that a plan rests on in one file, without secrets: to plan elsewhere, or for a report of a bug", snapshot},
		{"savings", "what a cluster costs, the least that its pods could cost, and which restriction costs how much", runSavings},
		{"cost", "who costs what: by namespace, workload, pool, node or label, from the controller's ledger", runCost},
		{"lint", "pools and PodDisruptionBudgets that can never work, and what an edit of a pool or node class would replace", lint},
		{"convert", "manifests and chart values of older Karpenters, written for this one", convert},
		{"migrate", "NodePools and EC2NodeClasses that buy what node groups buy", migrate},
		{"preflight", "what an account and a cluster lack for Karpenter to run, and the commands that mend it", runPreflight},
		{"prices", "fetch the price list of a region with your credentials, for --prices", fetchPrices},
		{"top", "the nodes, what they hold and what they cost, in a terminal", showTop},
		{"pause", "stop voluntary disruption, of the whole cluster or of some NodePools", pause},
		{"resume", "let it go on", resume},
		{"approve", "say yes to steps that wait for approval, or list them", approve},
		{"deny", "say no to them", deny},
		{"completion", "the script with which bash, zsh or fish completes commands and flags", completion},
		{"orphans", "machines without NodeClaim: list them, adopt them, or have them stopped", orphans},
	}
}

// Has reports whether name is one of the commands.
func Has(name string) bool {
	for _, c := range commands() {
		if c.name == name {
			return true
		}
	}
	return false
}

// Nearest returns the command that a mistyped word most likely means, or "" if each differs in more than two letters.
func Nearest(word string) string {
	best, least := "", 3 // letters that differ
	for _, c := range commands() {
		if n := distance(word, c.name); n < least {
			best, least = c.name, n
		}
	}
	return best
}

// distance returns how many letters must be inserted, removed or replaced to turn one word into the other. Two
// neighbours that change places count as one.
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		for j := range rows[i] {
			switch {
			case i == 0 || j == 0:
				rows[i][j] = i + j
				continue
			case a[i-1] == b[j-1]:
				rows[i][j] = rows[i-1][j-1]
			default:
				rows[i][j] = 1 + min(rows[i-1][j-1], rows[i-1][j], rows[i][j-1])
			}
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}

// Run executes the command args[0] with the other words and returns the exit code. args must not be empty.
func Run(ctx context.Context, env Env, args []string) int {
	for _, c := range commands() {
		if c.name != args[0] {
			continue
		}
		env := env
		env.Err = plainWriter{env.Err}
		if c.name != "top" { // draws with escape sequences of its own, and makes each cell plain itself
			env.Out = plainWriter{env.Out}
		}
		code, err := c.run(ctx, env, args[1:])
		if errors.Is(err, flag.ErrHelp) {
			return exitFine
		}
		if err != nil {
			fmt.Fprintf(env.Err, "karpenter %s: %v\n", c.name, err)
			return exitBadInput
		}
		return code
	}
	Usage(env.Err)
	return exitBadInput
}

// Usage lists the commands with their summaries.
func Usage(w io.Writer) {
	for _, c := range commands() {
		fmt.Fprintf(w, "  %-12s %s\n", c.name, c.summary)
	}
}

// writeJSON prints the answer of a command for -o json.
func writeJSON[T any](w io.Writer, v T) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
