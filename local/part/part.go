// Package part holds the Kubernetes programs inside karpenter-local. Each runs as a process of its own, because they keep
// global state and could not share one.
package part

import (
	"errors"
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
	helm "helm.sh/helm/v4/pkg/cmd"
	"helm.sh/helm/v4/pkg/kube"
	"k8s.io/component-base/cli"
	"k8s.io/kubectl/pkg/cmd"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"

	"karpenter.sh/karpenter/local/plane"
)

// Programs that are not part of a cluster.
const (
	Kubectl = "kubectl"
	Helm    = "helm"
)

var programs = map[string]func(){
	plane.Etcd:              func() { etcdmain.Main(os.Args) },
	plane.APIServer:         func() { os.Exit(cli.Run(apiserver.NewAPIServerCommand())) },
	plane.Scheduler:         func() { os.Exit(cli.Run(scheduler.NewSchedulerCommand())) },
	plane.ControllerManager: func() { os.Exit(cli.Run(controllermanager.NewControllerManagerCommand())) },
	Kubectl:                 kubectl,
	Helm:                    runHelm,
}

// Run becomes the named program, which reads its arguments from os.Args. It does not come back; it returns false
// when there is no such program.
func Run(name string) bool {
	run, known := programs[name]
	if known {
		run()
		os.Exit(0)
	}
	return known
}

func runHelm() {
	kube.ManagedFieldsManager = Helm
	command, err := helm.NewRootCmd(os.Stdout, os.Args[1:], helm.SetupLogging)
	if err == nil {
		err = command.Execute() // which says what is wrong
	}
	var coded helm.CommandError
	switch {
	case errors.As(err, &coded):
		os.Exit(coded.ExitCode)
	case err != nil:
		os.Exit(1)
	}
}

func kubectl() {
	if err := cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()); err != nil {
		cmdutil.CheckErr(err)
	}
}
