package sim

import (
	"hash/fnv"
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resources "k8s.io/component-helpers/resource"
)

// The scores of kube-scheduler's default profile, version 1.36, that tell nodes apart here, with their weights: how many
// unwelcoming taints a node has counts three times as much as how empty it would be and how evenly filled. Scores for affinity, spread
// and images are left out: pods of these tests have none of them. So is the sampling of nodes in clusters of more than a hundred.
const (
	top          = 100
	taintsWeight = 3
)

// A request is what a pod asks for of CPU (thousandths) and of memory (bytes).
type request struct{ cpu, memory int64 }

// guessed is what kube-scheduler takes a container for that does not say what it needs, when it looks for the emptiest node.
var guessed = corev1.ResourceList{
	corev1.ResourceCPU: *resource.NewMilliQuantity(100, resource.DecimalSI), corev1.ResourceMemory: *resource.NewQuantity(200<<20, resource.BinarySI),
}

func requested(p *corev1.Pod) request { return requestOf(p, resources.PodResourcesOptions{}) }

func guessedRequest(p *corev1.Pod) request {
	return requestOf(p, resources.PodResourcesOptions{NonMissingContainerRequests: guessed})
}

// asked is what a pod asks for, and what kube-scheduler takes it for.
type asked struct{ request, guessed request }

// asks remembers of versions of pods what they ask for; nil remembers nothing.
type asks map[*corev1.Pod]asked

func (a asks) of(p *corev1.Pod) asked {
	if known, ok := a[p]; ok {
		return known
	}
	out := asked{requested(p), guessedRequest(p)}
	if a != nil {
		a[p] = out
	}
	return out
}

func requestOf(p *corev1.Pod, o resources.PodResourcesOptions) request {
	r := resources.PodRequests(p, o)
	return request{r.Cpu().MilliValue(), r.Memory().Value()}
}

func (r request) plus(more request) request { return request{r.cpu + more.cpu, r.memory + more.memory} }

// leastAllocated prefers the node that is emptiest once the pod is there.
func leastAllocated(used, has request) int64 {
	left := func(used, has int64) int64 {
		if has == 0 || used > has {
			return 0
		}
		return (has - used) * top / has
	}
	switch {
	case has.cpu == 0 && has.memory == 0:
		return 0
	case has.cpu == 0:
		return left(used.memory, has.memory)
	case has.memory == 0:
		return left(used.cpu, has.cpu)
	}
	return (left(used.cpu, has.cpu) + left(used.memory, has.memory)) / 2
}

// balancedAllocation prefers the node whose CPU and memory are more evenly used with the pod than without it.
func balancedAllocation(before, after, has request) int64 {
	if after == before {
		return 0
	}
	evenness := func(used request) int64 {
		if has.cpu == 0 || has.memory == 0 {
			return top
		}
		cpu, memory := min(1, float64(used.cpu)/float64(has.cpu)), min(1, float64(used.memory)/float64(has.memory))
		return int64((1 - math.Abs((cpu-memory)/2)) * top)
	}
	return top/2 + (top/2+evenness(after)-evenness(before))/2
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
func best(p *corev1.Pod, room map[string]*free) string {
	var open []*free
	most := int64(0)
	for _, name := range sortedNodes(room) {
		if f := room[name]; f.open(p) && f.holds(p) {
			open = append(open, f)
			most = max(most, unwelcoming(p, f.node))
		}
	}
	name, score, draw := "", int64(0), uint32(0)
	for _, f := range open {
		s, d := f.score(p)+taintsWeight*welcome(unwelcoming(p, f.node), most), lot(p, f.node)
		if name == "" || s > score || s == score && d > draw {
			name, score, draw = f.node.Name, s, d
		}
	}
	return name
}

// welcome is the score of a node with so many unwelcoming taints, where the worst node has most.
func welcome(taints, most int64) int64 {
	if most == 0 {
		return top
	}
	return top - top*taints/most
}

// lot is drawn between equal nodes.
func lot(p *corev1.Pod, n *corev1.Node) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(p.Name + "/" + n.Name))
	return h.Sum32()
}
