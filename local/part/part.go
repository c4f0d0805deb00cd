// Package part holds the Kubernetes programs inside karpenter-local. Each runs as a process of its own, because they keep
// global state and could not share one.
package part

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	"k8s.io/kubectl/pkg/cmd"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"

	"karpenter.sh/karpenter/local/plane"
)

// Kubectl is the one program here that is not part of a cluster.
const Kubectl = "kubectl"

var programs = map[string]func(){
	plane.Etcd:              func() { etcdmain.Main(os.Args) },
	plane.APIServer:         func() { os.Exit(cli.Run(apiserver.NewAPIServerCommand())) },
	plane.Scheduler:         func() { os.Exit(cli.Run(scheduler.NewSchedulerCommand())) },
	plane.ControllerManager: func() { os.Exit(cli.Run(controllermanager.NewControllerManagerCommand())) },
	Kubectl:                 kubectl,
}

// Run becomes the named program, which reads its arguments from os.Args. It does not come back; it returns false when there is no such program.
func Run(name string) bool {
	run, known := programs[name]
	if known {
		run()
		os.Exit(0)
	}
	return known
}

func kubectl() {
	if err := cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()); err != nil {
		cmdutil.CheckErr(err)
	}
}
