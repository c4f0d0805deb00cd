package sim

import (
	"hash/fnv"

	corev1 "k8s.io/api/core/v1"

	"karpenter.sh/karpenter/internal/history/kubescore"
)

// asks remembers of versions of pods what they ask for; nil remembers nothing.
type asks map[*corev1.Pod]kubescore.Asked

func (a asks) of(p *corev1.Pod) kubescore.Asked {
	if known, ok := a[p]; ok {
		return known
	}
	out := kubescore.Of(p)
	if a != nil {
		a[p] = out
	}
	return out
}

// unwelcoming counts the taints that would rather not have the pod.
func unwelcoming(p *corev1.Pod, n *corev1.Node) int64 {
	count := int64(0)
	for i := range n.Spec.Taints {
		if t := &n.Spec.Taints[i]; t.Effect == corev1.TaintEffectPreferNoSchedule && !tolerated(p, t) {
			count++
		}
	}
	return count
}

// best is the node with the highest score of those that can take the pod, "" if there is none. Of equal nodes kube-scheduler takes any;
// here it is as good as any, but always the same.
func best(p *corev1.Pod, room *room) string {
	var open []*free
	most := int64(0)
	for _, name := range room.names {
		if f := room.of[name]; f.open(p) && f.holds(p) {
			open = append(open, f)
			most = max(most, unwelcoming(p, f.node))
		}
	}
	name, score, draw := "", int64(0), uint32(0)
	for _, f := range open {
		s := f.load.Score(f.asks.of(p)) + kubescore.TaintsWeight*kubescore.Welcome(unwelcoming(p, f.node), most)
		if name != "" && s < score {
			continue
		}
		if d := lot(p, f.node); name == "" || s > score || d > draw {
			name, score, draw = f.node.Name, s, d
		}
	}
	return name
}

// lot is drawn between equal nodes.
func lot(p *corev1.Pod, n *corev1.Node) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(p.Name + "/" + n.Name))
	return h.Sum32()
}
