// Command karpenter-local is a Kubernetes cluster in one file, for trying and testing Karpenter on a laptop.
//
// Called by the name of one of the programs inside (etcd, kube-apiserver, kube-scheduler, kube-controller-manager,
// kubectl, helm), or with that name as its first argument, it is that program.
package main

import (
	"os"
	"path/filepath"

	"karpenter.sh/karpenter/local/command"
	"karpenter.sh/karpenter/local/lifeline"
	"karpenter.sh/karpenter/local/part"
)

func main() {
	lifeline.Follow()
	part.Run(filepath.Base(os.Args[0]))
	args := os.Args[1:]
	if len(args) > 0 && args[0] != part.Kubectl && args[0] != part.Helm { // which first has to learn where the cluster is
		os.Args = args
		part.Run(args[0])
	}
	os.Exit(command.Main(args))
}
