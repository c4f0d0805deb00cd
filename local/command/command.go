// Package command holds the commands of karpenter-local: what people type, and what the binary tells itself to become.
package command

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"karpenter.sh/karpenter/local/awshost"
	"karpenter.sh/karpenter/local/controller"
	"karpenter.sh/karpenter/local/home"
	"karpenter.sh/karpenter/local/kubelet"
	"karpenter.sh/karpenter/local/part"
	"karpenter.sh/karpenter/local/plane"
	"karpenter.sh/karpenter/local/supervise"
)

// DirEnv names the state folder for all commands.
const DirEnv = "KARPENTER_LOCAL_DIR"

// A command is one word after karpenter-local.
type command struct {
	name, args, help string // no help: not for people
	run              func(args []string) error
}

func commands() []command {
	return []command{
		{"up", "[--set key=value] [--values FILE] [--reset-values] [--empty] [--provider kwok] [--boot-delay 2s] [--boot-spread 1s] " +
			"[--kubernetes 1.34] [--port N] [--foreground]",
			"start the cluster; where it runs, change the chart's values", up},
		{"down", "", "stop it and keep its state", down},
		{"status", "", "what runs, which nodes there are, and what they cost", status},
		{"logs", "[-f] [program]", "what a program said; all programs without a name", logs},
		{part.Kubectl, "…", "kubectl for this cluster", kubectl},
		{part.Helm, "…", "helm for this cluster", helm},
		{"break", "[--condition X] [--stop-kubelet] [--for 31m] [--interrupt] [--rebalance] [--retire] [--freeze] [--kill] <node>, or " +
			"[--sold-out spot/m5.*/us-east-1a] [--zone-down us-east-1b] [--slow 2s]",
			"let a simulated machine fail, or the simulated AWS", breakNode},
		{"mend", "<node> or --aws", "undo what break did", mendNode},
		{"env", "", "the environment in which kubectl and aws reach this cluster: eval \"$(karpenter-local env)\"", env},
		{"clean", "", "stop it and forget its state", clean},
		{"assets", "<folder>", "make a folder with etcd, kube-apiserver and kubectl for tests", assets},
		{superviseName, "", "", superviseMain},
		{supervise.Installer, "", "", install},
		{plane.Kubelets, "", "", kubelet.Main},
		{plane.AWS, "", "", awshost.Main},
		{plane.Controller, "", "", controller.Main},
	}
}

// Main runs a command and returns the exit code of the process.
func Main(args []string) int {
	if len(args) == 0 || args[0] == "help" || args[0] == "-h" || args[0] == "--help" {
		usage(os.Stdout)
		return 0
	}
	for _, c := range commands() {
		if c.name == args[0] {
			return exitCode(c.name, c.run(args[1:]))
		}
	}
	fmt.Fprintf(os.Stderr, "karpenter-local: there is no command %q\n\n", args[0])
	usage(os.Stderr)
	return 2
}

func usage(w io.Writer) {
	fmt.Fprintln(w, "karpenter-local is a Kubernetes cluster with Karpenter in one file.")
	fmt.Fprintln(w)
	for _, c := range commands() {
		if c.help != "" {
			fmt.Fprintf(w, "  %-8s %s\n", c.name, c.help)
			if c.args != "" {
				fmt.Fprintf(w, "           karpenter-local %s %s\n", c.name, c.args)
			}
		}
	}
	fmt.Fprintf(w, "\nState is in .local, or in the folder that %s names.\n", DirEnv)
}

// A quietError ends the process with exit code 1; what there was to say has been said.
type quietError struct{}

func (quietError) Error() string { return "" }

// exitCode prints the error of a command on one line and returns the exit code of the process.
func exitCode(name string, err error) int {
	var damaged *home.DamagedError
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case errors.As(err, new(quietError)):
	case errors.As(err, &damaged):
		fmt.Fprintf(os.Stderr, "karpenter-local %s: %v; `karpenter-local clean` forgets the old state\n", name, oneLine(err))
	default:
		fmt.Fprintf(os.Stderr, "karpenter-local %s: %v\n", name, oneLine(err))
	}
	return 1
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// statePath is where the cluster lives.
func statePath() string {
	if path := os.Getenv(DirEnv); path != "" {
		return path
	}
	return ".local"
}

var errNoCluster = errors.New("there is no cluster here; `karpenter-local up` starts one")

// existing opens the state folder, or returns errNoCluster: only up makes one.
func existing() (home.Dir, error) {
	if _, err := os.Stat(statePath()); errors.Is(err, os.ErrNotExist) {
		return "", errNoCluster
	}
	return home.Open(statePath())
}

// running is existing for commands that need the cluster to run.
func running() (home.Dir, error) {
	dir, err := existing()
	if err != nil {
		return "", err
	}
	pid, err := dir.Holder()
	if err == nil && pid == 0 {
		err = errors.New("the cluster does not run; `karpenter-local up` starts it")
	}
	return dir, err
}

// existingWithout is existing for commands that take no arguments, and refuses those that were given.
func existingWithout(args []string) (home.Dir, error) {
	if len(args) > 0 {
		return "", fmt.Errorf("%q is one argument too many", args[0])
	}
	return existing()
}
