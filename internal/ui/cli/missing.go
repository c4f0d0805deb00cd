package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"karpenter.sh/karpenter/internal/cluster"
)

// A user with a question about something that does not exist has mostly forgotten a namespace, or knows the name of a
// workload and not those of its pods: the error says what to type.

// noPod returns the error that there is no such pod. It names pods of that name in other namespaces, or with a name
// like it.
func noPod(snap *cluster.Snapshot, namespace, name string) error {
	var same []string
	var alike []cluster.PodKey
	for p := range snap.Pods() {
		switch {
		case p.Name == name:
			same = append(same, p.Namespace)
		case strings.Contains(p.Name, name):
			alike = append(alike, p.PodKey)
		}
	}
	if len(same) > 0 {
		return fmt.Errorf("there is no pod %s/%s; one of that name is in %s: add -n %s", namespace, name,
			strings.Join(same, ", "), same[0])
	}
	slices.SortStableFunc(alike, func(a, b cluster.PodKey) int {
		return cmp.Compare(namespaceRank(a, namespace), namespaceRank(b, namespace))
	})
	var ask []string
	for _, p := range alike {
		ask = append(ask, fmt.Sprintf("pod %s -n %s", p.Name, p.Namespace))
	}
	return noSuch("pod "+namespace+"/"+name, ask, "kubectl get pods -A")
}

// namespaceRank returns 0 for pods of a namespace and 1 for others, to sort the former first.
func namespaceRank(p cluster.PodKey, namespace string) int {
	if p.Namespace == namespace {
		return 0
	}
	return 1
}

// noNode returns the error that there is no such node or claim, with names like it.
func noNode(snap *cluster.Snapshot, kind, name string) error {
	var ask []string
	for n := range snap.Nodes() {
		if n.Claim != nil && strings.Contains(n.Claim.Name, name) {
			ask = append(ask, "nodeclaim "+n.Claim.Name)
		}
		if n.Node != nil && strings.Contains(n.Node.Name, name) {
			ask = append(ask, "node "+n.Node.Name)
		}
	}
	return noSuch(kind+" "+name, ask, "kubectl get nodes,nodeclaims")
}

// noPool returns the error that there is no such NodePool, with the names of all.
func noPool(snap *cluster.Snapshot, name string) error {
	var ask []string
	for p := range cluster.Pools.All(snap) {
		ask = append(ask, "nodepool "+p.Name)
	}
	return noSuch("NodePool "+name, ask, "kubectl get nodepools")
}

// mostAsk is how many questions are named that the user may have meant.
const mostAsk = 3

// noSuch returns the error about something that does not exist. It suggests a few objects to ask about instead (ask),
// and the kubectl command that lists all (list).
func noSuch(what string, ask []string, list string) error {
	if len(ask) == 0 {
		return fmt.Errorf("there is no %s, nor anything with a name like it; of a cluster %q lists what there is", what, list)
	}
	more := ""
	if n := len(ask) - mostAsk; n > 0 {
		more = fmt.Sprintf("; %d more have a name like it: %q", n, list)
	}
	return fmt.Errorf("there is no %s; ask about %s%s", what, strings.Join(ask[:min(mostAsk, len(ask))], ", "), more)
}
