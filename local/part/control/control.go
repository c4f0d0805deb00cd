// Package control holds the programs of Kubernetes' control plane. It links nothing else, so that it compiles with every minor of
// Kubernetes that has a list of modules in local/minor.
package control

import (
	"os"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"

	"karpenter.sh/karpenter/local/plane"
)

var programs = map[string]func() *cobra.Command{
	plane.APIServer:         apiserver.NewAPIServerCommand,
	plane.Scheduler:         func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	plane.ControllerManager: controllermanager.NewControllerManagerCommand,
}

// Run becomes the named program, which reads its arguments from os.Args. It does not come back; it returns false
// when there is no such program.
func Run(name string) bool {
	command, known := programs[name]
	if known {
		os.Exit(cli.Run(command()))
	}
	return known
}
