// Command kubernetes is the control plane of one minor of Kubernetes in one file. hack/build links it with the modules of that
// minor, which are listed in local/minor, as bin/kubernetes-<minor>.
//
// Called by the name of a program of the control plane, or with that name as its first argument, it is that program.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"karpenter.sh/karpenter/local/lifeline"
	"karpenter.sh/karpenter/local/part/control"
)

func main() {
	lifeline.Follow()
	control.Run(filepath.Base(os.Args[0]))
	if len(os.Args) > 1 {
		os.Args = os.Args[1:]
		control.Run(os.Args[0])
	}
	fmt.Fprintf(os.Stderr, "kubernetes: there is no program %q\n", os.Args[0])
	os.Exit(2)
}
