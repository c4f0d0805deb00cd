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

	"karpenter.sh/karpenter/local/part/control"
	"karpenter.sh/karpenter/local/plane"
)

// Programs that are not part of a cluster.
const (
	Kubectl = "kubectl"
	Helm    = "helm"
)

var programs = map[string]func(){
	plane.Etcd: func() { etcdmain.Main(os.Args) },
	Kubectl:    kubectl,
	Helm:       runHelm,
}

// Run becomes the named program, which reads its arguments from os.Args. It does not come back; it returns false
// when there is no such program.
func Run(name string) bool {
	run, known := programs[name]
	if !known {
		return control.Run(name)
	}
	run()
	os.Exit(0)
	return true
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
