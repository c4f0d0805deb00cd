package cli

import (
	"fmt"
	"slices"
	"strings"

	"karpenter.sh/karpenter/internal/cluster"
	"karpenter.sh/karpenter/internal/cluster/podclass"
)

// withoutRequests returns the workloads that have a container without a CPU or memory request, sorted. DaemonSets and the pods that only
// keep room (cluster.Spare) are left out.
func withoutRequests(pods []*cluster.Pod) []string {
	var out []string
	for _, p := range pods {
		if _, assumed := podclass.Assumed(p.Class.Spec); !assumed || p.DaemonSet || p.Spare != nil {
			continue
		}
		name := "Pod/" + p.Namespace + "/" + p.Name
		if p.Owner != nil {
			name = p.Owner.Kind + "/" + p.Namespace + "/" + p.Owner.Name
		}
		if !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// firstFew lists some names, and how many more there are.
func firstFew(names []string) string {
	const most = 5
	text := strings.Join(names[:min(most, len(names))], ", ")
	if more := len(names) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// assumption returns the warning about the workloads of withoutRequests, "" if there are none.
func assumption(workloads []string) string {
	if len(workloads) == 0 {
		return ""
	}
	return firstFew(workloads) +
		": containers without a CPU or memory request count as 100m and 200Mi when a new node is sized; set requests"
}
